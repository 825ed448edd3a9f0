"""Certificates that must not be granted: each of these was, once."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, WeightedRandomSampler

import posterity as pt
from posterity.data.provenance import Provenance
from posterity.errors import (
    BadData,
    InfiniteDivergence,
    MixedExamples,
    NoCertificate,
    NotFinite,
    Overlap,
    UnfrozenState,
    UnknownPast,
)
from posterity.pacbayes import clopper_pearson
from posterity_studies.shared.grid_search import grid_search

QUICK = {"epochs": 3, "lr": 0.05}


def coins(n: int, seed: int, inputs: int = 6):
    """Labels that no input tells anything of: every network's risk is one half."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, inputs, generator=generator), torch.randint(2, (n,), generator=generator)


def linear(inputs: int = 6, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 2))


def learned(model, data, prior=None, **options):
    return pt.learn(model, data, prior, training=QUICK | options, progress=False)


def by_hand(model, data, steps: int = 60):
    """Training that posterity knows nothing of."""
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(data[0]), data[1]).backward()
        optimiser.step()


def certify(model, posterior, prior, data, **options):
    return pt.certify(model, posterior, prior, data, progress=False, **options)


D0, D = coins(80, 1), coins(80, 2)


# --- what was seen, step by step -------------------------------------------------------------------


def test_train_estimate_and_update_by_hand_are_seen():
    model = linear()
    prior = learned(model, D0).posterior
    pt.train(model, D, prior, progress=False, **QUICK)
    posterior = pt.update(model, pt.estimate(model, D, progress=False), prior)
    assert certify(model, posterior, prior, D).n == 80
    with pytest.raises(Overlap, match="80 of the 80"):
        certify(model, posterior, posterior, D)


def test_weights_trained_on_one_set_and_curvature_of_another_have_seen_both():
    model = linear()
    pt.train(model, D, None, progress=False, **QUICK)
    posterior = pt.update(model, pt.estimate(model, D0, progress=False), pt.isotropic(model))
    for data in (D, D0):
        with pytest.raises(Overlap):
            certify(model, posterior, posterior, data)


def test_an_unknown_past_is_not_washed_clean_by_learning_from_other_data():
    model = linear()
    prior = learned(model, D).posterior
    nameless = prior.with_provenance(Provenance.unknown("no one wrote it down"))
    again = learned(model, D0, nameless).posterior
    with pytest.raises(UnknownPast, match="no one wrote it down"):
        certify(model, again, again, D)


def test_learning_from_other_data_does_not_make_trained_weights_new():
    model = linear()
    by_hand(model, D)
    again = pt.learn(model, D0, training={"epochs": 1, "lr": 1e-6}, progress=False).posterior
    with pytest.raises(UnknownPast, match="trained, or set, before"):
        certify(model, again, again, D)


def test_trained_weights_as_a_mean_have_an_unknown_past_unless_vouched_for():
    model = linear()
    by_hand(model, D)
    prior = pt.isotropic(model, 1e4, mean="model")
    with pytest.raises(UnknownPast):
        certify(model, prior, prior, D)
    vouched = pt.isotropic(model, 1e4, mean="model", vouched="trained on last year's data")
    assert any("trained on last year's data" in check for check in certify(model, vouched, vouched, D).checks)


def test_weights_that_posterity_trained_tell_what_they_have_seen_also_in_a_copy():
    model = linear()
    pt.train(model, D0, progress=False, **QUICK)
    twin = copy.deepcopy(model)
    prior = pt.isotropic(twin, 1e4, mean="model")
    assert certify(twin, prior, prior, D).n == 80
    with pytest.raises(Overlap):
        certify(twin, prior, prior, D0)


def test_weights_changed_after_training_have_an_unknown_past():
    model = linear()
    pt.train(model, D0, progress=False, **QUICK)
    by_hand(model, D)
    prior = pt.isotropic(model, 1e4, mean="model")
    with pytest.raises(UnknownPast):
        certify(model, prior, prior, D)


def test_training_that_fails_has_seen_the_data_too():
    model = linear()
    x, y = D
    bad = torch.cat((x, torch.full((1, 6), torch.nan))), torch.cat((y, y[:1]))
    with pytest.raises(NotFinite):
        pt.train(model, bad, progress=False, batch_size=8, validation=None, epochs=50, lr=0.01)
    prior = pt.isotropic(model, 1e4, mean="model")
    with pytest.raises(NoCertificate):
        certify(model, prior, prior, D)


def test_frozen_layers_that_were_trained_have_an_unknown_past():
    model = linear()
    by_hand(model, D)
    model[0].requires_grad_(False)
    prior = pt.isotropic(model, 1.0)
    with pytest.raises(UnknownPast, match=r"0\.weight"):
        certify(model, prior, prior, D)


@pytest.mark.parametrize("verb", ["optimise", "recursive"])
def test_what_is_optimised_for_the_bound_has_seen_the_data(verb):
    model = linear()
    prior = learned(model, D0).posterior
    options = {"epochs": 2, "progress": False}
    if verb == "optimise":
        result = pt.pacbayes.optimise_posterior(model, prior, prior, D, **options)
    else:
        result = pt.pacbayes.recursive_certificate(model, prior, D, chunks=2, **options).posterior
    for data in (D, D0):
        with pytest.raises(Overlap):
            certify(model, result, result, data)


def test_scales_tuned_on_data_carry_it():
    model = linear()
    prior = learned(model, D0).posterior.compress()
    curvature = pt.estimate(model, D0, progress=False)
    other = pt.estimate(model, D, progress=False)
    for scales in (
        pt.pacbayes.tune(model, other, prior).scales,
        pt.laplace.tune_strength(model, other, prior),
        grid_search(
            prior, model, curvature, D, alphas=[1.0], betas=[0.5, 1.0], temperatures=[0.1], progress=False
        ).scales,
    ):
        result = pt.update(model, curvature, prior, scales)
        with pytest.raises(Overlap):
            certify(model, result, result, D)


def test_validation_data_counts_as_seen():
    model = linear()
    result = pt.learn(model, D0, validation=D, training=QUICK, progress=False).posterior
    with pytest.raises(Overlap):
        certify(model, result, result, D)


# --- columns ---------------------------------------------------------------------------------------


def columns(prior, **options):
    model = linear()
    return pt.BPNN(model, prior, ["0"], "2", training=QUICK, scales=pt.Scales(), **options)


def task(name, train, validation):
    return pt.Task(name, train, validation, None, 2)


def test_validation_data_of_a_column_counts_as_seen_by_later_ones():
    learner = columns(pt.isotropic(linear(), 1.0))
    learner.learn(task("a", D0, D), progress=False)
    learner.learn(task("b", coins(40, 5), coins(40, 6)), progress=False)
    for data in (D0, D):
        with pytest.raises(Overlap):
            learner.certify("b", data=data, progress=False)
    assert learner.certify("b", data=coins(40, 5), progress=False).n == 40


def test_a_prior_of_unknown_past_is_refused_for_every_column():
    nameless = pt.isotropic(linear(), 1.0).with_provenance(Provenance.unknown("lost"))
    learner = columns(nameless)
    for name, seed in (("a", 3), ("b", 4)):
        learner.learn(task(name, coins(40, seed), coins(40, seed + 10)), progress=False)
        with pytest.raises(UnknownPast, match="lost"):
            learner.certify(name, data=coins(40, seed), progress=False)


def test_a_prior_chosen_on_validation_data_pays_when_certified_on_it():
    learner = columns(pt.isotropic(linear(), 1.0))
    priors = [pt.isotropic(linear(), precision) for precision in (0.1, 1.0, 10.0)]
    learner.adopt(learner.draft(task("a", D0, D), prior=priors, progress=False))
    assert learner.certify("a", data=D, progress=False).payments == (("the prior", 3),)
    assert learner.certify("a", data=D0, progress=False).payments == ()


def test_a_column_is_certified_by_its_own_likelihood():
    learner = columns(pt.isotropic(linear(), 1.0))
    learner.learn(pt.Task("a", (D[0], D[0][:, :2]), None, None, 2, pt.GaussianNoise(1.0)), progress=False)
    with pytest.raises(BadData, match="regression"):
        learner.certify("a", data=(D[0], D[0][:, :2]), progress=False)


# --- copies ----------------------------------------------------------------------------------------


def test_copies_do_not_count():
    model = linear()
    prior = learned(model, D0).posterior
    x, y = (part.repeat_interleave(50, 0) for part in D)
    many = certify(model, prior, prior, (x, y), generator=torch.Generator().manual_seed(0))
    assert (many.n, many.examples) == (80, 4000)
    assert many.bound >= clopper_pearson(30, 80, 0.05)
    assert any("80 are distinct" in check for check in many.checks)
    cold = prior.tempered(0.5)
    assert certify(model, cold, prior, (x, y), passes=2).n == 80


def test_of_copies_and_distinct_examples_the_larger_bound_holds():
    """Sixty copies of an easy example do not outweigh the hard ones, nor the other way round."""
    model = linear()
    prior = pt.isotropic(model, 1e8, mean="model", vouched="drawn at random")
    easy = model(D[0]).argmax(1) == D[1]
    n = len(easy)
    for some in (easy, ~easy):
        first = D[0][some][:1], D[1][some][:1]
        x, y = (torch.cat((part, one.repeat_interleave(300, 0))) for part, one in zip(D, first, strict=True))
        alone, with_copies = certify(model, prior, prior, D), certify(model, prior, prior, (x, y))
        assert with_copies.n == n
        assert with_copies.bound >= alone.bound
    assert with_copies.bound > alone.bound


@pytest.mark.parametrize("replacement", ["random", "weighted"])
def test_a_sampler_with_replacement_certifies_nothing_and_has_seen_everything(replacement):
    dataset = TensorDataset(*D)
    if replacement == "random":
        sampler = RandomSampler(dataset, replacement=True, num_samples=40)
    else:
        sampler = WeightedRandomSampler(torch.ones(80), 40)
    loader = DataLoader(dataset, 16, sampler=sampler)
    model = linear()
    fit = learned(model, D0)
    with pytest.raises(BadData, match="replacement"):
        certify(model, fit.prior, fit.prior, loader)
    seen = pt.learn(model, loader, validation=None, training=QUICK, progress=False).posterior.provenance
    assert seen.count >= 80


# --- the same examples in another dress ------------------------------------------------------------


class Changing(Dataset):
    """Examples with a little noise of their own each time they are read."""

    def __init__(self, data, size: float) -> None:
        self.data, self.size = data, size

    def __len__(self) -> int:
        return len(self.data[1])

    def __getitem__(self, i: int):
        return self.data[0][i] + self.size * torch.randn(6), self.data[1][i]


def wrapped(change):
    x, y = D
    match change:
        case "reshaped":
            return x.view(80, 2, 3), y
        case "half":
            return x.half(), y
        case "bfloat16":
            return x.bfloat16(), y
        case "double":
            return x.double() * (1 + 1e-9), y
        case "ulp":
            return torch.nextafter(x, torch.tensor(math.inf)), y
    return DataLoader(TensorDataset(x.flip(0), y.flip(0)), 7, shuffle=True)


@pytest.mark.parametrize("change", ["reshaped", "half", "bfloat16", "double", "ulp", "shuffled"])
def test_seen_examples_are_known_in_another_shape_or_precision(change):
    model = nn.Sequential(nn.Flatten(), *linear())
    prior = learned(model, D).posterior
    other = wrapped(change)
    precision = other[0].dtype if isinstance(other, tuple) else torch.float32
    with pytest.raises(Overlap):
        certify(model.to(precision), prior, prior, other)


def test_examples_that_change_are_unknown_and_certify_nothing():
    model = linear()
    seen = learned(model, Changing(D, 0.3)).posterior
    assert not seen.provenance.is_known
    with pytest.raises(UnknownPast, match="not the same when read again"):
        certify(model, seen, seen, D)
    clean = learned(linear(), D0).posterior
    with pytest.raises(BadData, match="same each time"):
        certify(model, clean, clean, Changing(D, 0.3))


def test_data_that_can_be_read_only_once_is_unknown():
    model = linear()
    curvature = pt.estimate(model, iter([D]), progress=False)
    assert not curvature.provenance.is_known
    assert pt.estimate(model, [D], progress=False).provenance == Provenance.of(D)


# --- what is drawn is what the network uses --------------------------------------------------------


class Twice(nn.Module):
    """A layer's weight used again, by hand."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f, self.way = nn.Linear(6, 2, bias=way != "cosine"), way

    def forward(self, x):
        match self.way:
            case "product":
                return self.f(x) + 10 * (x @ self.f.weight.T)
            case "cosine":
                return 10 * F.linear(F.normalize(x, dim=1), F.normalize(self.f.weight, dim=1)) + 0 * self.f(x)
            case "bias":
                return self.f(x) + 10 * self.f.bias
            case "without its bias":
                return self.f(x) + 10 * F.linear(x, self.f.weight)
        return self.f(x)


@pytest.mark.parametrize("way", ["product", "cosine", "bias", "without its bias", "plain"])
def test_a_weight_used_by_hand_is_drawn_there_too(way):
    model = Twice(way)
    wide = pt.isotropic(model, 0.3, mean="model", vouched="drawn at random")
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y = model(x).argmax(1)
    dice = torch.Generator().manual_seed(0)
    found = pt.pacbayes.gibbs_risk(model, wide, (x, y), passes=100, generator=dice, progress=False)
    draws = pt.predict(model, wide, x, samples=1000, method="sampled", keep_draws=True, generator=dice).draws
    errors = (draws.argmax(-1) != y).double().mean(1)
    assert 0.05 < float(errors.mean()) < 0.6
    assert found.drawn_per == ("example" if way == "plain" else "batch")
    assert abs(found.error - float(errors.mean())) < 5 * float(errors.std()) * (1 / 100 + 1 / 1000) ** 0.5


class Sometimes(Twice):
    """A weight used by hand for some examples only, which a first look may not meet."""

    def forward(self, x):
        return self.f(x) + (10 * (x @ self.f.weight.T) if len(x) < 100 and bool((x > 50).any()) else 0)


def test_a_weight_used_by_hand_later_is_refused():
    model = Sometimes("plain")
    x, y = coins(60, 3)
    x[-1] = 100.0
    prior = pt.isotropic(model, 1.0)
    with pytest.raises(pt.errors.HiddenUse, match="block"):
        pt.pacbayes.gibbs_risk(model, prior, (x, y), batch_size=16, passes=1, progress=False)


class WithTensor(nn.Module):
    """A tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f = nn.Linear(6, 2)
        self.parts = {"shift": torch.zeros(2)}

    def forward(self, x):
        return self.f(x) + self.parts["shift"]


def test_plain_tensors_of_a_module_are_frozen_too():
    model = WithTensor()
    prior = pt.isotropic(model)
    assert certify(model, prior, prior, D).n == 80
    model.parts["shift"] = torch.ones(2)
    with pytest.raises(UnfrozenState):
        certify(model, prior, prior, D)


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f = nn.Linear(6, 2)

    def forward(self, x):
        return self.f(x - x.mean(0))


@pytest.mark.parametrize("kind", ["norm", "mean"])
def test_a_network_that_mixes_examples_certifies_nothing(kind):
    norm = nn.BatchNorm1d(6, affine=False, track_running_stats=False)
    model = Mixing() if kind == "mean" else nn.Sequential(norm, nn.Linear(6, 2))
    prior = pt.isotropic(model)
    with pytest.raises(MixedExamples):
        certify(model, prior, prior, D)
    with pytest.raises(MixedExamples):
        pt.pacbayes.recursive_certificate(model, prior, D, chunks=2, epochs=1, progress=False)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_outputs_that_are_no_numbers_are_no_class(value):
    model = linear()
    prior = pt.isotropic(model)
    x, y = D[0].clone(), torch.zeros_like(D[1])
    x[7] = value
    for methods in (["draws"], ["mean"]):
        with pytest.raises(NotFinite):
            certify(model, prior, prior, (x, y), methods=methods)
    with pytest.raises(NotFinite):
        pt.pacbayes.sample_then_evaluate(model, prior, (x, y), draws=2)


# --- forged divergences ----------------------------------------------------------------------------


def test_a_basis_and_an_inverse_that_disagree_do_not_change_what_is_certified():
    """What is drawn comes from the inverse and the divergence from the basis: both are computed again."""
    model = linear()
    first, curvature = (pt.estimate(model, data, pt.KFAC(), progress=False) for data in (D0, D))
    flat = pt.isotropic(model)
    prior = replace(flat, precision={name: first[name].jittered(0.1) for name in flat.blocks})
    true = {
        name: prior.precision[name].to(dtype=torch.float64).joint(curvature[name]).combine(1.0, 50.0)
        for name in prior.blocks
    }
    posterior = replace(prior, precision=true)
    kl = float(posterior.kl(prior))
    assert kl > 10
    forged = {}
    for name, matrix in true.items():
        wrong = replace(matrix.left, logabsdet=matrix.left.logabsdet - 40.0, inverse=matrix.left.inverse * 0.5)
        forged[name] = replace(matrix, left=wrong)
    lying = replace(prior, precision=forged)
    assert float(lying.kl(prior)) < 0
    assert certify(model, lying, prior, D, passes=1).kl == pytest.approx(kl, rel=1e-6)


def test_a_negative_divergence_is_refused():
    from posterity.pacbayes.certify import divergence

    model = linear()
    prior = pt.isotropic(model)

    class Less(type(prior.precision["0"])):
        def logdet(self):
            return super().logdet() - 40.0

    forged = {name: Less(m.scale, m.shape) for name, m in prior.precision.items()}
    with pytest.raises(InfiniteDivergence):
        divergence(replace(prior, precision=forged), prior)


def test_a_strength_chosen_by_the_examples_is_paid_for_when_they_certify():
    model = linear()
    prior = pt.learn(model, D0, training=QUICK, progress=False).posterior
    fit = pt.learn(linear(), coins(30, 8), prior, head="keep", progress=False)
    found = fit.certify(coins(30, 8), progress=False)
    assert ("the strength of the prior", fit.choice.strengths) in found.payments
    assert ("methods", 4) in found.payments
    assert fit.certify(coins(30, 9), methods=["prior"], progress=False).payments == ()
