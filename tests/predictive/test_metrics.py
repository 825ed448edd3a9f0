"""Measures of predictions, against hand computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import posterity as pt
from posterity.errors import BadTargets
from posterity.predictive import Prediction


def labelled(n: int = 500, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits.softmax(-1), (logits + 2 * noise).argmax(-1)


def pairwise_auroc(low: Tensor, high: Tensor) -> float:
    """The chance that one of the second is greater than one of the first, ties by halves."""
    difference = high[:, None] - low[None, :]
    return float(((difference > 0).double() + 0.5 * (difference == 0).double()).mean())


def test_scores_by_hand():
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.3, 0.5], [0.9, 0.05, 0.05]], dtype=torch.float64)
    targets = torch.tensor([0, 2, 2, 0])
    found = pt.metrics.score(probs, targets)
    assert found.accuracy == 0.75
    assert found.nll == pytest.approx(-sum(map(math.log, (0.7, 0.3, 0.5, 0.9))) / 4)
    brier = (
        (0.3**2 + 0.2**2 + 0.1**2) + (0.1**2 + 0.6**2 + 0.7**2) + (0.2**2 + 0.3**2 + 0.5**2) + (0.1**2 + 2 * 0.05**2)
    )
    assert found.brier == pytest.approx(brier / 4)
    assert found.ece == pytest.approx((0.3 + 0.6 + 0.5 + 0.1) / 4, rel=1e-5)  # four bins of one
    # The wrong answer has confidence 0.6: less than two of the three right ones.
    assert found.calibration_auroc == pytest.approx(2 / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_agree_with_plain_loops(dtype):
    probs, targets = labelled()
    probs = probs.to(dtype)
    found = pt.metrics.score(probs, targets)
    confidence, labels = probs.double().max(-1)
    right = labels == targets
    ece = 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        if inside.any():
            ece += float(inside.double().mean() * (right[inside].double().mean() - confidence[inside].mean()).abs())
    assert found.ece == pytest.approx(ece, rel=1e-5)
    assert found.accuracy == pytest.approx(float(right.double().mean()), rel=1e-6)
    assert found.calibration_auroc == pytest.approx(
        pairwise_auroc(1 - confidence[right], 1 - confidence[~right]), rel=1e-5
    )
    assert 0.3 < found.accuracy < 0.9


def test_a_probability_a_hair_above_one_is_not_taken_for_a_logit():
    probs, targets = labelled()
    probs = probs.float()
    probs[0] = torch.tensor([1.0 + 1e-6, 0, 0, 0, 0])
    rounded = probs.clone()
    rounded[0, 0] = 1
    found, expected = pt.metrics.score(probs, targets), pt.metrics.score(rounded, targets)
    assert found.ece == pytest.approx(expected.ece, abs=1e-6)
    assert found.calibration_auroc == pytest.approx(expected.calibration_auroc, abs=1e-6)


def test_a_certain_mistake_costs_much_and_not_everything():
    found = pt.metrics.score(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 0]))
    assert math.isfinite(found.nll)
    assert found.nll > 40


def test_calibration_auroc_is_not_claimed_where_all_answers_are_alike():
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
    assert math.isnan(pt.metrics.score(probs, torch.tensor([0, 0])).calibration_auroc)
    assert math.isnan(pt.metrics.score(probs, torch.tensor([1, 1])).calibration_auroc)


def test_labels_of_any_integer_type_serve():
    probs, targets = labelled()
    assert pt.metrics.score(probs, targets.int()) == pt.metrics.score(probs, targets)


def test_labels_may_be_an_array_or_the_names_of_a_predictions_classes():
    probs, y = labelled(classes=3)
    names, rows = ("cup", "pen", "box"), torch.zeros(len(y))
    prediction = Prediction(probs, rows, rows, pt.Categorical(), probs, names=names)
    words, wanted = [names[label] for label in y.tolist()], pt.metrics.score(probs, y)
    for found, labels in ((probs, y.numpy()), (probs, y.tolist()), (prediction, words), (prediction, np.array(words))):
        assert pt.metrics.score(found, labels) == wanted
        assert pt.metrics.selective_accuracy(found, labels, 1.0) == pytest.approx(wanted.accuracy, abs=1e-6)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["cup"] * 5, r"give the prediction itself, score\(fit.predict\(x\), labels\)"),
        ([0, 1, 2, 3, 0], "labels go from 0 to 3; classes are 0 to 2"),
        ([0, 1], "5 rows of probabilities and 2 labels"),
    ],
)
def test_labels_that_are_none_of_the_classes_are_refused_by_name(labels, said):
    with pytest.raises(BadTargets, match=said):
        pt.metrics.score(torch.full((5, 3), 1 / 3), labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ood_auroc_counts_ties_by_halves(dtype):
    inside, outside = torch.tensor([0.0, 1, 1, 2]).to(dtype), torch.tensor([1.0, 2, 3]).to(dtype)
    assert pt.metrics.ood_auroc(inside, outside) == pytest.approx(pairwise_auroc(inside, outside))
    assert pt.metrics.ood_auroc(inside, inside) == pytest.approx(0.5)
    assert pt.metrics.ood_auroc(torch.ones(3), torch.ones(4)) == pytest.approx(0.5)
    assert pt.metrics.ood_auroc(torch.zeros(3), torch.ones(4)) == 1.0
    assert pt.metrics.ood_auroc(torch.ones(3), torch.zeros(4)) == 0.0


def test_ood_auroc_is_one_of_ranks_whatever_the_scale():
    generator = torch.Generator().manual_seed(0)
    inside, outside = torch.randn(200, generator=generator).double(), 1 + torch.randn(150, generator=generator).double()
    expected = pairwise_auroc(inside, outside)
    for scale in (1e-300, 1.0, 1e300):
        assert pt.metrics.ood_auroc(inside * scale, outside * scale) == pytest.approx(expected, rel=1e-6)


def test_selective_accuracy_keeps_the_surest():
    probs = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55]])
    targets = torch.tensor([0, 1, 1, 0])
    found = [pt.metrics.selective_accuracy(probs, targets, coverage) for coverage in (0.01, 0.25, 0.5, 0.75, 1.0)]
    assert found == pytest.approx([1.0, 1.0, 1.0, 2 / 3, 0.5])
    for coverage in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="coverage lies above 0"):
            pt.metrics.selective_accuracy(probs, targets, coverage)


def test_reliability_bins_hold_everything_and_add_up_to_the_calibration_error():
    probs, targets = labelled()
    found = pt.metrics.reliability(probs, targets)
    assert sum(found.share) == pytest.approx(1)
    assert list(found.confidence) == sorted(found.confidence)
    gap = sum(s * abs(a - c) for s, a, c in zip(found.share, found.accuracy, found.confidence, strict=True))
    assert gap == pytest.approx(pt.metrics.score(probs, targets).ece, rel=1e-5)
    accuracy = sum(s * a for s, a in zip(found.share, found.accuracy, strict=True))
    assert accuracy == pytest.approx(pt.metrics.score(probs, targets).accuracy, rel=1e-6)


def test_reliability_by_hand():
    probs = torch.tensor([[1.0, 0.0], [0.95, 0.05], [0.55, 0.45], [0.4, 0.6]], dtype=torch.float64)
    found = pt.metrics.reliability(probs, torch.tensor([0, 1, 0, 0]), bins=10)
    assert found.confidence == pytest.approx((0.55, 0.6, 0.975))
    assert found.accuracy == pytest.approx((1.0, 0.0, 0.5))
    assert found.share == pytest.approx((0.25, 0.25, 0.5))
