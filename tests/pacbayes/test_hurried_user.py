"""What a hurried but honest user does, and what the certificate then says: copies, many looks, small tables, plain words."""

from __future__ import annotations

import itertools

import pytest
import sklearn.datasets
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posterity as pt
from posterity.data.near_copies import among
from posterity.errors import BadTargets, Overlap
from posterity.pacbayes import Certificate, clopper_pearson
from posterity.pacbayes.examples import CertificateData, joined
from posterity.pacbayes.register import issued

QUICK = {"epochs": 3, "lr": 0.05}


def coins(n: int, seed: int, inputs: int = 6):
    """Labels that no input tells anything of: every network's risk is one half."""
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(n, inputs, generator=dice), torch.randint(2, (n,), generator=dice)


def noisy(data, times: int, seed: int, size: float = 0.05):
    """Every example so many times with a little noise, in one block after the other."""
    x, y = (part.repeat(times, *[1] * (part.ndim - 1)) for part in data)
    return x + size * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)), y


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def untrained(seed: int = 0, precision: float = 1.0):
    model = network(seed)
    return model, pt.isotropic(model, precision, mean="model", vouched="drawn at random")


# --- near copies -----------------------------------------------------------------------------------


def test_noisy_copies_count_once():
    model, prior = untrained()
    found = pt.certify(model, prior, prior, noisy(coins(40, 1), 10, 2), progress=False)
    assert (found.n, found.examples) == (40, 400)
    assert found.bound >= clopper_pearson(int(found.errors), 40, 0.05)
    assert any("40 families of near copies" in check for check in found.checks)


def test_a_split_after_augmenting_keeps_families_on_one_side():
    model = network()
    augmented = noisy(coins(40, 3), 10, 4)
    refined = pt.split_prior(model, augmented, training={"epochs": 60, "lr": 0.05}, progress=False)
    found = refined.certify(progress=False)
    assert (found.n, found.examples) == (20, 200)
    assert found.bound > 0.5  # labels are coins


def test_augmented_copies_counted_as_examples_are_caught():
    """Coins, copied ten times: the lesser errors of 40 look like those of 400, unless copies count once."""
    broken = held = 0
    for seed in range(20):
        model, prior = untrained(seed, 1e6)
        x, y = noisy(coins(40, 100 + seed), 10, seed)
        with torch.no_grad():
            wrong = int((model(x).argmax(1) != y).sum())
        broken += clopper_pearson(wrong, 400, 0.05) < 0.5
        held += pt.certify(model, prior, prior, (x, y), progress=False).bound < 0.5
    assert broken >= 5
    assert held <= 4


def test_independent_examples_are_no_copies_and_show_no_dependence():
    for seed, inputs in itertools.product(range(5), (2, 6, 40)):
        examples = CertificateData.of(coins(200, 50 + seed, inputs))
        assert examples.n == 200
        assert not examples.notes


def test_examples_sorted_by_class_show_no_dependence():
    x, y = coins(200, 7)
    x = x + 3 * y[:, None]
    order = y.argsort()
    assert not CertificateData.of((x[order], y[order])).notes


def test_what_belongs_together_by_either_belongs_together():
    a, b = torch.tensor([5, 5, 2, 3, 3, 9]), torch.tensor([0, 1, 1, 2, 3, 4])
    assert joined(a, b).tolist() == [0, 0, 0, 1, 1, 2]


AGAIN = {
    "standardised again": lambda x: (x - x.mean(0)) / x.std(0),
    "in another unit": lambda x: 2.54 * x,
    "without some rows, standardised again": lambda x: (x[6:] - x[6:].mean(0)) / x[6:].std(0),
    "with a little noise": lambda x: x + 0.02 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)),
    "rounded": lambda x: (100 * x).round() / 100,
}
"""What a hurried user does to rows that were learned from, before certifying with them."""


@pytest.fixture(scope="module")
def by_heart():
    """A fit that knows sixty coins by heart, and the coins."""
    x, y = coins(60, 30)
    fit = pt.learn(network(), (x, y), training={"epochs": 60, "lr": 0.05}, progress=False)
    assert int((fit.predict(x).probs.argmax(1) != y).sum()) < 15
    return fit, x, y


@pytest.mark.parametrize("how", AGAIN)
def test_rows_that_were_learned_from_are_known_again_in_other_numbers(by_heart, how):
    """Plain test data they are not: the bound on coins would be far below one half."""
    fit, x, y = by_heart
    again = AGAIN[how](x)
    y = y[-len(again) :]
    assert fit.certify((again, y), progress=False).predictor != "the fit itself"
    with pytest.raises(Overlap, match="near copies"):
        pt.certify(fit.model, fit.posterior, fit.posterior, (again, y), progress=False)
    found = pt.certify(fit.model, fit.posterior, fit.posterior, (again, y), vouched="other coins", progress=False)
    assert any("other coins" in check for check in found.checks)


def test_a_heads_features_are_known_again_in_another_unit():
    x, y = coins(60, 33)
    fit = pt.head(x, y)
    assert fit.certify((3 * x + 1, y), progress=False).predictor != "the fit itself"
    assert fit.certify(coins(60, 34), progress=False).predictor == "the fit itself"


def test_labels_as_a_table_of_zeros_and_ones_are_named(by_heart):
    fit, (x, y) = by_heart[0], coins(40, 32)
    with pytest.raises(BadTargets, match="argmax"):
        fit.certify((x, torch.nn.functional.one_hot(y)), progress=False)


def test_an_estimators_rows_are_known_again_before_they_are_standardised():
    x, y = coins(60, 31)
    x = 3 * x + 10
    model = pt.PosteriorClassifier(standardise=True, training=QUICK, random_state=0).fit(x.numpy(), y.numpy())
    assert model.fit_.certify((x, y), progress=False).predictor != "the fit itself"


@pytest.mark.parametrize("table", ["iris", "wine", "breast_cancer", "digits"])
def test_other_rows_of_the_same_table_are_not_taken_for_copies(table):
    x = torch.as_tensor(getattr(sklearn.datasets, f"load_{table}")().data).float()
    for seed in range(4):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        for known in (20, 60, len(x) // 2):
            assert not among(x[order[:known]].half().float(), x[order[known:]])
    assert among(x[:100], x[:100] + 1e-3 * x.std(0)) > 50


# --- many looks ------------------------------------------------------------------------------------


def test_a_loader_that_shuffles_gives_the_same_certificate_again():
    model, prior = untrained()
    wide = prior.tempered(0.5)
    loader = DataLoader(TensorDataset(*coins(80, 8)), 7, shuffle=True)
    first, *others = (pt.certify(model, wide, prior, loader, progress=False) for _ in range(3))
    assert all(other == first for other in others)
    x, y = coins(80, 8)
    flipped = pt.certify(model, wide, prior, DataLoader(TensorDataset(x.flip(0), y.flip(0)), 11), progress=False)
    assert flipped == first


@pytest.mark.parametrize("path", ["folds", "recursive", "few-shot"])
def test_the_order_of_the_examples_leaves_no_trace_in_other_certificates(path):
    model = network()
    prior = pt.learn(model, coins(60, 9), training=QUICK, progress=False).posterior
    x, y = coins(40, 10)
    found = []
    for data in ((x, y), (x.flip(0), y.flip(0))):
        if path == "folds":
            options = {"head": "new", "folds": 2, "learner": "adapt"}
            found.append(pt.certify_folds(model, prior, data, progress=False, **options).certificate)
        elif path == "recursive":
            options = {"chunks": 2, "epochs": 1, "updates": 1, "passes": 2}
            found.append(pt.pacbayes.recursive_certificate(model, prior, data, progress=False, **options).certificate)
        else:
            found.append(pt.pacbayes.sample_then_evaluate(model, prior, data, draws=3).certificate)
    assert found[0].bound == found[1].bound


def test_the_least_of_several_certificates_by_the_same_data_says_what_it_needs(monkeypatch):
    monkeypatch.setattr("posterity.pacbayes.register._ISSUED", [])
    model, prior = untrained()
    data = coins(80, 11)
    found = [pt.certify(model, prior.tempered(t), prior, data, progress=False) for t in (1.0, 0.5, 0.25)]
    assert [c.issued for c in found] == [1, 2, 3]
    assert "the least of them needs grid=3" in str(found[2])
    assert "needs grid=" not in str(found[0])
    # Who asks again has not looked once more; who leaves out an example has.
    assert pt.certify(model, prior.tempered(0.5), prior, data, progress=False) == found[1]
    fewer = pt.certify(model, prior, prior, tuple(part[1:] for part in data), progress=False)
    assert fewer.issued == 4
    assert pt.certify(model, prior, prior, coins(80, 12), progress=False).issued == 1
    assert Certificate.from_json(found[2].to_json()).issued == 3


def test_untrained_networks_that_are_tried_one_after_the_other_are_counted():
    data = coins(30, 13)
    for k in range(1, 5):
        model, prior = untrained(seed=k)
        assert pt.certify(model, prior, prior, data, progress=False).issued == k


def test_large_sets_are_known_by_a_sketch():
    dice = torch.Generator().manual_seed(0)
    hashes = torch.randint(-(2**62), 2**62, (5000, 6), generator=dice)
    assert issued(hashes, "a") == 1
    assert issued(hashes[100:], "b") == 2
    assert issued(hashes + 1, "c") == 1


def test_the_hold_out_number_says_that_it_may_not_be_chosen():
    model, prior = untrained()
    found = pt.certify(model, prior, prior, coins(60, 14), progress=False)
    assert dict(found.rows())["the lesser of these two"].startswith("may not be chosen at 95 %")


# --- small tables ----------------------------------------------------------------------------------


def yes_no(n: int, seed: int):
    dice = torch.Generator().manual_seed(seed)
    x = torch.randint(2, (n, 3), generator=dice).float()
    y = (x.sum(1) >= 2) ^ (torch.rand(n, generator=dice) < 0.1)
    return x, y.long()


def test_an_honest_table_of_few_values_is_certified_after_a_split():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    refined = pt.split_prior(model, yes_no(200, 1), training={"epochs": 60, "lr": 0.1}, progress=False)
    found = refined.certify(progress=False)
    assert found.n == 100
    assert found.bound < 0.35
    assert any("table of few values" in check for check in found.checks)
    assert any("the split dealt every row to one side" in check for check in found.checks)


def test_a_table_of_few_values_needs_someone_who_knows_its_rows():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    prior = pt.learn(model, yes_no(100, 2), training=QUICK, progress=False).posterior
    with pytest.raises(Overlap, match="no evidence"):
        pt.certify(model, prior, prior, yes_no(100, 3), progress=False)
    found = pt.certify(model, prior, prior, yes_no(100, 3), vouched="rows of another year", progress=False)
    assert any("rows of another year" in check for check in found.checks)
    # Rows with many values are known by them, whatever is said.
    model = network()
    prior = pt.learn(model, coins(60, 15), training=QUICK, progress=False).posterior
    with pytest.raises(Overlap):
        pt.certify(model, prior, prior, coins(60, 15), vouched="rows of another year", progress=False)


def test_copies_of_a_table_with_many_values_are_copies():
    data = tuple(part.repeat_interleave(5, 0) for part in coins(40, 16))
    assert CertificateData.of(data).n == 40


# --- plain words -----------------------------------------------------------------------------------


def test_the_first_line_names_the_predictor_and_whether_it_is_what_predict_uses():
    model, prior = untrained()
    data = coins(60, 17)
    drawn = pt.certify(model, prior.tempered(0.5), prior, data, progress=False)
    assert str(drawn).splitlines()[0].endswith("It is not what predict() uses, which averages")
    assert f"error ≤ {drawn.bound:.4f}, at 95 %" in str(drawn).splitlines()[0]
    source = pt.learn(model, coins(60, 18), training=QUICK, progress=False).posterior
    folds = pt.certify_folds(model, source, data, head="new", folds=2, learner="adapt", progress=False)
    assert str(folds.certificate).splitlines()[0].endswith("Each of them answers as its own predict() does")


def test_by_new_examples_a_fit_certifies_what_predict_says():
    model, learned, (x, y) = network(), coins(60, 20), coins(50, 21)
    fit = pt.learn(model, learned, training=QUICK, progress=False)
    found = fit.certify((x, y), progress=False)
    wrong = int((fit.predict(x).probs.argmax(1) != y).sum())
    assert found.bound == clopper_pearson(wrong, 50, 0.05)
    assert "it is what predict() uses" in str(found).splitlines()[0]
    assert Certificate.from_json(found.to_json()) == found
    by_groups = fit.certify((x, y), groups=torch.arange(50) // 5, progress=False)
    assert (by_groups.n, by_groups.unit) == (10, "group")
    assert by_groups.bound > found.bound
    # One of the learned rows among them, or a past that is not known, and it speaks of draws again.
    mixed = torch.cat((x, learned[0][:1])), torch.cat((y, learned[1][:1]))
    source = pt.learn(network(), coins(60, 22), training=QUICK, progress=False).posterior
    again = pt.learn(network(), learned, source, head="keep", training=QUICK, progress=False)
    assert again.certify(mixed, progress=False).predictor != "the fit itself"


def test_what_cannot_be_seen_is_among_the_assumptions_of_every_certificate():
    model, prior = untrained()
    found = pt.certify(model, prior, prior, coins(60, 19), progress=False)
    said = [value for name, value in found.rows() if name == "assumes"]
    assert any("select columns" in text and "cannot be seen" in text for text in said)
