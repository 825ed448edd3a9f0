"""Examples that belong together: certificates by groups hold on new groups, and without groups the order is looked at."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from experiments import DELTAS, too_many
from recordings import PATHS, RECORDINGS, WINDOWS, Recordings, violations
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import posterity as pt
from posterity.data.batches import Batch
from posterity.errors import BadAudit, BadData, DependentExamples
from posterity.pacbayes import Certificate, clopper_pearson, klinv
from posterity.pacbayes.bounds import count_bound
from posterity.pacbayes.examples import CertificateData
from posterity.pacbayes.gibbs import counted
from posterity.pacbayes.regression import certify_clipped


@pytest.mark.parametrize("path", PATHS)
def test_with_groups_no_path_is_violated_more_often_than_delta(path):
    trials = 3 if path in ("folds", "recursive", "split") else 12
    for delta, found in zip(DELTAS, violations(path, 20, trials), strict=True):
        assert not too_many(found, trials, delta)


@pytest.mark.slow
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("path", PATHS)
def test_with_groups_no_path_is_violated_more_often_than_delta_in_fifty_tasks(path, windows):
    for delta, found in zip(DELTAS, violations(path, windows, 50, 1000), strict=True):
        assert not too_many(found, 50, delta)


def test_windows_that_count_as_examples_are_caught():
    """The same recordings without groups: violated far too often, and each time the order gave it away."""
    broken, trials = 0, 20
    for seed in range(trials):
        case = Recordings(seed, 60)
        with pytest.warns(DependentExamples, match="give groups="):
            found = case.certify(case.prior, 0.05, groups=None)
        broken += case.risk_at(case.prior.mean[""]) > found.holdout.bound
        assert any("windows of one recording" in check for check in found.checks)
    assert too_many(broken, trials, 0.05)


def windows_of(recordings: int, each: int, own: float = 0.3):
    """Labels that no input tells, one for each recording; recording by recording."""
    dice = torch.Generator().manual_seed(1)
    x = (1 - own) ** 0.5 * torch.randn(recordings, 1, 6, generator=dice) + own**0.5 * torch.randn(
        recordings, each, 6, generator=dice
    )
    y = torch.randint(2, (recordings,), generator=dice)
    return x, y[:, None].expand(recordings, each)


def test_windows_that_come_in_turns_and_stacked_copies_stand_evenly_apart():
    x, y = windows_of(20, 10)
    in_turns = x.transpose(0, 1).flatten(0, 1), y.T.flatten()
    with pytest.warns(DependentExamples, match=r"exactly (20|40|60) places apart"):
        CertificateData.of(in_turns)
    dice = torch.Generator().manual_seed(2)
    x, y = torch.randn(60, 6, generator=dice), torch.randint(2, (60,), generator=dice)
    # Too noisy for a gap in the distances.
    copied = torch.cat([x + 0.5 * torch.randn(x.shape, generator=dice) for _ in range(5)]), y.repeat(5)
    with pytest.warns(DependentExamples, match=r"exactly (60|120) places apart"):
        assert CertificateData.of(copied).n == 300


@pytest.mark.parametrize("size", [1, 2, 10])
def test_groups_that_part_what_belongs_together_are_warned_of(size, recwarn):
    x, y = windows_of(20, 10)
    found = CertificateData.of((x.flatten(0, 1), y.flatten()), groups=torch.arange(200) // size)
    assert bool(found.notes) == (size < 10)
    assert [one.category for one in recwarn] == [DependentExamples] * (size < 10)


def test_the_certificate_of_a_split_says_that_the_order_betrayed_dependence():
    x, y = windows_of(20, 10)
    data = x.flatten(0, 1), y.flatten()
    with pytest.warns(DependentExamples):
        refined = pt.split_prior(nn.Linear(6, 2), data, training={"epochs": 1}, temperatures=(), progress=False)
    with pytest.warns(DependentExamples):
        found = refined.certify(progress=False)
    assert any("windows of one recording" in check for check in found.checks)


def test_one_window_a_recording_is_one_example():
    """Groups of one example are counted as means in [0, 1], never below what Clopper and Pearson say."""
    case = Recordings(0, 1)
    alone, grouped = (case.certify(case.prior, 0.05, groups=groups) for groups in (None, case.groups))
    assert (alone.n, grouped.n) == (RECORDINGS, RECORDINGS)
    assert alone.errors == pytest.approx(grouped.errors)
    assert grouped.bound >= alone.bound == clopper_pearson(int(alone.errors), RECORDINGS, 0.05)


def test_a_group_counts_once_whatever_its_size():
    """Ninety windows of one recording weigh what ten of another do: the bound is that of the two means."""
    model = nn.Linear(2, 2).double()
    prior = pt.isotropic(model, 1e12, mean={"": torch.tensor([[0.0, 0, 0], [1, 0, 0]]).double()}, vouched="by hand")
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)).double()
    y = (x[:, 0] > 0).long()
    y[:90] = 1 - y[:90]
    groups = torch.tensor([7] * 90 + [-3] * 10)
    found = pt.certify(model, prior, prior, (x, y), groups=groups, progress=False)
    assert (found.n, found.examples, found.gibbs) == (2, 100, pytest.approx(0.5))
    assert found.holdout.error == pytest.approx(0.5)


def test_the_certificate_says_what_it_assumes_and_its_record_carries_it(tmp_path):
    case = Recordings(1, 5)
    found = case.certify(case.prior, 0.05)
    assert f"independent groups ({RECORDINGS} groups of 50 examples)" in str(found)
    found.save(tmp_path / "c.json")
    again = Certificate.from_json((tmp_path / "c.json").read_text())
    assert again == found
    assert (again.unit, again.assumes) == ("group", found.assumes)
    # A record that says examples where groups were counted does not follow.
    if found.errors != int(found.errors):
        with pytest.raises(BadAudit):
            Certificate.from_json(json.dumps(json.loads(found.to_json()) | {"unit": "example"}))
    independent = pt.certify(case.model, case.prior, case.prior, case.more(30, 1)[0], progress=False)
    assert any(text.startswith("independent examples") for text in independent.assumes)
    assert any("no label of these examples was used before" in text for text in independent.assumes)


def test_groups_that_do_not_fit_are_refused():
    case = Recordings(2, 5)
    for bad in (case.groups[:-1], case.groups.double(), [0] * 50):
        with pytest.raises(BadData, match="groups"):
            case.certify(case.prior, 0.05, groups=bad)


def test_a_split_keeps_groups_whole():
    case = Recordings(3, 20)
    refined = pt.split_prior(case.model, case.data, training={"epochs": 1}, temperatures=(), **case.quiet)
    assert len(refined.groups.unique()) == RECORDINGS // 2
    assert len(refined.groups) == len(refined.rest[1]) == RECORDINGS // 2 * 20
    assert refined.certify(progress=False).n == RECORDINGS // 2


def test_folds_and_recursion_count_groups_in_their_records():
    case = Recordings(4, 5)
    found = pt.pacbayes.recursive_certificate(
        case.model, case.prior, case.data, chunks=2, epochs=1, updates=1, passes=3, **case.quiet
    ).certificate
    assert [step.n for step in found.steps] == [RECORDINGS, RECORDINGS // 2]
    assert [step.replicates for step in found.steps] == [150, 75]
    assert "independent groups" in str(found)
    source = pt.learn(case.model, case.more(60, 1)[0], training={"epochs": 2}, progress=False).posterior
    folds = pt.certify_folds(case.model, source, case.data, head="new", learner="adapt", folds=3, **case.quiet)
    assert sorted(n for _, n in folds.certificate.folds) == [3, 3, 4]
    assert Certificate.from_json(folds.certificate.to_json()) == folds.certificate


def test_a_clipped_regression_counts_groups():
    case = Recordings(5, 20)
    x = case.data[0]
    y = x.sum(1, keepdim=True)
    model = nn.Linear(2, 1).double()
    prior = pt.isotropic(model, 1.0)
    options = {"passes": 2, "generator": torch.Generator().manual_seed(0)}
    found = certify_clipped(model, prior, prior, (x, y), 4.0, groups=case.groups, **options)
    assert (found.n, found.replicates) == (RECORDINGS, 2 * 200)
    assert any("independent groups" in text for text in found.assumes)


# --- the pure numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_the_bound_of_means_is_violated_no_more_often_than_delta(spread):
    """Means of groups from constant to all-or-nothing, with the same expectation."""
    dice = torch.Generator().manual_seed(0)
    n, trials, risk = 12, 300, 0.3
    coins = (torch.rand(trials, n, generator=dice) < risk).double()
    values = (1 - spread) * torch.rand(trials, n, generator=dice).double() * 2 * risk + spread * coins
    expected = (1 - spread) * risk + spread * risk
    means = values.mean(1)
    for delta in DELTAS:
        bounds = {m: count_bound(m, n, delta, grouped=True) for m in set(means.tolist())}
        assert not too_many(sum(bounds[m] < expected for m in means.tolist()), trials, delta)


def test_the_bound_of_means_is_the_lesser_of_two_that_hold():
    for error in (0.0, 0.13, 0.5, 1.0):
        found = count_bound(error, 20, 0.05, grouped=True)
        whole = math.ceil(20 * error - 1e-9)
        assert found == min(klinv(error, math.log(20) / 20), clopper_pearson(whole, 20, 0.05 / math.e))
        assert found >= count_bound(error, 20, 0.05) - 1e-12 or error * 20 % 1


def test_uneven_weights_count_for_as_many_replicates_as_the_largest_allows():
    """E exp(−λ Σ w X) is never above that of so many even ones: so klinv holds for the weighted mean."""
    p = 0.3
    for weights in (torch.full((6,), 1 / 6), torch.tensor([0.5, 0.25, 0.125, 0.125]), torch.tensor([0.9, 0.1])):
        m = 1 / float(weights.max())
        for lam in (0.1, 1.0, 5.0, 20.0):
            uneven = sum(math.log1p(p * math.expm1(-lam * w)) for w in weights.tolist())
            assert uneven <= m * math.log1p(p * math.expm1(-lam / m)) + 1e-9
    batch = Batch((torch.zeros(4, 1),), {}, torch.zeros(4))
    held = [(batch, torch.tensor([0.1, 0.2, 0.3, 0.4]).double())]
    assert (counted(held, 10, per_example=True), counted(held, 10, per_example=False)) == (25, 10)


def test_more_groups_of_the_same_error_make_the_bound_smaller():
    case = Recordings(6, 5)
    found = case.certify(case.prior, 0.05)
    assert found.with_more(2) < found.bound
    assert "more groups" in found.advice
    assert replace(found, n=found.n).recomputed() == found.bound


@pytest.mark.parametrize("sampler", ["at random", "by number"])
def test_groups_of_data_that_comes_in_another_order_each_time_are_refused(sampler):
    case, first = Recordings(7, 5), torch.arange(25)
    own = SubsetRandomSampler(first.tolist()) if sampler == "at random" else first.tolist()
    loader = DataLoader(TensorDataset(*case.data), 10, sampler=own)
    certify = partial(pt.certify, case.model, case.prior, case.prior, progress=False)
    if sampler == "by number":
        assert certify(loader, groups=case.groups[:25]).n == 5
    else:
        with pytest.raises(BadData, match="another order"):
            certify(loader, groups=case.groups[:25])
    # Of a loader that shuffles all of it, groups are in the order of its dataset.
    shuffled = DataLoader(TensorDataset(*case.data), 10, shuffle=True)
    assert certify(shuffled, groups=case.groups) == certify(case.data, groups=case.groups)
