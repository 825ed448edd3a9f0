"""Experiments on recordings cut into windows, whose error on new recordings is known: one for every path that takes `groups=`.

A recording has one label and one place; its windows differ by a little noise. Every window by itself is an example of the task of
test_validity.py, so that the risk is known. Windows of one recording are nearly the same example.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from experiments import DELTAS, QUICK, Outcome
from test_validity import FLIPPED, SyntheticTask, laplace

import posterity as pt
from posterity.pacbayes import FAMILY
from posterity.pacbayes.bounds import folds_bound

RECORDINGS = 10
WINDOWS = (1, 5, 20, 60)
OWN = 0.05
"""The share of a window's variance that is its own."""


class Recordings:
    """A task with recordings cut into windows, and a wide prior around the truth that has seen none of them."""

    def __init__(self, seed: int, windows: int) -> None:
        self.task = SyntheticTask(seed, 1)
        self.dice, self.model = self.task.generator, self.task.model
        self.data, self.groups = self.more(RECORDINGS, windows)
        self.task.data = self.data
        centre = torch.cat((self.task.mu, self.task.mu.new_zeros(1)))[None] * torch.tensor([[-0.5], [0.5]])
        self.prior = pt.isotropic(self.model, 4.0, mean={"": centre.double()}, vouched="by hand")
        self.quiet = {"progress": False, "groups": self.groups}

    def more(self, recordings: int, windows: int):
        sign = 2 * torch.randint(2, (recordings,), generator=self.dice) - 1
        flipped = torch.rand(recordings, generator=self.dice) < FLIPPED
        own, shared = (torch.randn(recordings, w, 2, generator=self.dice, dtype=torch.float64) for w in (windows, 1))
        x = sign[:, None, None] * self.task.mu + OWN**0.5 * own + (1 - OWN) ** 0.5 * shared
        y = ((sign > 0) ^ flipped).long()
        return (x.flatten(0, 1), y.repeat_interleave(windows)), torch.arange(recordings).repeat_interleave(windows)

    def risk(self, gaussian) -> float:
        return self.task.risk(gaussian, draws=4000)

    def risk_at(self, matrix) -> float:
        return self.task.risk(pt.isotropic(self.model, 1e12, mean={"": matrix}, vouched="by hand"), draws=1)

    def certify(self, posterior, delta: float, prior=None, **options):
        return pt.certify(self.model, posterior, prior or self.prior, self.data, 1 - delta, **self.quiet | options)


def drawn_from_prior(case: Recordings) -> list[Outcome]:
    risk = case.risk(case.prior)
    return [(risk, case.certify(case.prior, delta).bound) for delta in DELTAS]


def hold_out(case: Recordings) -> list[Outcome]:
    risk = case.risk_at(case.prior.mean[""])
    return [(risk, case.certify(case.prior, delta).holdout.bound) for delta in DELTAS]


def by(*methods: str) -> Callable[[Recordings], list[Outcome]]:
    def path(case: Recordings) -> list[Outcome]:
        posterior = laplace(case.task, case.prior)
        risks = {
            "a network drawn at random from the posterior": case.risk(posterior),
            "a network drawn at random from the prior": case.risk(case.prior),
            "the network at the prior's mean": case.risk_at(case.prior.mean[""]),
        }
        found = [case.certify(posterior, delta, methods=methods, passes=20) for delta in DELTAS]
        return [(risks[c.predictor], c.bound) for c in found]

    return path


def best_of_draws(case: Recordings) -> list[Outcome]:
    options = {"draws": 5, "groups": case.groups}
    found = [pt.pacbayes.sample_then_evaluate(case.model, case.prior, case.data, 1 - d, **options) for d in DELTAS]
    return [(case.risk_at(one.weights[""]), one.certificate.bound) for one in found]


def split(case: Recordings) -> list[Outcome]:
    refined = pt.split_prior(case.model, case.data, training=QUICK, scales="bayes", generator=case.dice, **case.quiet)
    risk = case.risk(refined.prior)
    return [(risk, refined.certify(1 - delta, progress=False).bound) for delta in DELTAS]


def recursive(case: Recordings) -> list[Outcome]:
    outcomes = []
    for delta in DELTAS:
        options = {"chunks": 2, "epochs": 2, "updates": 1, "batch_size": 16} | case.quiet
        found = pt.pacbayes.recursive_certificate(case.model, case.prior, case.data, 1 - delta, **options)
        outcomes.append((case.risk(found.posterior), found.certificate.bound))
    return outcomes


def folds(case: Recordings) -> list[Outcome]:
    """Two fits with a new head after a prior from other recordings. Risks are those of 4,000 recordings of one window."""
    source, _ = case.more(60, 1)
    prior = pt.learn(case.model, source, training=QUICK, progress=False, generator=case.dice).posterior
    options = {"head": "new", "learner": "adapt", "folds": 2} | case.quiet
    found = pt.certify_folds(case.model, prior, case.data, **options)
    (x, y), _ = case.more(4000, 1)
    risk = sum(float((fit.predict(x).probs.argmax(1) != y).double().mean()) for fit in found.fits) / 2
    return [(risk, folds_bound(found.certificate.folds, delta, grouped=True)) for delta in DELTAS]


PATHS: dict[str, Callable[[Recordings], list[Outcome]]] = {
    "drawn from the prior": drawn_from_prior,
    "hold-out": hold_out,
    "methods: draws": by("draws"),
    "methods: excess": by("excess"),
    "methods: all four": by(*FAMILY),
    "best of draws": best_of_draws,
    "split": split,
    "recursive": recursive,
    "folds": folds,
}


def violations(path: str, windows: int, trials: int, start: int = 0) -> list[int]:
    """For each δ how often the error on new recordings was above the bound."""
    found = [0] * len(DELTAS)
    for seed in range(start, start + trials):
        for k, (risk, bound) in enumerate(PATHS[path](Recordings(seed, windows))):
            found[k] += risk > bound
    return found
