"""Every public value fits on a screen when it is printed, however large the network and the data are."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.brief import brief

SCREEN = 2000


def network(layers: int = 4) -> nn.Module:
    torch.manual_seed(0)
    parts = [module for _ in range(layers) for module in (nn.Linear(4, 4), nn.Tanh())]
    return nn.Sequential(*parts, nn.Linear(4, 3))


@pytest.fixture(scope="module")
def values() -> dict[str, object]:
    dice = torch.Generator().manual_seed(0)
    x, y = torch.randn(90, 4, generator=dice), torch.arange(90) % 3
    z, w = torch.randn(30, 4, generator=dice), torch.arange(30) % 3
    names = [f"a class with a long name {k}" for k in range(3)]
    task = pt.Task("a task", (x, y), None, None, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = pt.learn(network(), (x, y), classes=names, training={"epochs": 300, "stop_after": 300}, progress=False)
        few = pt.adapt(network(), (z, w), fit.posterior, classes=names, progress=False)
        scales = pt.Scales(dict.fromkeys(fit.posterior.blocks, 1.0))
        bpnn = pt.BPNN(network(), fit.posterior, ["0"], "8", training={"epochs": 1}, scales=pt.Scales())
        bpnn.learn(task, progress=False)
        prediction = few.predict(x)
        found = [
            fit, few, prediction, fit.curvature, fit.history, scales, few.choice, few.choice.best, fit.posterior,
            fit.posterior.card, few.posterior.provenance, fit.plan, few.examples, few.predictor, fit.predictor, task, bpnn,
            pt.update(fit.model, fit.curvature, fit.prior, scales).card, pt.pacbayes.tune(fit.model, fit.curvature, fit.prior),
            few.certify((z, w), passes=2, progress=False), pt.metrics.score(prediction.probs, y),
        ]  # fmt: skip
    return {f"{k} {type(value).__name__}": value for k, value in enumerate(found)}


def test_so_do_those_of_deep_networks():
    model = network(300)
    prior, data = pt.isotropic(model), (torch.randn(4, 4), torch.arange(4) % 3)
    curvature = pt.estimate(model, data, pt.Diagonal(), progress=False)
    scales = pt.Scales(dict.fromkeys(prior.blocks, 1.0))
    for value in (prior, curvature, scales, pt.update(model, curvature, prior, scales).card):
        assert 0 < len(repr(value)) < SCREEN


def test_every_public_value_fits_on_a_screen(values):
    long = {name: len(repr(value)) for name, value in values.items() if not 0 < len(repr(value)) < SCREEN}
    assert not long


def test_what_is_left_out_is_counted():
    @dataclasses.dataclass(frozen=True, repr=False)
    class Value:
        numbers: torch.Tensor
        many: dict[str, int]
        few: tuple[float, ...]

        __repr__ = brief

    value = Value(torch.zeros(3, 4), {str(k): k for k in range(9)}, (1.0, 2.0))
    assert repr(value) == "Value(numbers=<3×4>, many=<9 entries>, few=(1.0, 2.0))"
