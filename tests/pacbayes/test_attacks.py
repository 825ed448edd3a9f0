"""Certificates that a second reading got by other routes than the first: each is refused now, or right."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_holes import QUICK, D, by_hand, certify, coins, learned, linear
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import posterity as pt
from posterity.algebra import ScaledIdentity
from posterity.data.weights import untouched
from posterity.errors import (
    BadData,
    BadLearnerFile,
    InfiniteDivergence,
    MixedExamples,
    NoCertificate,
    Overlap,
    UnfrozenState,
    UnknownPast,
)
from posterity.pacbayes.regression import certify_clipped

D0 = coins(80, 1)


# --- weights that are kept where no one looks ------------------------------------------------------


class Hiding(nn.Module):
    """A layer on top of a network that has learned D by heart and is no submodule."""

    def __init__(self, where: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f, self.where = nn.Linear(2, 2), where
        net = linear()
        by_hand(net, D, 20)
        match where:
            case "list":
                self.kept = [net]
            case "array":
                self.kept = [p.detach().numpy() for p in net.parameters()]
            case "closure":
                self.run = lambda x: net(x)
            case "object":
                self.kept = type("Holder", (), {"net": net})()
            case "hook":
                self.register_forward_pre_hook(lambda _, given: (net(given[0]),))

    def forward(self, x):
        match self.where:
            case "list":
                x = self.kept[0](x)
            case "array":
                a, b, c, d = (torch.from_numpy(w) for w in self.kept)
                x = F.linear(torch.tanh(F.linear(x, a, b)), c, d)
            case "closure":
                x = self.run(x)
            case "object":
                x = self.kept.net(x)
        return self.f(x.detach())


@pytest.mark.parametrize("where", ["list", "array", "closure", "object", "hook"])
def test_weights_that_are_no_part_of_the_network_are_refused(where):
    model = Hiding(where)
    prior = pt.isotropic(model)
    with pytest.raises(UnfrozenState, match="Register it"):
        certify(model, prior, prior, D)


class Plain(nn.Module):
    """Constants, tensors made by torch, and attributes of modules are a network's own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f = nn.Linear(6, 2)
        self.shift = torch.zeros(2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x):
        centred = 2 * x - torch.tensor([0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
        rows = torch.arange(len(x))
        return (self.f(centred) + self.shift)[rows] * self.scale + torch.zeros(2)


def test_a_networks_own_tensors_and_constants_are_not_refused():
    model = Plain()
    prior = pt.isotropic(model)
    assert certify(model, prior, prior, D).n == 80


# --- trained weights that look new -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["scaled", "clipped"])
def test_trained_weights_brought_into_the_range_of_new_ones_are_not_new(how):
    """A network of ReLUs says the same at any scale of its weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64, bias=False), nn.ReLU(), nn.Linear(64, 2, bias=False))
    by_hand(model, D, 100)
    with torch.no_grad():
        for layer in (model[0], model[2]):
            bound = layer.weight.shape[1] ** -0.5
            layer.weight.mul_(bound / layer.weight.abs().max()) if how == "scaled" else layer.weight.clamp_(
                -bound, bound
            )
    again = pt.learn(model, D0, training={"epochs": 1, "lr": 1e-7}, progress=False).posterior
    with pytest.raises(UnknownPast, match="trained, or set, before"):
        certify(model, again, again, D)


def test_new_weights_are_new():
    for seed in range(20):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Conv2d(1, 6, 5), nn.Linear(400, 120), nn.Linear(3, 1), nn.Conv1d(4, 8, 3, groups=2))
        assert all(untouched(model, name, p) for name, p in model.named_parameters())


# --- a card for another mean -----------------------------------------------------------------------


def posterior_and_prior():
    model = linear()
    prior = learned(model, D0).posterior
    pt.train(model, D, prior, progress=False, **QUICK)
    return model, pt.update(model, pt.estimate(model, D, progress=False), prior), prior


def test_a_mean_under_another_gaussians_card_has_an_unknown_past():
    model, posterior, prior = posterior_and_prior()
    for forged in (replace(prior, mean=posterior.mean), pt.Gaussian(posterior.mean, prior.precision, prior.card)):
        again = pt.update(model, pt.estimate(model, D0, progress=False), forged)
        for derived in (forged, forged.tempered(0.5), forged.to(dtype=torch.float64), again):
            with pytest.raises(UnknownPast, match="not the one that its card was written for"):
                certify(model, derived, derived, D)


def test_a_mean_that_is_changed_in_place_has_an_unknown_past():
    model, posterior, prior = posterior_and_prior()
    assert certify(model, prior, prior, D).n == 80
    for name, mean in prior.mean.items():
        mean.copy_(posterior.mean[name])
    with pytest.raises(UnknownPast, match="not the one that its card was written for"):
        certify(model, prior, prior, D)


def test_whatever_makes_a_gaussian_of_another_keeps_what_it_has_seen(tmp_path):
    """Every public method that gives a Gaussian, by its annotation: a new one without a row fails."""
    _, posterior, _ = posterior_and_prior()
    posterior.save(tmp_path / "p.safetensors")
    rows = {
        "tempered": lambda g: g.tempered(0.3),
        "shrunk": lambda g: g.shrunk(0.3),
        "adjusted": lambda g: g.adjusted(0.1, 2.0),
        "without": lambda g: g.without("0"),
        "restricted": lambda g: g.restricted(["2"]),
        "compress": lambda g: g.compress(),
        "to": lambda g: g.to(dtype=torch.float64),
        "without_known": lambda g: g.without_known(),
        "with_provenance": None,  # which is how it is told
    }
    methods = inspect.getmembers(pt.Gaussian, callable)
    makers = {name for name, f in methods if name[0] != "_" and _gives_gaussian(f)}
    assert makers == set(rows)
    for name, make in rows.items():
        if make is not None:
            assert make(posterior).provenance == posterior.provenance, name
    assert pt.load(tmp_path / "p.safetensors").tempered(2.0).provenance == posterior.provenance


def _gives_gaussian(f) -> bool:
    return str(inspect.signature(f).return_annotation) == "Gaussian"


# --- examples --------------------------------------------------------------------------------------


class Crowded(nn.Module):
    """Mixes examples, but in large batches only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f = nn.Linear(6, 2)

    def forward(self, x):
        return self.f(x - x.mean(0) if len(x) > 40 else x)


def test_a_network_that_mixes_examples_in_large_batches_certifies_nothing():
    model = Crowded()
    prior = pt.isotropic(model)
    with pytest.raises(MixedExamples):
        certify(model, prior, prior, D)


def test_copies_in_other_precisions_do_not_count():
    model = linear()
    prior = pt.isotropic(model)
    x, y = D
    more = torch.cat((x, x.half().float(), x.bfloat16().float())), y.repeat(3)
    assert certify(model, prior, prior, more).n == 80
    assert certify(model, prior, prior, (x.half().float(), y)).n == 80


def test_a_sampler_that_deals_anew_in_every_epoch_shows_all_of_its_data():
    x, y = (torch.cat(parts) for parts in zip(D0, D, strict=True))
    dataset = TensorDataset(x, y)
    loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset, num_replicas=2, rank=0))
    model = linear()
    pt.train(model, loader, validation=None, progress=False, **QUICK)
    prior = pt.isotropic(model, 1e4, mean="model")
    assert prior.provenance.count == 160
    with pytest.raises(Overlap, match="80 of the 80"):
        certify(model, prior, prior, D)


class Halved(torch.utils.data.Dataset):
    """A transform inside the dataset that rounds."""

    def __len__(self) -> int:
        return 80

    def __getitem__(self, i: int):
        return D[0][i].half().float().reshape(2, 3), D[1][i]


def test_a_transform_that_rounds_inside_a_loader_hides_nothing():
    model = nn.Sequential(nn.Flatten(), *linear())
    prior = learned(model, DataLoader(Halved(), 16, shuffle=True)).posterior
    with pytest.raises(Overlap):
        certify(model, prior, prior, D)


# --- files, state_dicts, verbs of the second round -------------------------------------------------


def test_weights_that_went_through_a_state_dict_or_write_to_have_an_unknown_past():
    trained = linear()
    fit = learned(trained, D)
    for bring in (lambda m: m.load_state_dict(trained.state_dict()), fit.posterior.write_to):
        model = linear()
        bring(model)
        for prior in (
            pt.isotropic(model, 1e4, mean="model"),
            pt.learn(model, D0, training={"epochs": 1, "lr": 1e-7}, progress=False).posterior,
            pt.prior(model, D0[0], progress=False),
            pt.posterior(model, D0, progress=False).posterior,
        ):
            with pytest.raises(NoCertificate):
                certify(model, prior, prior, D)


def test_an_adapted_prior_remembers_its_choice_in_a_file(tmp_path):
    model = linear()
    prior = learned(model, D0).posterior
    few = coins(20, 4)
    fit = pt.adapt(model, few, prior, head="keep", progress=False)
    fit.prior.adjusted(0.5).save(tmp_path / "p.safetensors")
    loaded = pt.load(tmp_path / "p.safetensors")
    assert ("the strength of the prior", fit.choice.strengths) in certify(model, loaded, loaded, few).payments
    with pytest.raises(Overlap):
        certify(model, fit.posterior, fit.posterior, few)


def test_a_refined_prior_has_seen_its_share_and_not_the_rest():
    model = linear()
    refined = pt.split_prior(model, D, training=QUICK, progress=False)
    found = refined.certify(progress=False)
    assert found.n == 40
    optimised = pt.pacbayes.optimise_posterior(
        model, refined.prior, refined.prior, refined.rest, epochs=1, progress=False
    )
    for one in (refined.prior, optimised):
        with pytest.raises(Overlap):
            certify(model, one, one, D)


def test_a_learner_that_was_saved_remembers_what_its_columns_have_seen(tmp_path):
    learner = pt.BPNN(linear(), pt.isotropic(linear()), ["0"], "2", training=QUICK, scales=pt.Scales())
    learner.learn(pt.Task("a", D, None, None, 2), progress=False)
    learner.save(tmp_path / "learner")
    again = pt.BPNN.load(tmp_path / "learner", linear(), training=QUICK, scales=pt.Scales())
    again.learn(pt.Task("b", D0, None, None, 2), progress=False)
    with pytest.raises(Overlap):
        again.certify("b", data=D, progress=False)
    assert again.certify("b", data=D0, progress=False).n == 80


def test_a_learner_does_not_load_into_a_network_with_other_norm_statistics(tmp_path):
    def normed(shift: float) -> nn.Module:
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(8, affine=False).eval()
        norm.running_mean.fill_(shift)
        return nn.Sequential(nn.Linear(6, 8), norm, nn.Tanh(), nn.Linear(8, 2))

    model = normed(0.0)
    learner = pt.BPNN(model, pt.isotropic(model), ["0"], "3", training=QUICK, scales=pt.Scales())
    learner.learn(pt.Task("a", D, None, None, 2), progress=False)
    learner.save(tmp_path / "learner")
    assert pt.BPNN.load(tmp_path / "learner", normed(0.0)).tasks == learner.tasks
    with pytest.raises(BadLearnerFile, match="statistics"):
        pt.BPNN.load(tmp_path / "learner", normed(1.0))


# --- answers outside of torch, and errors that are none --------------------------------------------


class Table(nn.Module):
    """A network that has the answers of D in a dictionary, and looks its inputs up."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f, self.how = nn.Linear(6, 2), how
        self.answers = {round(float(x[0]), 4): int(y) for x, y in zip(*D, strict=True)}

    def keys(self, x):
        match self.how:
            case "tolist":
                return [row[0] for row in x.tolist()]
            case "numpy":
                return x.detach().numpy()[:, 0]
            case "array":
                return np.asarray(x)[:, 0]
            case "float":
                return [float(row[0]) for row in x]
            case "item":
                return [row[0].item() for row in x]
            case "text":
                return [float(str(row[0]).split("(")[1].rstrip(")")) for row in x]
            case "if":
                return [next(k for k in self.answers if abs(row[0] - k) < 1e-3) for row in x]
        raise ValueError(self.how)

    def forward(self, x):
        told = torch.zeros(len(x), 2)
        for i, key in enumerate(self.keys(x)):
            told[i, self.answers.get(round(float(key), 4), 0)] = 50.0
        return 0 * self.f(x) + told


@pytest.mark.parametrize("how", ["tolist", "numpy", "array", "float", "item", "text", "if"])
def test_answers_that_are_looked_up_outside_of_torch_are_refused(how):
    model = Table(how)
    prior = pt.isotropic(model, 1.0)
    with pytest.raises(UnfrozenState, match="out of torch"):
        certify(model, prior, prior, D)


def test_a_condition_on_a_whole_batch_is_not_refused():
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.f = nn.Linear(6, 2)

        def forward(self, x):
            if not torch.isfinite(x).all():
                raise ValueError("no numbers")
            return self.f(x)

    model = Careful()
    prior = pt.isotropic(model, 1.0)
    assert certify(model, prior, prior, D).bound > 0.4


class Lenient(pt.Categorical):
    """Whatever the network says is right."""

    def check(self, outputs, targets):
        outputs, targets = super().check(outputs, targets)
        return outputs, outputs.argmax(-1)


def test_a_likelihood_with_an_idea_of_its_own_of_what_is_right_certifies_nothing():
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    prior = pt.isotropic(model, 1.0)
    with pytest.raises(BadData, match="and not by a Lenient"):
        certify(model, prior, prior, D, likelihood=Lenient())
    with pytest.raises(BadData, match="and not by a Lenient"):
        pt.pacbayes.gibbs_risk(model, prior, D, Lenient(), passes=1, progress=False)


class Kind(torch.Tensor):
    """Numbers that are never unlike others."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return torch.zeros_like(result.as_subclass(torch.Tensor)) if func is torch.Tensor.__ne__ else result


class Flattering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f = nn.Linear(6, 2)

    def forward(self, x):
        return self.f(x).as_subclass(Kind)


def test_tensors_that_compare_as_they_like_do_not_change_what_an_error_is():
    plain = Flattering()
    plain.forward = plain.f.forward
    expected = _coins_bound(plain, D)
    assert expected > 0.4
    assert _coins_bound(Flattering(), D) == expected
    assert _coins_bound(plain, (D[0], D[1].as_subclass(Kind))) == expected


def _coins_bound(model, data) -> float:
    prior = pt.isotropic(model, 1.0)
    return certify(model, prior, prior, data, generator=torch.Generator().manual_seed(0)).bound


class Close(ScaledIdentity):
    """A precision that claims to be the prior's own."""

    def tensors(self):
        return "identity", {"scale": torch.ones((), dtype=torch.float64)}


def test_a_precision_of_a_class_of_its_own_certifies_nothing():
    model = linear()
    prior = pt.isotropic(model, 1.0)
    precision = {name: Close(1e6 * matrix.scale, matrix.over) for name, matrix in prior.precision.items()}
    posterior = replace(prior, precision=precision)
    assert posterior.fingerprint() == prior.fingerprint()
    with pytest.raises(InfiniteDivergence, match=r"is a Close.* take Kronecker"):
        certify(model, posterior, prior, D)


# --- the seed of the draws -------------------------------------------------------------------------


def coin_case():
    """A wide prior on examples that it knows nothing of: every draw errs in about half of them."""
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    return model, pt.isotropic(model, 1.0), coins(60, 5)


def test_who_asks_again_gets_the_same_draws():
    model, prior, data = coin_case()
    first = pt.certify(model, prior, prior, data, progress=False)
    torch.manual_seed(99)  # nor does torch's own seed choose
    again = [pt.certify(model, prior, prior, data, progress=False) for _ in range(5)]
    assert all(one == first for one in again)
    assert any("none was chosen" in note for note in first.checks)


def test_draws_are_others_for_another_posterior_or_other_examples():
    model, prior, data = coin_case()
    errors = set()
    for seed in range(12):
        errors.add(pt.certify(model, prior, prior, coins(60, seed), progress=False).errors)
    assert len(errors) > 3
    one, other = (prior.tempered(t) for t in (0.5, 0.51))
    found = [pt.certify(model, p, prior, data, passes=1, progress=False).gibbs for p in (one, other, one)]
    assert found[0] == found[2] != found[1]


def test_a_seed_that_is_given_is_told_and_many_of_them_are_a_choice():
    model, prior, data = coin_case()
    bounds = []
    for seed in range(20):
        dice = torch.Generator().manual_seed(seed)
        found = pt.certify(model, prior, prior, data, generator=dice, progress=False)
        assert any("grid=K" in note for note in found.checks)
        assert not any("none was chosen" in note for note in found.checks)
        bounds.append(found.bound)
    own = pt.certify(model, prior, prior, data, progress=False).bound
    assert min(bounds) < own  # what the seeds would have bought


@pytest.mark.parametrize("path", ["best of draws", "folds", "recursive", "clipped"])
def test_the_other_certificates_have_seeds_of_their_own_too(path):
    model, prior, data = coin_case()
    known = learned(linear(), D0).posterior if path == "folds" else None

    def made():
        torch.seed()
        match path:
            case "best of draws":
                return pt.pacbayes.sample_then_evaluate(model, prior, data, draws=3).certificate
            case "folds":
                few = tuple(part[:8] for part in data)
                options = {"head": "keep", "folds": 2, "learner": "adapt", "progress": False}
                return pt.certify_folds(linear(), known, few, **options).certificate
            case "recursive":
                found = pt.pacbayes.recursive_certificate(
                    model, prior, data, chunks=2, epochs=1, updates=1, passes=1, progress=False
                )
                return found.certificate
            case _:
                return certify_clipped(model, prior, prior, (data[0], data[0][:, :2]), 4.0)

    assert made() == made()
