"""Certificates of folds: few examples, a new head, and nothing that has seen what it is tested by."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.data.provenance import Provenance
from posterity.errors import BadAudit, NoData, Overlap, UnknownPast, WrongChoice
from posterity.pacbayes import clopper_pearson

CENTRES = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])


def blobs(n: int, seed: int, classes: int):
    dice = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=dice)
    return CENTRES[y] + 0.5 * torch.randn(n, 2, generator=dice), y


@pytest.fixture(scope="module")
def learned():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 4))
    options = {"training": {"epochs": 60, "lr": 0.02}, "scales": "bayes", "progress": False}
    return model, pt.learn(model, blobs(120, 1, 4), **options).posterior


def with_new_head(model):
    torch.manual_seed(0)
    return nn.Sequential(*copy.deepcopy(model)[:2], nn.Linear(12, 3))


def folds(learned, data, **options):
    model, prior = learned
    dice = torch.Generator().manual_seed(0)
    given = {"folds": 2, "learner": "adapt", "generator": dice, "progress": False} | options
    return pt.certify_folds(with_new_head(model), prior, data, **given)


FEW = blobs(40, 2, 3)


@pytest.fixture(scope="module")
def found(learned):
    return folds(learned, FEW)


def test_with_a_new_head_folds_say_something_where_the_prior_says_nothing(found):
    assert found.certificate.bound < 0.35
    assert found.certificate.holdout.bound > 0.6  # the prior's mean, which knows no class


def test_the_bound_is_the_mean_of_the_bounds_of_each_fit(found):
    c = found.certificate
    assert [n for _, n in c.folds] == [20, 20]
    expected = sum(clopper_pearson(errors, 20, 0.05 / 2) for errors, _ in c.folds) / 2
    assert c.bound == pytest.approx(expected, rel=1e-12)
    assert c.bound == pytest.approx(c.recomputed(), rel=1e-12)
    assert c.with_more(2) < c.bound
    assert "of 20" in str(c)


def test_it_holds_for_fresh_examples_and_predicts_by_one_of_the_fits(found):
    x, y = blobs(1000, 3, 3)
    drawn = found.predict(x, torch.Generator().manual_seed(0))
    assert float((drawn != y).double().mean()) <= found.certificate.bound
    every = torch.stack([fit.predict(x).probs.argmax(1) for fit in found.fits])
    assert bool((every == drawn).any(0).all())


@pytest.mark.slow
def test_a_network_that_was_trained_on_the_data_changes_nothing_and_is_not_changed(learned, found):
    model, prior = learned
    trained = with_new_head(model)
    pt.train(trained, FEW, None, validation=None, epochs=30, lr=0.05, progress=False)
    before = {k: v.clone() for k, v in trained.state_dict().items()}
    dice = torch.Generator().manual_seed(0)
    again = pt.certify_folds(trained, prior, FEW, folds=2, learner="adapt", generator=dice, progress=False)
    assert again.certificate.folds == found.certificate.folds
    assert all(torch.equal(v, before[k]) for k, v in trained.state_dict().items())


@pytest.mark.slow
def test_a_fit_that_was_stopped_by_its_part_is_refused(learned):
    with pytest.raises(Overlap, match="a fit was learned from"):
        folds(learned, FEW, learner="learn", training={"validation": FEW, "epochs": 1})


def test_options_that_bring_in_other_data_are_refused(learned):
    with pytest.raises(ValueError, match="must stay unseen"):
        folds(learned, FEW, validation=FEW)


def test_priors_that_have_seen_the_examples_or_may_have_are_refused(learned):
    model, prior = learned
    with pytest.raises(Overlap):
        pt.certify_folds(model, prior, blobs(120, 1, 4), head="keep", folds=2, learner="adapt", progress=False)
    unknown = prior.with_provenance(Provenance.unknown("a stranger's"))
    with pytest.raises(UnknownPast):
        folds((model, unknown), FEW)


def test_copies_are_in_one_part_and_count_once(learned):
    x, y = FEW
    found = folds(learned, (torch.cat((x, x[:2])), torch.cat((y, y[:2])))).certificate
    assert found.n == len(x)
    assert sum(n for _, n in found.folds) == len(x)


def test_what_makes_no_folds_is_refused(learned):
    with pytest.raises(ValueError, match="at least 2 folds"):
        folds(learned, FEW, folds=1)
    with pytest.raises(NoData, match="cannot be cut"):
        folds(learned, blobs(3, 2, 3), folds=4)
    with pytest.raises(WrongChoice, match="classes alone"):
        folds(learned, FEW, likelihood=pt.Bernoulli())


def test_its_record_is_audited(found):
    c = found.certificate
    assert pt.Certificate.from_json(c.to_json()) == c
    raw = json.loads(c.to_json())
    parts = [list(part) for part in c.folds]
    fewer = [[max(0, errors - 1), n] for errors, n in parts]
    for change in (
        {"folds": fewer if fewer != parts else [[errors + 1, n] for errors, n in parts]},
        {"folds": [[0, 40]]},
        {"folds": []},
        {"errors": c.errors + 1},
        {"rule": "binomial"},
        {"folds": [[21, 20], *parts[1:]]},
        {"predictor": "the network at the prior's mean"},
        {"folds": [parts[0], 7]},
    ):
        with pytest.raises(BadAudit):
            pt.Certificate.from_json(json.dumps(raw | change))


def test_records_from_before_there_were_folds_are_read():
    torch.manual_seed(0)
    model = nn.Linear(2, 3)
    prior = pt.isotropic(model, 1.0)
    c = pt.certify(model, prior, prior, blobs(30, 2, 3), progress=False)
    raw = json.loads(c.to_json())
    assert raw.pop("folds") == []
    assert pt.Certificate.from_json(json.dumps(raw)) == replace(c, folds=())
