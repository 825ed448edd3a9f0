"""A head for numbers: against refits and dense closed forms."""

import math

import pytest
import torch

from posterity.errors import BadTargets, NoData, SizeMismatch
from posterity.heads import from_tensors, regress, to_tensors


def line(n=30, d=5, noise=0.3, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64)
    y = 2 + x @ torch.linspace(-1, 1, d, dtype=torch.float64)
    return x, y + noise * torch.randn(n, generator=draw, dtype=torch.float64), torch.arange(n) % 5


def ridge(rows, y, strength):
    """Weights and bias of a dense ridge regression whose bias is free."""
    z = torch.cat([rows, torch.ones(len(rows), 1).double()], 1)
    precision = strength * torch.eye(z.shape[1]).double()
    precision[-1, -1] = 0
    inverse = torch.linalg.inv(z.mT @ z + precision)
    return inverse, inverse @ z.mT @ y


def test_left_out_numbers_are_those_of_refits_without_the_fold():
    x, y, folds = line()
    fit = regress(x, y, folds, strengths=(0.5,), kinds=("columns",))
    rows = fit.head.views["columns"](x) - fit.head.middle["columns"]
    noise = fit.head.members[0].noise
    for k in range(5):
        out = folds == k
        inverse, weights = ridge(rows[~out], y[~out], 0.5)
        z = torch.cat([rows[out], torch.ones(int(out.sum()), 1).double()], 1)
        torch.testing.assert_close(fit.means[out], z @ weights)
        torch.testing.assert_close(fit.variances[out], noise * (1 + ((z @ inverse) * z).sum(1)))
        density = torch.distributions.Normal(fit.means[out], fit.variances[out].sqrt()).log_prob(y[out])
        torch.testing.assert_close(fit.log_densities[out], density)
    mean, variance = fit.head.moments(x + 1)
    inverse, weights = ridge(rows, y, 0.5)
    z = torch.cat([fit.head.views["columns"](x + 1) - fit.head.middle["columns"], torch.ones(30, 1).double()], 1)
    torch.testing.assert_close(mean, z @ weights)
    torch.testing.assert_close(variance, noise * (1 + ((z @ inverse) * z).sum(1)))


def test_the_noise_is_found():
    x, y, folds = line(n=400)
    _, variance = regress(x, y, folds).head.moments(x)
    assert float(variance.mean().sqrt()) == pytest.approx(0.3, rel=0.1)


def test_intervals_hold_what_they_say_with_more_features_than_examples():
    x, y, folds = line(n=140, d=300, noise=1.0)
    mean, variance = regress(x[:40], y[:40], folds[:40]).head.moments(x[40:])
    inside = ((y[40:] - mean).abs() < 1.645 * variance.sqrt()).double().mean()
    assert 0.75 < float(inside) <= 1


def test_a_unit_of_the_targets_changes_nothing_but_the_unit():
    x, y, folds = line()
    mean, variance = regress(x, y, folds).head.moments(x)
    other_mean, other = regress(x, 1000 * y + 5, folds).head.moments(x)
    torch.testing.assert_close(other_mean, 1000 * mean + 5)
    torch.testing.assert_close(other, 1e6 * variance)


def test_without_folds_the_evidence_gives_the_noise():
    x, y, _ = line(n=6)
    fit = regress(x, y, torch.full((6,), -1))
    assert len(fit.judged) == 0
    assert bool(fit.head.moments(x)[1].gt(0).all())


def test_a_head_comes_back_from_its_tensors():
    x, y, folds = line()
    head = regress(x, y, folds).head
    for one, two in zip(from_tensors(*to_tensors(head)).moments(x), head.moments(x), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_bad_targets_are_named():
    x, y, folds = line()
    with pytest.raises(BadTargets, match="NaN"):
        regress(x, y.index_fill(0, torch.tensor([3]), math.nan), folds)
    with pytest.raises(NoData, match="at least two"):
        regress(x[:1], y[:1], folds[:1])
    with pytest.raises(SizeMismatch):
        regress(x, y[:-1], folds)
