"""How often certificates are violated, by independent experiments on tasks whose risk is known, for every way to one.

At δ = 0.05, 0.3 and 0.9 no way is violated more often than δ allows, three standard errors given. At 0.9 the exact ones are
violated often: they spend what they may. Broken variants are caught by the same experiments.
"""

from __future__ import annotations

import math

import pytest
import torch
from test_validity import SyntheticTask, laplace
from torch import nn

import posterity as pt
from posterity.pacbayes import FAMILY, clopper_pearson, klinv, maurer
from posterity.pacbayes.certify import divergence

DELTAS = (0.05, 0.3, 0.9)
N = 40


def allowed(delta: float, trials: int) -> float:
    return delta * trials + 3 * math.sqrt(delta * (1 - delta) * trials)


class Case:
    """A task, a wide prior around the truth, and a posterior that has learned from the data."""

    def __init__(self, seed: int, n: int = N) -> None:
        self.task = SyntheticTask(seed, n)
        centre = torch.cat((self.task.mu, self.task.mu.new_zeros(1)))[None] * torch.tensor([[-0.5], [0.5]])
        self.prior = pt.isotropic(self.task.model, 4.0, mean={"": centre.double()}, vouched="by hand")
        self.model, self.data, self.dice = self.task.model, self.task.data, self.task.generator

    def certify(self, posterior, delta: float, **options):
        return pt.certify(
            self.model, posterior, self.prior, self.data, 1 - delta, generator=self.dice, progress=False, **options
        )

    def risk_at(self, matrix: torch.Tensor) -> float:
        """The exact risk of one network."""
        cold = pt.isotropic(self.model, 1e12, mean={"": matrix}, vouched="by hand")
        return self.task.risk(cold, draws=1)


def drawn_from_prior(case: Case, delta: float) -> tuple[float, float]:
    c = case.certify(case.prior, delta)
    assert c.rule == "binomial"
    return case.task.risk(case.prior), c.bound


def learned(case: Case, delta: float, method: str) -> tuple[float, float]:
    posterior = laplace(case.task, case.prior)
    c = case.certify(posterior, delta, methods=[method], passes=20)
    return case.task.risk(posterior), c.bound


def at_the_mean(case: Case, delta: float) -> tuple[float, float]:
    c = case.certify(case.prior.tempered(0.5), delta, methods=["mean"])
    return case.risk_at(case.prior.mean[""]), c.bound


def best_of_draws(case: Case, delta: float) -> tuple[float, float]:
    found = pt.sample_then_evaluate(case.model, case.prior, case.data, 1 - delta, draws=5, generator=case.dice)
    return case.risk_at(found.weights[""]), found.certificate.bound


def least_of_a_family(case: Case, delta: float) -> tuple[float, float]:
    posterior = laplace(case.task, case.prior)
    c = case.certify(posterior, delta, methods=FAMILY, passes=20)
    match c.predictor:
        case "the network at the prior's mean":
            return case.risk_at(case.prior.mean[""]), c.bound
        case "a network drawn anew from the prior":
            return case.task.risk(case.prior), c.bound
    return case.task.risk(posterior), c.bound


def least_of_several_priors(case: Case, delta: float) -> tuple[float, float]:
    """The least of K certificates, each of which pays for K."""
    found = []
    for precision in (0.5, 4.0, 30.0):
        prior = pt.isotropic(case.model, precision, mean=case.prior.mean, vouched="by hand")
        options = {"generator": case.dice, "progress": False, "grid": 3}
        c = pt.certify(case.model, prior, prior, case.data, 1 - delta, **options)
        found.append((c.bound, case.task.risk(prior)))
    bound, risk = min(found)
    return risk, bound


def with_copies(case: Case, delta: float) -> tuple[float, float]:
    """Some examples come many times: once for each that is hard."""
    x, y = case.data
    many = torch.cat((x, x[:5].repeat_interleave(20, 0))), torch.cat((y, y[:5].repeat_interleave(20)))
    c = pt.certify(case.model, case.prior, case.prior, many, 1 - delta, generator=case.dice, progress=False)
    return case.task.risk(case.prior), c.bound


class ByHand(nn.Module):
    """The same linear classifier, with its weight read by hand: it can only be drawn as a whole."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.f = layer

    def forward(self, x):
        return x @ self.f.weight.T + self.f.bias + 0 * self.f(x)


def drawn_as_a_whole(case: Case, delta: float) -> tuple[float, float]:
    model = ByHand(case.model)
    prior = pt.isotropic(model, 4.0, mean={"f": case.prior.mean[""]}, vouched="by hand")
    c = pt.certify(model, prior, prior, case.data, 1 - delta, generator=case.dice, progress=False)
    return case.task.risk(case.prior), c.bound


def recursive(case: Case, delta: float) -> tuple[float, float]:
    found = pt.recursive_certificate(
        case.model, case.prior, case.data, 1 - delta, chunks=2, epochs=4, lr=0.05, generator=case.dice, progress=False
    )
    return case.task.risk(found.posterior), found.certificate.bound


PATHS = {
    "drawn from the prior": drawn_from_prior,
    "learned, by draws": lambda case, delta: learned(case, delta, "draws"),
    "learned, by excess": lambda case, delta: learned(case, delta, "excess"),
    "at the prior's mean": at_the_mean,
    "best of draws": best_of_draws,
    "least of a family": least_of_a_family,
    "least of several priors": least_of_several_priors,
    "with copies": with_copies,
    "drawn as a whole": drawn_as_a_whole,
    "recursive": recursive,
}
EXACT = ("drawn from the prior", "at the prior's mean", "drawn as a whole")


def violated(path, delta: float, trials: int, start: int = 0) -> int:
    found = 0
    for seed in range(start, start + trials):
        risk, bound = path(Case(seed), delta)
        found += risk > bound
    return found


@pytest.mark.parametrize("path", PATHS)
def test_in_a_few_experiments_no_way_is_violated_more_often_than_allowed(path):
    assert violated(PATHS[path], 0.3, 8) <= allowed(0.3, 8)


@pytest.mark.slow
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("path", PATHS)
def test_no_way_is_violated_more_often_than_delta(path, delta):
    trials = 100
    found = violated(PATHS[path], delta, trials, start=1000)
    print(f"{path}, delta {delta}: {found} of {trials}")
    assert found <= allowed(delta, trials)
    if delta == 0.9 and path in EXACT:
        assert found >= 0.3 * trials, "an exact bound spends what whole numbers of errors allow"


# --- broken variants -------------------------------------------------------------------------------


def test_the_least_of_many_that_pays_for_one_is_caught():
    """Twenty looks at one hold-out set: the least bound at δ is violated far more often than δ."""
    broken = paid = 0
    trials, delta, looks = 60, 0.1, 20
    for seed in range(trials):
        case = Case(seed)
        drawn = case.prior.sample(looks, generator=case.dice)[""]
        errors = [_errors(case, w) for w in drawn]
        best = min(range(looks), key=lambda i: errors[i])
        risk = case.risk_at(drawn[best])
        broken += risk > clopper_pearson(errors[best], N, delta)
        paid += risk > clopper_pearson(errors[best], N, delta / looks)
    assert broken > allowed(delta, trials)
    assert paid <= allowed(delta, trials)


def test_draws_that_do_not_pay_for_the_choice_are_caught():
    """The least of twenty Gibbs estimates, each taken from above at δ′ alone, is too low too often."""
    broken = paid = 0
    trials, share, looks, m = 60, 0.1, 20, 30
    for seed in range(trials):
        case = Case(seed)
        one = tuple(part[:1] for part in case.data)  # a single example: its errors are throws of one coin
        options = {"generator": case.dice, "progress": False}
        exact = pt.gibbs_risk(case.model, case.prior, one, passes=20_000, batch_size=20_000, **options).error
        found = min(pt.gibbs_risk(case.model, case.prior, one, passes=m, **options).error for _ in range(looks))
        broken += exact > klinv(found, math.log(1 / share) / m)
        paid += exact > klinv(found, math.log(looks / share) / m)
    assert broken > allowed(share, trials)
    assert paid <= allowed(share, trials)


def test_a_posterior_that_does_not_pay_for_its_divergence_is_caught():
    broken = paid = 0
    for seed in range(10):
        task = SyntheticTask(seed, 40, dimensions=40)
        prior = pt.isotropic(task.model, 1.0)
        pt.train(task.model, task.data, None, validation=None, epochs=30, lr=0.2, progress=False)
        posterior = pt.isotropic(task.model, 1e4, mean="model")
        error = pt.gibbs_risk(
            task.model, posterior, task.data, passes=5, generator=task.generator, progress=False
        ).error
        risk = task.risk(posterior)
        kl = sum(divergence(posterior, prior).values())
        broken += risk > maurer(error, 0.0, 40, 0.05)
        paid += risk > maurer(error, kl, 40, 0.05)
    assert broken > allowed(0.05, 10)
    assert paid <= allowed(0.05, 10)


def test_copies_that_count_are_caught():
    """A few hard or easy examples, a hundred times each: taken for a sample of their size they promise far too much."""
    broken = 0
    for seed in range(40):
        case = Case(seed)
        x, y = (part[:6].repeat_interleave(100, 0) for part in case.data)
        drawn = pt.gibbs_risk(case.model, case.prior, (x, y), passes=1, generator=case.dice, progress=False)
        broken += case.task.risk(case.prior) > clopper_pearson(round(drawn.error * 600), 600, 0.05)
    assert broken > allowed(0.05, 40)
    assert violated(with_copies, 0.05, 40) <= allowed(0.05, 40)


def _errors(case: Case, w: torch.Tensor) -> int:
    x, y = case.data
    outputs = x @ w[:, :-1].T + w[:, -1]
    return int((outputs.argmax(1) != y).sum())
