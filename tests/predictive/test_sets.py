"""Sets and intervals from left-out predictions: their definitions by brute force, and their coverage in simulations."""

import math

import pytest
import torch

from posterity.errors import BadData, SizeMismatch
from posterity.predictive.sets import (
    class_sets,
    cumulative,
    improbability,
    left_out_intervals,
    left_out_sets,
    split_intervals,
    split_threshold,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ridge(x, y):
    return torch.linalg.solve(x.T @ x + 0.1 * torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)


def regression(n, seed, folds, dims=4, groups=None):
    """Left-out residuals and fold predictions of a ridge regression, with one new input and its target.

    With groups, examples of one group share a shift of their target, and the new example is of a new group.
    """
    x, noise = normal(n + 1, dims, seed=seed), normal(n + 1, seed=seed + 10**6)
    y = x.sum(1) + noise
    if groups is not None:
        shift = normal(int(groups.max()) + 2, seed=seed + 2 * 10**6)
        y = x.sum(1) + 0.3 * noise + 2 * shift[torch.cat((groups, groups.max()[None] + 1))]
    residuals, new = torch.empty(n, dtype=x.dtype), torch.empty(int(folds.max()) + 1, 1, dtype=x.dtype)
    for fold in range(len(new)):
        out = folds == fold
        weights = ridge(x[:n][~out], y[:n][~out])
        residuals[out], new[fold] = (y[:n][out] - x[:n][out] @ weights).abs(), x[n:] @ weights
    return residuals, new, float(y[n])


def covered(interval, y):
    return bool(interval[0, 0] <= y <= interval[0, 1])


@pytest.mark.parametrize("folds", [torch.arange(30), torch.arange(30) % 5], ids=["jackknife+", "cv+"])
def test_intervals_hold_the_truth_about_as_often_as_asked(folds):
    found = [regression(30, seed, folds) for seed in range(250)]
    reached = sum(covered(left_out_intervals(r, new, folds, 0.8), y) for r, new, y in found) / 250
    assert 0.75 < reached < 0.90  # standard error 0.025


def test_minmax_holds_the_truth_at_least_as_often_as_asked_and_contains_the_plus_interval():
    folds, hits = torch.arange(30) % 5, 0
    for seed in range(120):
        residuals, new, y = regression(30, seed, folds)
        plus, wide = (left_out_intervals(residuals, new, folds, 0.8, kind=kind) for kind in ("plus", "minmax"))
        assert wide[0, 0] <= plus[0, 0] + 1e-12
        assert plus[0, 1] <= wide[0, 1] + 1e-12
        hits += covered(wide, y)
    assert 0.74 < hits / 120 < 0.98


def test_jackknife_plus_is_the_order_statistic_of_its_definition():
    residuals, new, _ = regression(19, 3, torch.arange(19))
    found = left_out_intervals(residuals, new, torch.arange(19), 0.9)
    rank = math.ceil(0.9 * 20)
    upper = (new[:, 0] + residuals).sort().values[rank - 1]
    lower = -(residuals - new[:, 0]).sort().values[rank - 1]
    torch.testing.assert_close(found[0], torch.stack((lower, upper)), rtol=0, atol=0)


def test_groups_are_covered_where_single_examples_promise_too_much():
    groups = torch.arange(60) // 6
    reached = {}
    for name, given, folds in (("groups", groups, groups), ("examples", None, torch.arange(60))):
        found = [regression(60, seed, folds, groups=groups) for seed in range(150)]
        reached[name] = (
            sum(covered(left_out_intervals(r, new, folds, 0.8, groups=given), y) for r, new, y in found) / 150
        )
    assert 0.77 < reached["groups"] < 0.92
    assert reached["examples"] < reached["groups"] - 0.02


def test_groups_of_one_are_no_groups():
    residuals, new, _ = regression(25, 1, torch.arange(25))
    alone = left_out_intervals(residuals, new, torch.arange(25), 0.8, groups=torch.arange(25))
    torch.testing.assert_close(alone, left_out_intervals(residuals, new, torch.arange(25), 0.8), rtol=0, atol=0)


def test_intervals_are_wider_where_the_predictor_is_less_sure():
    residuals, new = torch.ones(30).double(), torch.zeros(30, 2).double()
    deviations = torch.tensor([[1.0, 3.0]]).double().expand(30, 2)
    found = left_out_intervals(residuals, new, torch.arange(30), 0.8, deviations=deviations)
    torch.testing.assert_close(found, torch.tensor([[-1.0, 1.0], [-3.0, 3.0]]).double(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["plus", "minmax"])
def test_too_few_examples_for_the_coverage_give_everything(kind):
    """Ninety-five per cent cannot be had from ten examples."""
    ends = left_out_intervals(torch.ones(10), torch.zeros(10, 3), torch.arange(10), 0.95, kind=kind)
    assert torch.isinf(ends).all()
    probs = torch.full((10, 3), 1 / 3)
    assert left_out_sets(
        probs, torch.zeros(10).long(), probs.expand(10, 10, 3), torch.arange(10), 0.95, kind=kind
    ).all()


def classified(n, seed, folds, score, kind="plus", coverage=0.8):
    """Three classes around the corners of a triangle; each fold's predictor knows the means of its examples only."""
    corners = torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]], dtype=torch.float64)
    y = torch.arange(n + 1) % 3
    y[n] = seed % 3
    x = corners[y] + normal(n + 1, 2, seed=seed)
    left_out, new = torch.empty(n, 3).double(), torch.empty(int(folds.max()) + 1, 1, 3).double()
    for fold in range(len(new)):
        out = folds == fold
        means = torch.stack([x[:n][~out & (y[:n] == c)].mean(0) for c in range(3)])
        probs = (-torch.cdist(x, means).square() / 2).softmax(-1)
        left_out[out], new[fold] = probs[:n][out], probs[n:]
    return bool(left_out_sets(left_out, y[:n], new, folds, coverage, score=score, kind=kind)[0, y[n]])


@pytest.mark.parametrize("score", [improbability, cumulative])
@pytest.mark.parametrize("folds", [torch.arange(30), torch.arange(30) // 3 % 5], ids=["leave-one-out", "five folds"])
def test_sets_hold_the_truth_about_as_often_as_asked(folds, score):
    reached = sum(classified(30, seed, folds, score) for seed in range(150)) / 150
    assert 0.70 < reached < 0.91  # standard error 0.033


def test_a_set_is_what_its_definition_says():
    generator = torch.Generator().manual_seed(0)
    left_out = torch.rand(12, 4, generator=generator).double().softmax(-1)
    new = torch.rand(3, 5, 4, generator=generator).double().softmax(-1)
    targets, folds = torch.arange(12) % 4, torch.arange(12) % 3
    found = left_out_sets(left_out, targets, new, folds, 0.7)
    for m in range(5):
        for c in range(4):
            beaten = sum(1 - float(left_out[i, targets[i]]) < 1 - float(new[folds[i], m, c]) for i in range(12))
            likeliest = int(new.mean(0)[m].argmax()) == c
            assert bool(found[m, c]) == (beaten < 0.7 * 13 or likeliest)


def test_cumulative_scores_count_the_more_probable_and_half_their_own():
    scores = cumulative(torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64))
    torch.testing.assert_close(scores, torch.tensor([[0.9, 0.25, 0.65]], dtype=torch.float64), rtol=0, atol=1e-12)


def test_split_conformal_is_an_order_statistic_and_covers():
    scores = torch.arange(1.0, 20.0)
    assert split_threshold(scores, 0.9) == 18
    assert split_threshold(scores[:5], 0.9) == math.inf
    hits = 0
    for seed in range(1000):
        draws = normal(40, seed=seed).abs()
        hits += bool(draws[-1] <= split_threshold(draws[:-1], 0.9))
    assert 0.87 < hits / 1000 < 0.93  # standard error 0.0095
    ends = split_intervals(torch.tensor([1.0]), torch.tensor([2.0]), 1.5)
    torch.testing.assert_close(ends, torch.tensor([[-2.0, 4.0]]))
    assert class_sets(torch.tensor([[0.6, 0.4]]), 0.1).tolist() == [[True, False]]


def test_what_cannot_be_is_said():
    probs, y = torch.full((4, 2), 0.5), torch.zeros(4).long()
    with pytest.raises(BadData, match="several folds"):
        left_out_sets(
            probs, y, probs[None].expand(2, 4, 2), torch.tensor([0, 1, 0, 1]), 0.5, groups=torch.zeros(4).long()
        )
    with pytest.raises(SizeMismatch, match="predictors 0 to 0"):
        left_out_sets(probs, y, probs[None], torch.arange(4), 0.5)
    with pytest.raises(BadData, match="not all finite"):
        left_out_intervals(torch.tensor([torch.nan, 1.0]), torch.zeros(2, 1), torch.arange(2), 0.5)
    with pytest.raises(BadData, match="there are none"):
        split_threshold(torch.empty(0), 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        split_threshold(torch.ones(3), 1.5)
