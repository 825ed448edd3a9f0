"""Half-precision and autocast networks accumulate in float32; float64 networks stay in float64."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from curvature_cases import case, data, distance
from torch import Tensor, nn

from posterity.algebra import JointEigen, Matrix
from posterity.curvature import (
    EKFAC,
    KFAC,
    KFOC,
    Bernoulli,
    Categorical,
    Dense,
    Diagonal,
    EmpiricalLabels,
    ExactLabels,
    GaussianNoise,
    estimate,
)
from posterity.errors import NotFinite

NAMES = ["mlp", "conv", "shared", "norms", "encoder"]
ESTIMATORS = [
    KFAC(ExactLabels()),
    KFOC(ExactLabels()),
    EKFAC(ExactLabels()),
    Diagonal(ExactLabels()),
    Dense(ExactLabels()),
]


def as_type(name: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    x, y = data(name)
    return deepcopy(case(name).model).to(dtype), (x.to(dtype), y)


def told_in(matrix: Matrix) -> torch.dtype:
    """Single precision, but for eigenvectors: rounded, they would no longer be orthogonal."""
    return torch.float64 if isinstance(matrix, JointEigen) else torch.float32


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_float64_network_gives_float64_and_float32_float32(name, estimator):
    model, given = as_type(name, torch.float64)
    double = estimate(model, given, estimator, progress=False)
    model, given = as_type(name, torch.float32)
    single = estimate(model, given, estimator, progress=False)
    for block, matrix in double.blocks.items():
        assert matrix.dense().dtype == torch.float64
        assert single[block].dtype == told_in(single[block])
        assert distance(single[block].dense().double(), matrix) < 1e-4
    assert single.nll == pytest.approx(double.nll, rel=1e-5)


ROUNDING = 12
"""Steps of the half type: rounding of weights, activations and gradients, several layers deep. The encoder's comes to 7."""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_half_precision_network_gives_float32_close_to_the_full_networks(name, estimator, dtype):
    model, given = as_type(name, torch.float32)
    full = estimate(model, given, estimator, progress=False)
    model, given = as_type(name, dtype)
    half = estimate(model, given, estimator, progress=False)
    for block, matrix in full.blocks.items():
        result = half[block].dense()
        assert result.dtype == told_in(half[block])
        assert torch.isfinite(result).all()
        assert distance(result, matrix) < ROUNDING * torch.finfo(dtype).eps
    assert half.nll == pytest.approx(full.nll, rel=torch.finfo(dtype).eps)


class Casting(nn.Module):
    """Autocast inside the network, as some models have it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


@pytest.mark.parametrize("where", ["around", "inside"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_autocast_gives_float32_close_to_the_full_networks(name, estimator, where):
    model, given = as_type(name, torch.float32)
    full = estimate(model, given, estimator, progress=False)
    if where == "around":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = estimate(model, given, estimator, progress=False)
    else:
        result = estimate(Casting(model), given, estimator, progress=False)
    for block, matrix in full.blocks.items():
        found = result[block if where == "around" else f"inner.{block}"]
        assert found.dtype == told_in(found)
        assert distance(found.dense(), matrix) < ROUNDING * torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("estimator", [KFAC(EmpiricalLabels()), KFOC(EmpiricalLabels()), EKFAC(EmpiricalLabels())])
def test_sums_under_autocast_are_those_without_it(estimator):
    """The input factor of a first layer sees nothing of the network's precision: it must not see autocast's either."""
    model, given = as_type("mlp", torch.float32)
    full = estimate(model, given, KFAC(EmpiricalLabels()), progress=False)["0"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = estimate(model, given, estimator, progress=False)["0"]
        kfac = estimate(model, given, KFAC(EmpiricalLabels()), progress=False)["0"]
    torch.testing.assert_close(kfac.right, full.right, rtol=1e-6, atol=1e-6)
    assert cast.dtype == told_in(cast)


def test_many_small_contributions_are_not_lost_in_half_precision():
    """Summed in bfloat16 the count would stop at 256."""
    model = nn.Linear(1, 2).to(torch.bfloat16)
    x = torch.ones(4096, 1, dtype=torch.bfloat16)
    y = torch.zeros(4096, dtype=torch.long)
    one = estimate(model, (x[:1], y[:1]), Dense(EmpiricalLabels()), progress=False)
    many = estimate(model, (x, y), Dense(EmpiricalLabels()), batch_size=64, progress=False)
    assert many.nll == pytest.approx(4096 * one.nll, rel=1e-5)
    torch.testing.assert_close(many[""].dense(), 4096 * one[""].dense(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("likelihood", [GaussianNoise(2.0), Bernoulli()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_targets_are_not_rounded_to_half_precision(likelihood, dtype):
    model = nn.Linear(1, 1).to(dtype)
    model.requires_grad_(True)
    model.weight.data.zero_()
    model.bias.data.zero_()
    y = torch.full((8, 1), 0.7001234)
    result = estimate(
        model, (torch.zeros(8, 1, dtype=dtype), y), Diagonal(EmpiricalLabels()), likelihood, progress=False
    )
    assert result.nll == pytest.approx(float(likelihood.nll(torch.zeros(8, 1), y)), rel=1e-6)


def test_gradients_that_overflow_in_float16_are_refused_by_name():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).half()
    model[1].weight.data.fill_(6e4)
    model[0].weight.data.zero_()
    model[0].bias.data.zero_()
    given = (torch.ones(4, 2).half(), torch.full((4, 2), 50.0))
    for estimator in (
        KFAC(EmpiricalLabels()),
        KFOC(EmpiricalLabels()),
        EKFAC(EmpiricalLabels()),
        Diagonal(EmpiricalLabels()),
        Dense(EmpiricalLabels()),
    ):
        with pytest.raises(NotFinite, match=r'"0".*batch 0'):
            estimate(model, given, estimator, GaussianNoise(), progress=False)


def test_categorical_outputs_saturated_in_float16_stay_finite():
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3)).half()
    model[1].weight.data *= 1e3
    given = (torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).half(), torch.zeros(6, dtype=torch.long))
    for estimator in (KFAC(ExactLabels()), KFOC(ExactLabels()), KFAC(), KFOC()):
        result = estimate(model, given, estimator, Categorical(), progress=False)
        assert all(torch.isfinite(m.dense()).all() for m in result.blocks.values())
