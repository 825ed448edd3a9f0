"""One input: every kind of predictor beside the plain network, and laplace-torch beside them, all in one run.

    python -m benchmarks.latency

CPU time on one thread, the least of as many calls as take two seconds; weights, images and labels are random. The exact
posterior has 100 examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import posterity as pt
from benchmarks.measure import AbsentError, Case, write
from benchmarks.peers import _Batches, _imported, _private_copy, quiet
from posterity.blocks import Replica
from posterity.curvature import Categorical
from posterity.data.batches import input_batches
from posterity.kernel import Calibration
from posterity.lenet import lenet5
from posterity.predictive.exact import AveragedNetworks
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.predictor import Predictor

TARGETS = {"last layer": 3.0, "exact, all layers": 10.0, "structured, all layers": 10.0}
NETWORKS = 6


@dataclass(frozen=True)
class Latency:
    """One input's prediction beside one forward pass."""

    network: str
    predictor: str
    milliseconds: float
    plain_milliseconds: float
    times_plain: float
    target: float | None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this row from others of its file."""
        return self.network, self.predictor


class Unit(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        around = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.around = nn.Sequential(*(around if inputs != outputs else []))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


def resnet20(classes: int = 10) -> nn.Sequential:
    """ResNet-20 for images of 32 × 32 (He et al., 2016)."""
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    units = [Unit(i, o, 1 if i == o else 2) for i, o in pairwise(widths)]
    first = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*first, *units, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def least(job: Callable[[], object], seconds: float) -> float:
    """CPU milliseconds of the fastest of as many calls as take so many CPU seconds, after one call that is not counted."""
    job()
    found: list[float] = []
    while sum(found) < seconds:
        began = time.process_time()
        job()
        found.append(time.process_time() - began)
    return 1000 * min(found)


def predictors(model: nn.Module, x: Tensor, y: Tensor, exact: bool) -> dict[str, Callable[[Tensor], object]]:
    """Every kind of predictor of one network, by name."""
    head = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
    gaussian = pt.update(
        model, pt.estimate(model, (x, y), pt.EKFAC(), progress=False), pt.isotropic(model, 1.0, mean="model")
    )

    def speaking(predictor: Predictor) -> Callable[[Tensor], object]:
        network = Replica(model)
        return lambda new: predictor.predict(network, input_batches(new, 250, new.device))

    shares = tuple((1 / NETWORKS, gaussian.mean) for _ in range(NETWORKS))
    last = pt.posterior(model, (x, y), blocks=[head], progress=False)
    exported = last.module()

    def every_part(new: Tensor) -> object:
        said = last.predict(new)
        return said.probs, said.epistemic, said.unknown

    def gradients(new: Tensor) -> object:
        each = new.repeat_interleave(10, 0).requires_grad_()
        outputs = model(each)
        return torch.autograd.grad(outputs, each, torch.eye(10))

    found: dict[str, Callable[[Tensor], object]] = {
        "gradients of ten outputs, nothing else": gradients,
        "last layer": last.predict,
        "last layer, uncertainty in parts and unknown": every_part,
        "last layer, fit.module()": exported,
        "averaged networks": speaking(AveragedNetworks(shares, Calibration(), Categorical())),
        "structured, all layers": speaking(StructuredGaussian(gaussian, Calibration(), Categorical())),
    }
    if exact:
        fit = pt.adapt(lenet5(), (x[:100], y[:100]), gaussian, head="new", progress=False)
        found["exact, all layers"] = fit.predict
    for part in ("last_layer", "all"):
        try:
            found[f"laplace-torch, {part.replace('_', ' ')}"] = _peer(model, x, y, part)
        except AbsentError:
            continue
    return found


def _peer(model: nn.Module, x: Tensor, y: Tensor, part: str) -> Callable[[Tensor], object]:
    laplace, curvature = _imported("laplace"), _imported("laplace.curvature")
    options: dict[str, Any] = {"subset_of_weights": part, "hessian_structure": "kron", "prior_precision": 1.0}
    fitted = laplace.Laplace(_private_copy(model), "classification", backend=curvature.CurvlinopsGGN, **options)
    with quiet():
        fitted.fit(_Batches(x, y, 100))

    def predict(new: Tensor) -> object:
        with quiet():
            return fitted(new, pred_type="glm", link_approx="probit")

    return predict


def measure(name: str, quick: bool) -> list[Latency]:
    """All predictors of one network."""
    torch.manual_seed(0)
    model, shape = (lenet5(), (1, 28, 28)) if name == "lenet5" else (resnet20(), (3, 32, 32))
    model.eval()
    x, y = torch.randn(20 if quick else 200, *shape), torch.randint(10, (20 if quick else 200,))
    new, seconds = torch.randn(1, *shape), 0.01 if quick else 2.0
    with torch.no_grad():
        plain = least(lambda: model(new), seconds)
    rows = [Latency(name, "plain network", plain, plain, 1.0, None)]
    for kind, predict in predictors(model, x, y, exact=name == "lenet5").items():
        took = least(lambda predict=predict: predict(new), seconds)  # type: ignore[misc]
        rows.append(Latency(name, kind, took, plain, took / plain, TARGETS.get(kind)))
    return rows


def cases(*, quick: bool = False) -> list[Case]:
    """A case for each network."""
    return [Case(f"latency {n}", lambda n=n: measure(n, quick)) for n in ("lenet5", "resnet20")]  # type: ignore[misc]


if __name__ == "__main__":
    torch.set_num_threads(1)
    write([row for case in cases() for row in case.measure()], Path("benchmarks/results/latency.jsonl"))
