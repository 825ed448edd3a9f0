"""Every public verb that takes data, weights or what was made of them: what comes out of it is not certified on that data.

The rows are held against the public API: a new verb without a row fails here.
"""

from __future__ import annotations

import inspect
from functools import partial
from importlib import import_module

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.data.provenance import Provenance
from posterity.deprecated import MOVED, RENAMED
from posterity.errors import BadData, NoCertificate, UnknownPast
from posterity.laplace.run import split
from posterity.pacbayes import certify_few
from posterity.pacbayes.regression import certify_clipped
from posterity.workflow.recipe import Recipe, SmallNetworks

QUICK = {"epochs": 2, "lr": 0.05}


def coins(n: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.randint(2, (n,), generator=generator)


D0, D = coins(40, 1), coins(40, 2)


class Scene:
    """A fresh network, and a prior that has seen D0 alone."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
        self.prior = pt.learn(self.model, D0, training=QUICK, progress=False).posterior.compress()

    def curvature(self, data) -> pt.curvature.Curvature:
        return pt.estimate(self.model, data, progress=False)

    def updated(self, scales: pt.Scales) -> pt.Gaussian:
        return pt.update(self.model, self.curvature(D0), self.prior, scales)


def _new(layer: nn.Module) -> nn.Module:
    """The same layer with new weights."""
    return nn.Linear(layer.in_features, layer.out_features) if isinstance(layer, nn.Linear) else layer


def by_train(s: Scene) -> pt.Gaussian:
    pt.train(s.model, D, s.prior, progress=False, **QUICK)
    return pt.update(s.model, s.curvature(D0), s.prior)


def by_validation(s: Scene) -> pt.Gaussian:
    pt.train(s.model, coins(40, 3), s.prior, validation=D, progress=False, **QUICK)
    return pt.isotropic(s.model, mean="model")


def by_isotropic(s: Scene) -> pt.Gaussian:
    pt.train(s.model, D, s.prior, progress=False, **QUICK)
    return pt.isotropic(s.model, mean="model")


def by_load(s: Scene) -> pt.Gaussian:
    path = "runs-of-a-test.safetensors"
    pt.update(s.model, s.curvature(D), s.prior).save(path)
    return pt.load(path)


def by_split(s: Scene) -> pt.Gaussian:
    return pt.split_prior(s.model, D, share=0.5, training=QUICK, progress=False).prior


def by_columns(s: Scene, groups: torch.Tensor | None = None) -> pt.Gaussian:
    learner = pt.BPNN(s.model, s.prior, ["0"], "2", training=QUICK, scales=pt.Scales())
    task = pt.Task("a", coins(40, 3), D, None, 2) if groups is None else pt.Task("a", D, classes=2, groups=groups)
    learner.learn(task, progress=False)
    column = learner.learned[0].posterior
    names = {name: name.removeprefix("columns.0.") for name in column.blocks}
    return pt.Gaussian(
        {names[n]: m for n, m in column.mean.items()}, {names[n]: m for n, m in column.precision.items()}, column.card
    )


def by_posterior(s: Scene) -> pt.Gaussian:
    pt.train(s.model, D, s.prior, progress=False, **QUICK)
    fit = pt.posterior(s.model, D, progress=False)
    with pytest.raises(NoCertificate):
        fit.certify(D, progress=False)  # the evidence on D chose how strong its prior is
    return fit.posterior


def by_head(s: Scene, groups: torch.Tensor | None = None) -> pt.Gaussian:
    fit = pt.head(*D, groups=groups, classes=["a", "b"])
    s.model = fit.model
    return fit.posterior


def by_estimator(s: Scene, groups: torch.Tensor | None = None, held_out: float = 0.0) -> pt.Gaussian:
    model = pt.PosteriorClassifier(
        hidden_sizes=(5,), standardise=False, training=QUICK, held_out=held_out, random_state=0
    )
    model.fit(*(part.numpy() for part in D), groups=groups if groups is None else groups.numpy())
    s.model = model.fit_.model
    return model.fit_.posterior


def by_prior(s: Scene) -> pt.Gaussian:
    pt.train(s.model, D, s.prior, progress=False, **QUICK)
    return pt.prior(s.model, D0[0], progress=False)


SEEN = {
    "BPNN": by_columns,
    "adapt": lambda s: pt.adapt(s.model, D, s.prior, head="keep", progress=False).posterior,
    "certify_folds": lambda s: (
        pt.certify_folds(s.model, s.prior, D, head="keep", folds=2, learner="adapt", progress=False).fits[0].posterior
    ),
    "head": by_head,
    "posterior": by_posterior,
    "posterior, calibrated on held-out data": lambda s: (
        pt.posterior(s.model, coins(40, 3), validation=D, progress=False).posterior
    ),
    "prior": by_prior,
    "estimate": lambda s: pt.update(s.model, s.curvature(D), s.prior),
    "isotropic": by_isotropic,
    "learn": lambda s: pt.learn(s.model, D, s.prior, training=QUICK, progress=False).posterior,
    "learn, six networks": lambda s: pt.learn(nn.Sequential(*map(_new, s.model)), D, progress=False).posterior,
    "learn, from scratch": lambda s: pt.learn(s.model, D, training=QUICK, progress=False).posterior,
    "learn, from scratch, held out": lambda s: (
        pt.learn(s.model, coins(40, 3), validation=D, training=QUICK, progress=False).posterior
    ),
    "learn, after a prior, held out": lambda s: (
        pt.learn(s.model, coins(2100, 3), s.prior, validation=D, training=QUICK, progress=False).posterior
    ),
    "load": by_load,
    "optimise_posterior": lambda s: pt.pacbayes.optimise_posterior(
        s.model, s.prior, s.prior, D, epochs=1, progress=False
    ),
    "recursive_certificate": lambda s: (
        pt.pacbayes.recursive_certificate(
            s.model, s.prior, D, chunks=2, epochs=1, updates=1, passes=1, progress=False
        ).posterior
    ),
    "split_prior": by_split,
    "train": by_train,
    "train, held out": by_validation,
    "tune": lambda s: s.updated(pt.pacbayes.tune(s.model, s.curvature(D), s.prior).scales),
    "tune_strength": lambda s: s.updated(pt.laplace.tune_strength(s.model, s.curvature(D), s.prior)),
    "update": lambda s: pt.update(s.model, s.curvature(D), s.prior),
}
"""How each verb meets D and what comes out of it, as a Gaussian over the network's blocks."""

NOTHING_KEPT = {
    "certify": "a record of numbers",
    "consistency": "a number",
    "gibbs_risk": "a number",
    "log_evidence": "a number",
    "ood_auroc": "a number",
    "predict": "probabilities",
    "reliability": "a diagram",
    "sample_then_evaluate": "the matrices of one network, and its certificate",
    "score": "numbers",
    "selective_accuracy": "a number",
    "words": "a prior mean from names alone",
}
"""Verbs that give nothing that could be a prior."""

VALUES = {
    "AutomaticLabels": "a setting",
    "Bernoulli": "a likelihood",
    "Card": "what a Gaussian says of itself; by default its past is unknown",
    "Categorical": "a likelihood",
    "Certificate": "a record of numbers",
    "Curvature": "made by `estimate`, with what it has seen",
    "Dense": "a setting",
    "Diagonal": "a setting",
    "EKFAC": "a setting",
    "EmpiricalLabels": "a setting",
    "ExactLabels": "a setting",
    "OwnFrame": "a setting",
    "Fit": "made by `learn`; its prior and posterior know what they have seen",
    "Gaussian": "see test_attacks.py: each of its methods, and one put together by hand",
    "GaussianNoise": "a likelihood",
    "History": "made by `train`, with what was seen",
    "GivenFrame": "a setting with the past of its eigenvectors: see tests/curvature/test_in_frame.py",
    "KFAC": "a setting",
    "Laplace": "a setting",
    "KFOC": "a setting",
    "PosteriorClassifier": "`learn` under scikit-learn's names: its Gaussians know what they have seen",
    "PosteriorRegressor": "the same",
    "PosterityError": "an error",
    "Prediction": "probabilities",
    "PriorPenalty": "a term of a loss; weights trained with it by hand have an unknown past",
    "SampledLabels": "a setting",
    "Scales": "made by `tune`, with what they have seen",
    "Reliability": "numbers",
    "Scores": "numbers",
    "Stream": "tasks in an order",
    "Task": "data, not what was made of it",
    "VariationalGaussian": "a setting",
    "TunedScales": "made by `tune`; its scales know what they have seen",
    "from_laplace": "a fit whose past is unknown",
    "to_laplace": "an object of another library",
}
"""Classes whose instances say nothing that the verbs above do not say."""


def unknown_verbs(module) -> set[str]:
    """Whatever can be called in the public API, by name, and has no row: no annotation or naming is trusted."""
    known = {name.partition(",")[0] for name in SEEN} | set(NOTHING_KEPT) | set(VALUES)
    return {name for name in module.__all__ if name not in known and callable(getattr(module, name))}


def test_every_public_verb_has_a_row():
    missing = unknown_verbs(pt) | unknown_verbs(pt.metrics)
    assert not missing, f"say in this file what {sorted(missing)} have seen"
    known = {name.partition(",")[0] for name in SEEN} | set(NOTHING_KEPT) | set(VALUES)
    public = {
        *pt.__all__,
        *pt.metrics.__all__,
        *(RENAMED.get(p, {}).get(name, name) for p, names in MOVED.items() for name in names),
    }
    assert not known - public, "rows of verbs that are gone"


@pytest.mark.parametrize("new", [lambda x: x, type("Absorber", (), {})], ids=["function", "class"])
def test_a_new_verb_without_a_row_is_caught(new, monkeypatch):
    monkeypatch.setattr(pt, "absorb", new, raising=False)
    monkeypatch.setattr(pt, "__all__", [*pt.__all__, "absorb"])
    assert unknown_verbs(pt) == {"absorb"}


METHODS = {
    "Fit": {"ask", "certify", "module", "predict", "save", "tell", "worth"},
    "BPNN": {"adopt", "certify", "draft", "learn", "load", "network", "posterior", "predict", "prior_of", "save"},
}
"""Methods of what the verbs give, and of learners: those that take data have tests in test_holes.py and test_attacks.py."""


@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_takes_data_is_known(name):
    found = inspect.getmembers(getattr(pt, name), inspect.isfunction) + inspect.getmembers(
        getattr(pt, name), inspect.ismethod
    )
    assert {method for method, _ in found if method[0] != "_"} <= METHODS[name]


@pytest.mark.parametrize("verb", SEEN)
def test_what_has_met_the_data_is_not_certified_on_it(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scene = Scene()
    result = SEEN[verb](scene)
    with pytest.raises(NoCertificate):
        pt.certify(scene.model, result, result, D, progress=False)
    # Nor is anything lost of what was seen before.
    assert not result.provenance.is_known or result.provenance.count >= 40
    other = coins(40, 9)
    assert pt.certify(scene.model, result, result, other, vouched="a test", progress=False).n == 40


# --- regressions: siblings choose the strength of the prior and the noise ----------------------------


def numbers(n: int, seed: int):
    x, _ = coins(n, seed)
    return x, x[:, :1].sin() + 0.1 * torch.randn(n, 1, generator=torch.Generator().manual_seed(seed))


def regression(data, model: nn.Module | None = None, **options) -> pt.Fit:
    options["recipe"] = Recipe(small_networks=SmallNetworks(long=20))
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    return pt.learn(model, data, likelihood=pt.GaussianNoise(), progress=False, **options)


def clipped(fit: pt.Fit, prior: pt.Gaussian, data, **options):
    return certify_clipped(fit.model, fit.posterior, prior, data, 4.0, passes=1, **options)


REGRESSIONS = {
    "learn, siblings": {},
    "learn, one network": {"training": QUICK},
    "learn, held out": {"validation": numbers(40, 2), "training": QUICK},
}


@pytest.mark.parametrize("row", REGRESSIONS)
def test_a_regression_from_scratch_is_not_certified_on_what_it_has_seen(row):
    data = numbers(40, 2)
    fit = regression(numbers(40, 3) if row == "learn, held out" else data, **REGRESSIONS[row])
    with pytest.raises(NoCertificate):
        clipped(fit, fit.posterior, data)
    other = numbers(40, 9)
    assert clipped(fit, fit.posterior, other).n == 40


def test_a_regressions_prior_pays_for_the_strength_that_the_data_chose():
    data = numbers(40, 2)
    fit = regression(data)
    found = clipped(fit, fit.prior, data)
    assert any("97 (the strength of the prior)" in note for note in found.checks)
    blind = fit.prior.with_provenance(Provenance.none())
    assert clipped(fit, blind, data).bound < found.bound <= 4.0


# --- networks trained elsewhere --------------------------------------------------------------------


def trained_elsewhere(outputs: int) -> nn.Module:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optim.zero_grad()
        model(D[0]).square().mean().backward()
        optim.step()
    return model


ELSEWHERE = {
    "isotropic": lambda model: pt.isotropic(model, mean="model"),
    "learn, from scratch": lambda model: pt.learn(model, D0, training=QUICK, progress=False).posterior,
    "learn, held out": lambda model: (
        pt.learn(model, D0, validation=coins(40, 3), training=QUICK, progress=False).posterior
    ),
    "learn, a regression": lambda model: regression(numbers(40, 1), trained_elsewhere(1)).posterior,
    "posterior": lambda model: pt.posterior(model, D0, progress=False).posterior,
    "prior": lambda model: pt.prior(model, D0[0], progress=False),
    "split_prior": lambda model: pt.split_prior(model, D0, training=QUICK, progress=False).prior,
    "train": lambda model: (
        pt.train(model, D0, progress=False, **QUICK),
        pt.isotropic(model, mean="model"),
    )[1],
    "update": lambda model: pt.update(model, pt.estimate(model, D0, progress=False), pt.isotropic(model)),
}


@pytest.mark.parametrize("verb", ELSEWHERE)
def test_a_network_trained_elsewhere_has_an_unknown_past_whatever_verb_takes_it(verb):
    model = trained_elsewhere(2)
    result = ELSEWHERE[verb](model)
    assert not result.provenance.is_known
    if verb != "learn, a regression":
        with pytest.raises(UnknownPast):
            pt.certify(model, result, result, coins(40, 9), progress=False)


# --- groups ----------------------------------------------------------------------------------------

GROUPS = torch.arange(40) // 4
"""Ten groups of four examples."""
GROUPED = {
    "BPNN": lambda s, g: by_columns(s, g),
    "adapt": lambda s, g: pt.adapt(s.model, D, s.prior, head="keep", groups=g, progress=False).posterior,
    "certify_folds": lambda s, g: (
        pt.certify_folds(s.model, s.prior, D, head="keep", folds=2, learner="adapt", groups=g, progress=False)
        .fits[0]
        .posterior
    ),
    "head": by_head,
    "learn": lambda s, g: pt.learn(s.model, D, s.prior, training=QUICK, groups=g, progress=False).posterior,
    "posterior": lambda s, g: pt.posterior(s.model, D, groups=g, progress=False).posterior,
    "PosteriorClassifier": by_estimator,
    "PosteriorClassifier, held out": lambda s, g: by_estimator(s, g, 0.4),
    "learn, held out": lambda s, g: (
        pt.learn(s.model, D, s.prior, training=QUICK, validation=0.3, groups=g, progress=False).posterior
    ),
    "recursive_certificate": lambda s, g: (
        pt.pacbayes.recursive_certificate(
            s.model, s.prior, D, groups=g, chunks=2, epochs=1, updates=1, passes=1, progress=False
        ).posterior
    ),
    "split_prior": lambda s, g: pt.split_prior(s.model, D, groups=g, training=QUICK, progress=False).prior,
    "train": lambda s, g: (
        pt.train(s.model, D, s.prior, groups=g, progress=False, **QUICK),
        pt.isotropic(s.model, mean="model"),
    )[1],
}
"""Verbs that learn from D by groups, and what comes out."""
CERTIFY = {
    "certify": lambda s, prior, data, g: pt.certify(s.model, prior, prior, data, groups=g, progress=False),
    "sample_then_evaluate": lambda s, prior, data, g: (
        pt.pacbayes.sample_then_evaluate(s.model, prior, data, draws=2, groups=g).certificate
    ),
    "recursive_certificate": lambda s, prior, data, g: (
        pt.pacbayes.recursive_certificate(
            s.model, prior, data, groups=g, chunks=1, epochs=1, updates=1, passes=1, progress=False
        ).certificate
    ),
    "certify_few": lambda s, prior, data, g: (
        (
            certify_few(
                s.model, prior, data, lambda x, y: lambda new: s.model(new).softmax(1), ways=["split"], groups=g
            )
        ).certificate
    ),
}
CERTIFY |= {
    "certify_folds": lambda s, prior, data, g: (
        (
            pt.certify_folds(s.model, prior, data, head="keep", folds=2, learner="adapt", groups=g, progress=False)
        ).certificate
    ),
    "split_prior": lambda s, prior, data, g: pt.split_prior(
        s.model, data, prior, groups=g, training=QUICK, temperatures=(), progress=False
    ).certify(progress=False),
}
NOTHING_LEFT_OUT = {
    "consistency": "a number",
    "estimate": "a sum over examples",
    "gibbs_risk": "a mean, which promises nothing",
    "optimise_posterior": "a posterior: what certifies it takes groups",
    "predict": "probabilities",
}
"""Verbs that take data and neither split it, nor leave out, nor certify."""


def test_every_verb_that_takes_data_takes_groups_or_leaves_nothing_out():
    every = {name: getattr(module, name) for module in (pt, pt.pacbayes) for name in module.__all__}
    verbs = {name: verb for name, verb in every.items() if inspect.isfunction(verb)}
    taking = {name for name, verb in verbs.items() if "data" in inspect.signature(verb).parameters}
    with_groups = {name for name in taking if "groups" in inspect.signature(verbs[name]).parameters}
    assert taking - with_groups <= set(NOTHING_LEFT_OUT)
    assert with_groups <= set(GROUPED) | set(CERTIFY)
    for kind, methods in {"PosteriorClassifier": ("fit", "conformalize"), "PosteriorRegressor": ("fit",)}.items():
        assert all("groups" in inspect.signature(getattr(getattr(pt, kind), m)).parameters for m in methods)


@pytest.mark.parametrize("verb", GROUPED)
def test_what_has_met_groups_is_not_certified_on_them_and_counts_new_ones(verb):
    scene = Scene()
    result = GROUPED[verb](scene, GROUPS)
    other, few = coins(40, 9), torch.arange(40) // 8
    for how, certify in CERTIFY.items():
        with pytest.raises(NoCertificate):
            certify(scene, result, D, GROUPS)
        known = result.with_provenance(result.provenance.vouched("a test"))
        found = certify(scene, known, other, few)
        n = found.steps[0].n if how == "recursive_certificate" else found.n
        # Half of the groups, whole, where the others refine the prior.
        wanted = 3 if how == "split_prior" else 5
        assert n == wanted, how
        assert any(f"{wanted} groups of {8 * wanted} examples" in text for text in found.assumes), how


@pytest.mark.parametrize("verb", [*GROUPED, *(name for name in CERTIFY if name not in GROUPED)])
def test_groups_of_another_length_are_refused(verb):
    scene, short = Scene(), GROUPS[:-1]
    call = partial(GROUPED[verb], scene) if verb in GROUPED else partial(CERTIFY[verb], scene, scene.prior, D)
    with pytest.raises(BadData, match="groups has 39"):
        call(short)


@pytest.mark.parametrize("verb", CERTIFY)
def test_arrays_certify_as_tensors_do(verb):
    scene = Scene()
    arrays = D[0].double().numpy(), D[1].numpy()
    found, wanted = (CERTIFY[verb](Scene(), scene.prior, data, GROUPS) for data in (arrays, D))
    assert (found.bound, found.assumes) == (wanted.bound, wanted.assumes)


@pytest.mark.parametrize("verb", ["train", "learn"])
def test_a_share_that_is_held_out_is_one_of_groups(verb, monkeypatch):
    scene, sides = Scene(), []

    def spied(*given):
        sides.append(split(*given))
        return sides[-1]

    for module in ("posterity.laplace.train", "posterity.workflow.ways.one_network"):
        monkeypatch.setattr(import_module(module), "split", spied)
    options = {"validation": 0.3, "groups": GROUPS, "progress": False}
    if verb == "train":
        pt.train(scene.model, D, **options, **QUICK)
    else:
        pt.learn(scene.model, D, training=QUICK, **options)
    assert sides
    row = {tuple(x.tolist()): int(g) for x, g in zip(D[0], GROUPS, strict=True)}
    for (first, _), (second, _) in sides:
        here, there = ({row[tuple(x.tolist())] for x in part} for part in (first, second))
        assert len(there) == 3
        assert not here & there
        assert len(first) + len(second) == 40
