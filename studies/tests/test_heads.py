"""Heads on few rows: nothing is lost in their span, and the structured posterior is exact where it should be."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from posterity.curvature import Categorical
from posterity.kernel.mode import Observations, shared_mode
from posterity.workflow import posterior
from posterity_studies.shared.many_classes import _fitted, structured_head
from posterity_studies.shared.softmax_regression import Refits, Span, descend, fit, folds_of, with_one


def data(classes, n=24, features=40, seed=0):
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    centres = torch.randn(classes, features, generator=draw)
    return centres[y] + 1.5 * torch.randn(n, features, generator=draw), y


def test_head_is_the_minimum_of_its_objective():
    x, y = data(3)
    span = Span.of(x)
    head = fit(span.rows, span.lengths, y, 3, 2.0)
    p = (span.rows @ head).softmax(-1)
    gradient = span.rows.mT @ (p - torch.nn.functional.one_hot(y, 3)) + 2.0 * head
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-4, rtol=0)


def test_span_keeps_lengths_and_angles_of_other_inputs():
    x, _ = data(3)
    new = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    span = Span.of(x)
    torch.testing.assert_close(span.coordinates(new) @ span.rows.mT, with_one(new) @ with_one(x).mT)
    whole = span.coordinates(new).square().sum(-1) + span.beyond(new).square()
    torch.testing.assert_close(whole, with_one(new).square().sum(-1))


def test_library_predicts_the_same_from_coordinates_as_from_features():
    x, y = data(3)
    new = torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    span = Span.of(x, bias=False)
    found = []
    for train, test in ((x, new), (span.reduced(x), span.reduced(new))):
        model = nn.Sequential(OrderedDict(fc=nn.Linear(train.shape[1], 3)))
        made = posterior(model, (train, y), blocks=["fc"]).predict(test)
        found.append(made.probs)
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-3)


def test_structured_posterior_is_exact_for_two_classes():
    x, y = data(2)
    span, precision = Span.of(x), 3.0
    head = _fitted(span, y, 2, precision, None)
    whole = with_one(x)
    latent = shared_mode(whole @ whole.mT / precision, Observations(torch.zeros(len(y), 2).double(), Categorical(), y))
    new = torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    cross = whole @ with_one(new).mT / precision
    torch.testing.assert_close(span.coordinates(new) @ head.weights, latent.mean(cross), atol=1e-4, rtol=0)
    difference = torch.tensor([1.0, -1.0]).double()
    exact = latent.covariance(cross, with_one(new).square().sum(-1) / precision)
    size = span.coordinates(new).square().sum(-1) + span.beyond(new).square()
    ours = head._variances(span.coordinates(new), size)[:, 0] * 2
    torch.testing.assert_close(ours, exact @ difference @ difference, atol=0, rtol=1e-4)


def test_structured_head_predicts_better_than_chance_and_finds_strangers():
    x, y = data(6, n=60)
    head = structured_head(x, y)
    new, truth = data(6, n=60)[0] + 0.5 * torch.randn(60, 40, generator=torch.Generator().manual_seed(2)), y
    nll = -head.predict(new)[torch.arange(60), truth].log().mean()
    assert 0 < float(nll) < 1.0
    assert 0 < head.nll < 1.79

    def entropy(z):
        p = head.predict(z, tempered=False)
        return float(-(p * p.log()).sum(-1).mean())

    assert entropy(10 * torch.randn(60, 40, generator=torch.Generator().manual_seed(3))) > entropy(new)


def test_folds_have_all_classes_and_refits_have_not_seen_theirs():
    x, y = data(3, n=30)
    folds = folds_of(y, 5)
    assert torch.equal(folds.bincount(), torch.full((5,), 6))
    assert all(torch.equal(y[folds == f].bincount(), torch.full((3,), 2)) for f in range(5))
    refits = Refits(Span.of(x), y, 5)
    before = refits.outputs(2)
    changed = y.clone()
    changed[refits.folds == 0] = (y[refits.folds == 0] + 1) % 3
    other = Refits(Span.of(x), changed, 5)
    other.folds = refits.folds
    torch.testing.assert_close(other.outputs(2)[refits.folds == 0], before[refits.folds == 0])


@pytest.mark.parametrize(("least", "found"), [(3, 3), (-20, -6), (20, 10)])
def test_descent_ends_at_the_least_place_or_at_the_edge(least, found):
    assert descend(lambda k: (k - least) ** 2, 2, -6, 10) == found
