"""Closed forms of E softmax(f), f normal, against averages over many draws."""

from __future__ import annotations

from functools import cache

import pytest
import torch

import posterity as pt
from posterity.kernel import link
from posterity.kernel.latent import LINKS


def normals(classes: int, spread: float, n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(classes)
    mean = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    root = torch.randn(n, classes, classes, generator=generator, dtype=torch.float64) * (spread / classes) ** 0.5
    return mean, root @ root.mT


# Mean total variation from the average of draws at variances of about one: measured, and half as much again.
ALLOWED = {
    ("probit", 2): 0.04,
    ("probit", 5): 0.07,
    ("probit", 30): 0.1,
    ("pairwise", 2): 0.004,
    ("pairwise", 5): 0.05,
    ("pairwise", 30): 0.13,
    ("bridge", 2): 0.06,
    ("bridge", 5): 0.33,
    ("bridge", 30): 0.42,
}


@cache
def average_of_draws(classes: int) -> torch.Tensor:
    """The costly side, once for all links."""
    dice = torch.Generator().manual_seed(0)
    return link(*normals(classes, 1.0), pt.Categorical(), "sampled", samples=5000, generator=dice)


@pytest.mark.parametrize("classes", [2, 5, 30])
@pytest.mark.parametrize("kind", ["probit", "pairwise", "bridge"])
def test_closed_forms_are_near_the_average_of_draws(classes, kind):
    closed = link(*normals(classes, 1.0), pt.Categorical(), kind)
    assert float((closed - average_of_draws(classes)).abs().sum(-1).mean()) / 2 < ALLOWED[kind, classes]


def test_two_classes_by_pairs_are_a_logistic_of_the_difference():
    mean, covariance = normals(2, 4.0)
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    expected = ((mean[:, 0] - mean[:, 1]) / (1 + torch.pi / 8 * variance).sqrt()).sigmoid()
    torch.testing.assert_close(link(mean, covariance, pt.Categorical(), "pairwise")[:, 0], expected)


@pytest.mark.parametrize("kind", LINKS)
def test_probabilities_sum_to_one_and_certain_outputs_are_their_softmax(kind):
    mean, covariance = normals(4, 2.0)
    probs = link(mean, covariance, pt.Categorical(), kind, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(probs.sum(-1), torch.ones(len(mean), dtype=torch.float64))
    if kind != "bridge":
        torch.testing.assert_close(link(mean, 0 * covariance, pt.Categorical(), kind), mean.softmax(-1))


@pytest.mark.parametrize("kind", LINKS)
def test_what_is_common_to_all_classes_changes_nothing(kind):
    mean, covariance = normals(4, 2.0)
    first = link(mean, covariance, pt.Categorical(), kind, generator=torch.Generator().manual_seed(0))
    second = link(mean + 3, covariance + 50, pt.Categorical(), kind, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)
