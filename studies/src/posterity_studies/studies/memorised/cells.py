"""A network trained until nothing is left to learn, and the posterior that its training data alone gives."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import posterity as pt
from posterity.blocks import Replica
from posterity.data.batches import input_batches
from posterity.errors import Memorisation
from posterity.kernel import Calibration, LeaveOneOut, calibrate
from posterity.lenet import lenet5
from posterity.predictive.linearised import StructuredGaussian, output_moments
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.sources import data_set

Pair = tuple[Tensor, Tensor]
TABLES = ("breast_cancer", "digits", "iris", "wine")


def table(name: str, seed: int) -> tuple[nn.Module, Pair, Pair]:
    """Half of a table of scikit-learn, and two hidden layers."""
    import sklearn.datasets

    x, y = map(torch.as_tensor, getattr(sklearn.datasets, f"load_{name}")(return_X_y=True))
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    (x, other), (y, answers) = (part[order].tensor_split(2) for part in (x.float(), y))
    mean, scale = x.mean(0), x.std(0) + 1e-3
    layers = [nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, int(y.max()) + 1)]
    return nn.Sequential(*layers), ((x - mean) / scale, y), ((other - mean) / scale, answers)


def images(name: str, wrong: float, seed: int) -> tuple[nn.Module, Pair, Pair]:
    """LeNet-5 and 500 images; 600 others to test."""
    x, y = data_set(name).train
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=generator)[:1100]
    x, y = x[order], y[order].clone()
    drawn = torch.rand(len(y), generator=generator) < wrong
    y[drawn] = torch.randint(10, (int(drawn.sum()),), generator=generator)
    return lenet5(), (x[:500], y[:500]), (x[500:], y[500:])


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    name, seed = arguments["data"], arguments["seed"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, data, test = table(name, seed) if name in TABLES else images(name, arguments["wrong"], seed)
        _train(model, data, arguments["epochs"])
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            last = [n for n, layer in model.named_modules() if isinstance(layer, nn.Linear)][-1]
            blocks = [last] if arguments["layers"] == "last" else None
            fit = pt.posterior(model, data, blocks=blocks, progress=False)
    with torch.no_grad():
        right = float((model(data[0]).argmax(1) == data[1]).double().mean())
        own = float(cross_entropy(model(test[0]), test[1]))
    warned = any(issubclass(w.category, Memorisation) for w in raised)
    values: dict[str, Any] = {"train accuracy": round(right, 4), "warned": warned, "own": {"nll": round(own, 4)}}
    if arguments["layers"] == "last":
        return values | {"ours": {"nll": round(float(pt.metrics.score(fit.predict(test[0]).probs, test[1]).nll), 4)}}
    return values | _widths(fit, model, test)


def _widths(fit: pt.Fit, model: nn.Module, test: Pair) -> dict[str, Any]:
    """Test NLL at the width that was chosen, at the posterior's own, and at the one that the test data would choose."""
    network = Replica(model)
    batches = input_batches(test[0], 100, torch.device("cpu"))
    found = [output_moments(network, fit.posterior, batch) for batch in batches]
    seen = LeaveOneOut(torch.cat([m.double() for m, _ in found]), torch.cat([c for _, c in found]))
    assert isinstance(fit.predictor, StructuredGaussian)
    likelihood, chosen = pt.Categorical(), fit.predictor.calibration
    scores = {
        "ours": seen.nll(likelihood, test[1], chosen),
        "untempered": seen.nll(likelihood, test[1], Calibration()),
        "best": calibrate(seen, likelihood, test[1])[1],
    }
    return {"tau": chosen.tau} | {way: {"nll": round(value, 4)} for way, value in scores.items()}


def _train(model: nn.Module, data: Pair, epochs: int) -> None:
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(epochs):
        for i in torch.randperm(len(data[1])).split(50):
            optimiser.zero_grad()
            cross_entropy(model(data[0][i]), data[1][i]).backward()
            optimiser.step()
    model.eval()
