"""Every public verb that takes data, weights or what was made of them: what comes out of it is not certified on that data.

The rows are held against the public API: a new verb without a row fails here.
"""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import NoCertificate

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

    def curvature(self, data) -> pt.Curvature:
        return pt.estimate(self.model, data, progress=False)

    def updated(self, scales: pt.Scales) -> pt.Gaussian:
        return pt.update(self.prior, self.model, self.curvature(D0), scales)


def by_train(s: Scene) -> pt.Gaussian:
    pt.train(s.model, D, s.prior, progress=False, **QUICK)
    return pt.update(s.prior, s.model, s.curvature(D0))


def by_validation(s: Scene) -> pt.Gaussian:
    pt.train(s.model, coins(40, 3), s.prior, validation=D, progress=False, **QUICK)
    return pt.isotropic(s.model, mean="model")


def by_isotropic(s: Scene) -> pt.Gaussian:
    pt.train(s.model, D, s.prior, progress=False, **QUICK)
    return pt.isotropic(s.model, mean="model")


def by_load(s: Scene) -> pt.Gaussian:
    path = "runs-of-a-test.safetensors"
    pt.update(s.prior, s.model, s.curvature(D)).save(path)
    return pt.load(path)


def by_split(s: Scene) -> pt.Gaussian:
    return pt.split_prior(s.model, D, share=0.5, training=QUICK, progress=False).prior


def by_columns(s: Scene) -> pt.Gaussian:
    learner = pt.BPNN(s.model, s.prior, ["0"], "2", training=QUICK, scales=pt.Scales())
    learner.learn(pt.Task("a", coins(40, 3), D, None, 2), progress=False)
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


def by_prior(s: Scene) -> pt.Gaussian:
    pt.train(s.model, D, s.prior, progress=False, **QUICK)
    return pt.prior(s.model, D0[0], progress=False)


SEEN = {
    "BPNN": by_columns,
    "adapt": lambda s: pt.adapt(s.model, s.prior, D, head="keep", progress=False).posterior,
    "posterior": by_posterior,
    "prior": by_prior,
    "estimate": lambda s: pt.update(s.prior, s.model, s.curvature(D)),
    "isotropic": by_isotropic,
    "learn": lambda s: pt.learn(s.model, D, s.prior, training=QUICK, progress=False).posterior,
    "load": by_load,
    "optimise_posterior": lambda s: pt.optimise_posterior(s.model, s.prior, s.prior, D, epochs=1, progress=False),
    "recursive_certificate": lambda s: (
        pt.recursive_certificate(s.model, s.prior, D, chunks=2, epochs=1, passes=1, progress=False).posterior
    ),
    "split_prior": by_split,
    "train": by_train,
    "train, held out": by_validation,
    "tune": lambda s: s.updated(pt.tune(s.prior, s.model, s.curvature(D)).scales),
    "tune_strength": lambda s: s.updated(pt.tune_strength(s.prior, s.model, s.curvature(D))),
    "update": lambda s: pt.update(s.prior, s.model, s.curvature(D)),
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
}
"""Verbs that give nothing that could be a prior."""

VALUES = {
    "PNN": "a learner without Gaussians, for comparison",
    "Stream": "tasks in an order",
    "Task": "data, not what was made of it",
}


def takes_data(name: str) -> bool:
    thing = getattr(pt, name)
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return False
    if inspect.isclass(thing):
        return name in ("BPNN", "PNN") or hasattr(thing, "learn")
    words = ("Data", "Task", "Curvature", "nn.Module", "Tensor", "PathLike")
    return any(word in str(p.annotation) for p in inspect.signature(thing).parameters.values() for word in words)


def test_every_public_verb_has_a_row():
    known = {name.partition(",")[0] for name in SEEN} | set(NOTHING_KEPT) | set(VALUES)
    missing = {name for name in pt.__all__ if takes_data(name)} - known
    assert not missing, f"say in this file what {sorted(missing)} have seen"
    assert not known - set(pt.__all__), "rows of verbs that are gone"


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
