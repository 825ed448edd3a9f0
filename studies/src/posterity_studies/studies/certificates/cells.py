"""One certificate: how its prior was learned, what certifies it, and what a test set says."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from posterity.algebra import Matrix
from posterity.blocks import find_blocks, write_blocks
from posterity.curvature import KFAC, KFOC, SampledLabels
from posterity.data.batches import Batch
from posterity.gaussian import Gaussian
from posterity.laplace import isotropic, train
from posterity.laplace.train import Augment, Optimiser
from posterity.lenet import lenet5
from posterity.pacbayes import (
    Certificate,
    certify,
    clopper_pearson,
    gibbs_risk,
    recursive_certificate,
)
from posterity.workflow import split_prior
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.augmentation import Affine, Mirror
from posterity_studies.shared.datasets import images
from posterity_studies.shared.networks import HalfPrecisionTraining, fresh
from posterity_studies.shared.priors import at_strength, start_at
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.strengths import optimise_strengths
from posterity_studies.studies.certificates.methods import head_cell


def wide() -> nn.Sequential:
    """More channels than LeNet-5, and dropout while it trains: a better network for clothes."""
    return HalfPrecisionTraining(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.15),
        nn.Linear(1600, 128),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(128, 10),
    )


def dense() -> nn.Sequential:
    """Fully connected, as in the published figures for recursive certificates."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 10)
    )


NETWORKS = {"lenet5": lenet5, "wide": wide, "dense": dense}


def source(arguments: Arguments) -> Recipe | None:
    """`source` counts images of MNIST; 0 is a prior from the target alone."""
    return Recipe("mnist", arguments["source"], 1e-5, epochs=20) if arguments["source"] else None


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """The certificate, its parts, and the errors on test images that nothing has seen."""
    if arguments["network"] == "head":
        return head_cell(arguments, generator)
    if arguments["row"] == "mnist-recursive":
        return _recursive(arguments, generator)
    return _split(arguments, generator) if arguments["share"] else _alone(arguments, generator)


def _split(arguments: Arguments, generator: torch.Generator) -> Values:
    """A prior refined on a share of the target's images; the rest certifies."""
    data = images(arguments["target"])
    x, y = _some(data.train, arguments["examples"], generator)
    model = _network(arguments)
    recipe, prior = source(arguments), None
    if recipe is not None:
        prior = at_strength(learned_prior(recipe), *arguments["strength"])
        start_at(model, prior)
    refined = split_prior(
        model,
        (x, y),
        prior,
        share=arguments["share"],
        temperatures=(arguments["temperature"],),
        generator=generator,
        progress=False,
        estimator=KFAC(labels=SampledLabels(1)) if arguments.get("estimator") == "kfac" else KFOC(),
        training={
            "epochs": arguments["epochs"],
            "lr": arguments["lr"],
            "batch_size": 128,
            "augment": _augment(arguments),
            # No image is held out of the share: the average over the last epochs stands for stopping in time.
            "validation": None,
            "average": min(arguments["average"], arguments["epochs"]),
            "halve_after": arguments["epochs"],
            "optimiser": _rising_and_falling(arguments, round(len(y) * arguments["share"])),
        },
    )
    found = refined.certify(grid=arguments["tried"], generator=generator, progress=False)
    values: dict[str, Any] = {"temperature": refined.temperature} | _values(found)
    values["test gibbs"] = _round(_gibbs(model, refined.prior, data.test, generator))
    values["test mode"] = _round(_error(model, refined.prior.mean, data.test))
    return values


def _alone(arguments: Arguments, generator: torch.Generator) -> Values:
    """The source's prior as it is, and a posterior optimised for the bound on all of the target's images."""
    data = images(arguments["target"])
    x, y = _some(data.train, arguments["examples"], generator)
    model, recipe = fresh(arguments["seed"]), source(arguments)
    assert recipe is not None
    prior = at_strength(learned_prior(recipe), *arguments["strength"])
    # A head for digits is no better a guess for letters than none.
    head = list(prior.mean)[-1]
    mean = {**prior.mean, head: torch.zeros_like(prior.mean[head])}
    prior = replace(prior, mean=mean).with_provenance(prior.provenance)
    start_at(model, prior)
    start = replace(prior, precision={name: _halved(m) for name, m in prior.precision.items()})
    fitted = optimise_strengths(
        model,
        start,
        prior,
        (x, y),
        epochs=arguments["optimise"],
        lr=arguments["lr"],
        lr_scales=arguments["lr_scales"],
        generator=generator,
        progress=False,
    )
    posterior = fitted.posterior
    found = certify(
        model, posterior, fitted.prior, (x, y), grid=arguments["tried"], generator=generator, progress=False
    )
    return {
        **_values(found),
        "factors": {name: list(pair) for name, pair in fitted.factors.items()},
        "kl by layer": {name: _round(kl) for name, kl in found.kl_by_block.items()},
        "comparator": _round(_comparator(model, prior, (x, y), arguments["epochs"], generator)),
        "test gibbs": _round(_gibbs(model, posterior, data.test, generator)),
        "test mode": _round(_error(model, posterior.mean, data.test)),
    }


def _recursive(arguments: Arguments, generator: torch.Generator) -> Values:
    """A posterior over chunks that double in size, each the next one's prior, from a network drawn at random."""
    data = images(arguments["target"])
    x, y = _some(data.train, arguments["examples"], generator)
    model = _network(arguments)
    prior = isotropic(model, arguments["precision"], mean="model", vouched="the network was drawn at random")
    found = recursive_certificate(
        model,
        prior,
        (x, y),
        arguments["confidence"],
        chunks=arguments["chunks"],
        epochs=arguments["epochs"],
        passes=1,
        lr=arguments["lr"],
        grid=arguments["tried"],
        generator=generator,
        progress=False,
    )
    c = found.certificate
    return {
        "bound": _round(c.bound),
        "gibbs": _round(c.gibbs),
        "kl": _round(sum(step.kl for step in c.steps)),
        "n": c.steps[0].n,
        "free": _round(c.gibbs),
        "holdout": 1.0,
        "steps": [_round(step.bound) for step in c.steps],
        "test gibbs": _round(_gibbs(model, found.posterior, data.test, generator)),
        "test mode": _round(_error(model, found.posterior.mean, data.test)),
    }


def _rising_and_falling(arguments: Arguments, count: int) -> Optimiser | None:
    """Adam whose rate rises for a fifth of the steps and then falls to nothing: as good in half of the epochs."""
    if "peak" not in arguments:
        return None
    steps = arguments["epochs"] * math.ceil(count / 128)
    return lambda parameters: RisingAndFalling(parameters, arguments["peak"], steps)


class RisingAndFalling(torch.optim.Adam):
    """Adam with a triangle of a learning rate."""

    def __init__(self, parameters: Iterable[nn.Parameter], peak: float, steps: int) -> None:
        super().__init__(parameters, lr=peak)
        self.peak, self.steps, self.taken = peak, steps, 0

    def step(self, closure: Any = None) -> Any:
        done = self.taken / self.steps
        for group in self.param_groups:
            group["lr"] = self.peak * min(0.05 + 0.95 * done / 0.2, max(0.0, 1 - done) / 0.8)
        self.taken += 1
        return super().step(closure)


def _network(arguments: Arguments) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(arguments["seed"])
        return NETWORKS[arguments["network"]]()


def _comparator(
    model: nn.Module, prior: Gaussian, data: tuple[Tensor, Tensor], epochs: int, generator: torch.Generator
) -> float:
    """The usual procedure without PAC-Bayes: train on four fifths, and bound the error by the other fifth."""
    order = torch.randperm(len(data[1]), generator=generator)
    held, rest = order[: len(order) // 5], order[len(order) // 5 :]
    start_at(model, prior)
    train(
        model, (data[0][rest], data[1][rest]), prior, epochs=epochs, start="model", generator=generator, progress=False
    )
    error = _error(model, None, (data[0][held], data[1][held]))
    return clopper_pearson(round(error * len(held)), len(held), 0.05)


def _values(c: Certificate) -> dict[str, Any]:
    return {
        "bound": _round(c.bound),
        "holdout": _round(c.holdout.bound),
        "gibbs": _round(c.gibbs),
        "kl": float(f"{c.kl:.5g}"),
        "n": c.n,
        "replicates": c.replicates,
        "free": _round(c.recomputed_without_kl()),
        "rule": c.rule,
        "paid": c.grid,
    }


def _augment(arguments: Arguments) -> Augment | None:
    kinds: dict[str, Augment] = {"affine": Affine(0.1, arguments["seed"]), "mirror": Mirror(arguments["seed"])}
    return kinds.get(arguments["augment"])


def _halved(matrix: Matrix) -> Matrix:
    """Half the variance: draws from the prior itself vary too much to learn from."""
    return matrix * 2.0


def _some(data: tuple[Tensor, Tensor], n: int | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    if n is None:
        return data
    kept = torch.randperm(len(data[1]), generator=generator)[:n]
    return data[0][kept], data[1][kept]


def _gibbs(model: nn.Module, posterior: Gaussian, data: tuple[Tensor, Tensor], generator: torch.Generator) -> float:
    return gibbs_risk(model, posterior, data, passes=1, generator=generator, progress=False).error


@torch.no_grad()
def _error(model: nn.Module, mean: Any, data: tuple[Tensor, Tensor]) -> float:
    weights = None
    if mean is not None:
        weights = write_blocks(find_blocks(model), {name: matrix.float() for name, matrix in mean.items()})
    wrong = 0
    for images_, labels in zip(data[0].split(1000), data[1].split(1000), strict=True):
        outputs = Batch((images_,), {}, labels).outputs(model.eval(), weights)
        wrong += int((outputs.argmax(1) != labels).sum())
    return wrong / len(data[1])


def _round(x: float) -> float:
    return float(f"{x:.5g}")
