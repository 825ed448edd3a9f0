"""Independent experiments on tasks whose risk is known: one for every path to a certificate.

An experiment makes a task, a prior and, where the path has one, a posterior. It then gives the true risk and the bound for each
δ. The same experiment serves all δ: each rate is over independent tasks, and that is all a rate needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
from test_validity import SyntheticTask, laplace
from torch import Tensor, nn

import posterity as pt
from posterity.pacbayes import FAMILY, clopper_pearson
from posterity.pacbayes.bounds import folds_bound
from posterity.pacbayes.regression import certify_clipped
from posterity_studies.shared.strengths import optimise_strengths
from posterity_studies.shared.sub_gamma import LinearModel

DELTAS = (0.05, 0.3, 0.9)
N = 40
TRIALS = {"few-shot": 50, "folds": 50}
"""Experiments of paths that take long; 100 of the others. What is too many goes by their number."""

Outcome = tuple[float, float]
"""(true risk, bound)"""


class Case:
    """A task, and a wide prior around the truth."""

    def __init__(self, seed: int, n: int = N) -> None:
        self.task = SyntheticTask(seed, n)
        centre = torch.cat((self.task.mu, self.task.mu.new_zeros(1)))[None] * torch.tensor([[-0.5], [0.5]])
        self.prior = pt.isotropic(self.task.model, 4.0, mean={"": centre.double()}, vouched="by hand")
        self.model, self.data, self.dice = self.task.model, self.task.data, self.task.generator
        self.quiet = {"generator": self.dice, "progress": False}

    def certify(self, posterior, delta: float, **options):
        """Without a generator: the seed of the draws follows from what is certified, as for a user who gives none."""
        return pt.certify(self.model, posterior, self.prior, self.data, 1 - delta, progress=False, **options)

    def risk(self, gaussian) -> float:
        return self.task.risk(gaussian, draws=10_000)

    def risk_at(self, matrix: Tensor) -> float:
        """The exact risk of one network."""
        cold = pt.isotropic(self.model, 1e12, mean={"": matrix}, vouched="by hand")
        return self.task.risk(cold, draws=1)

    def risk_of(self, certificate, posterior) -> float:
        """The risk of the predictor that a certificate speaks of."""
        match certificate.predictor:
            case "the network at the prior's mean":
                return self.risk_at(self.prior.mean[""])
            case "a network drawn at random from the prior":
                return self.risk(self.prior)
        return self.risk(posterior)


def drawn_from_prior(case: Case) -> list[Outcome]:
    risk = case.risk(case.prior)
    return [(risk, case.certify(case.prior, delta).bound) for delta in DELTAS]


def by(*methods: str) -> Callable[[Case], list[Outcome]]:
    """A posterior that has learned from the data, certified by some of the methods."""

    def path(case: Case) -> list[Outcome]:
        posterior = laplace(case.task, case.prior)
        found = [case.certify(posterior, delta, methods=methods, passes=20) for delta in DELTAS]
        return [(case.risk_of(c, posterior), c.bound) for c in found]

    return path


def hold_out(case: Case) -> list[Outcome]:
    """The bound beside every certificate."""
    risk = case.risk_at(case.prior.mean[""])
    return [(risk, case.certify(case.prior, delta).holdout.bound) for delta in DELTAS]


def best_of_draws(case: Case) -> list[Outcome]:
    found = [
        pt.pacbayes.sample_then_evaluate(case.model, case.prior, case.data, 1 - delta, draws=5, generator=case.dice)
        for delta in DELTAS
    ]
    return [(case.risk_at(one.weights[""]), one.certificate.bound) for one in found]


def least_of_priors(case: Case) -> list[Outcome]:
    """The least of three certificates, each of which pays for three."""
    priors = [pt.isotropic(case.model, p, mean=case.prior.mean, vouched="by hand") for p in (0.5, 4.0, 30.0)]
    risks = [case.risk(prior) for prior in priors]
    outcomes = []
    for delta in DELTAS:
        bounds = [pt.certify(case.model, p, p, case.data, 1 - delta, grid=3, **case.quiet).bound for p in priors]
        bound, risk = min(zip(bounds, risks, strict=True))
        outcomes.append((risk, bound))
    return outcomes


def with_copies(case: Case) -> list[Outcome]:
    """Some examples come many times."""
    x, y = case.data
    many = torch.cat((x, x[:5].repeat_interleave(20, 0))), torch.cat((y, y[:5].repeat_interleave(20)))
    risk = case.risk(case.prior)
    return [(risk, pt.certify(case.model, case.prior, case.prior, many, 1 - d, **case.quiet).bound) for d in DELTAS]


class ByHand(nn.Module):
    """The same linear classifier, with its weight read by hand: it can only be drawn as a whole."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.f = layer

    def forward(self, x):
        return x @ self.f.weight.T + self.f.bias + 0 * self.f(x)


def drawn_as_a_whole(case: Case) -> list[Outcome]:
    model = ByHand(case.model)
    prior = pt.isotropic(model, 4.0, mean={"f": case.prior.mean[""]}, vouched="by hand")
    risk = case.risk(case.prior)
    return [(risk, pt.certify(model, prior, prior, case.data, 1 - d, **case.quiet).bound) for d in DELTAS]


def split(case: Case) -> list[Outcome]:
    """A prior refined on a half, certified by the other."""
    refined = pt.split_prior(case.model, case.data, training=QUICK, scales="bayes", **case.quiet)
    risk = case.risk(refined.prior)
    return [(risk, refined.certify(1 - delta, **case.quiet).bound) for delta in DELTAS]


def split_and_optimised(case: Case) -> list[Outcome]:
    """The same with a posterior that is optimised for the bound on the certifying half."""
    refined = pt.split_prior(case.model, case.data, training=QUICK, scales="bayes", **case.quiet)
    better = pt.pacbayes.optimise_posterior(
        case.model, refined.prior, refined.prior, refined.rest, epochs=6, lr=0.05, batch_size=16, **case.quiet
    )
    risk = case.risk(better)
    return [
        (risk, pt.certify(case.model, better, refined.prior, refined.rest, 1 - d, passes=20, **case.quiet).bound)
        for d in DELTAS
    ]


def optimised(case: Case) -> list[Outcome]:
    start = case.prior.tempered(0.5)
    better = pt.pacbayes.optimise_posterior(
        case.model, start, case.prior, case.data, epochs=8, lr=0.05, batch_size=20, **case.quiet
    )
    risk = case.risk(better)
    return [(risk, case.certify(better, delta, passes=20).bound) for delta in DELTAS]


def recursive(case: Case) -> list[Outcome]:
    outcomes = []
    for delta in DELTAS:
        found = pt.pacbayes.recursive_certificate(
            case.model, case.prior, case.data, 1 - delta, chunks=2, epochs=4, updates=1, batch_size=16, **case.quiet
        )
        outcomes.append((case.risk(found.posterior), found.certificate.bound))
    return outcomes


def few_shot(case: Case) -> list[Outcome]:
    """Twelve examples after a learned prior: strengths are chosen by them, and the tightest of four methods is taken."""
    sign = 2 * torch.randint(2, (60,), generator=case.dice) - 1
    x = sign[:, None] * case.task.mu + torch.randn(60, 2, generator=case.dice, dtype=torch.float64)
    prior = pt.learn(case.model, (x, (sign > 0).long()), training=QUICK, **case.quiet).posterior
    few = tuple(part[:12] for part in case.data)
    fit = pt.adapt(case.model, few, prior, head="keep", **case.quiet)
    case.prior = fit.prior
    found = [fit.certify(few, 1 - delta, passes=20, **case.quiet) for delta in DELTAS]
    return [(case.risk_of(c, fit.posterior), c.bound) for c in found]


def folds(case: Case) -> list[Outcome]:
    """Fits of few examples with a new head, each tested by the part it was learned without. Risks are those of 4,000 others."""
    x, y = _others(case, 60)
    prior = pt.learn(case.model, (x, y), training=QUICK, **case.quiet).posterior
    found = pt.certify_folds(case.model, prior, case.data, head="new", learner="adapt", folds=2, **case.quiet)
    x, y = _others(case, 4000, flipped=0.1)
    risk = sum(float((fit.predict(x).probs.argmax(1) != y).double().mean()) for fit in found.fits) / 2
    return [(risk, folds_bound(found.certificate.folds, delta)) for delta in DELTAS]


def _others(case: Case, n: int, flipped: float = 0.0) -> tuple[Tensor, Tensor]:
    """More examples of the task."""
    sign = 2 * torch.randint(2, (n,), generator=case.dice) - 1
    x = sign[:, None] * case.task.mu + torch.randn(n, 2, generator=case.dice, dtype=torch.float64)
    return x, ((sign > 0) ^ (torch.rand(n, generator=case.dice) < flipped)).long()


def strengths(case: Case) -> list[Outcome]:
    """A posterior and the strengths of its prior, both optimised on the certifying examples."""
    prior = pt.learn(case.model, _others(case, 60), training=QUICK, **case.quiet).posterior
    found = optimise_strengths(
        case.model, prior, prior, case.data, epochs=6, lr=0.05, lr_scales=0.3, batch_size=20, **case.quiet
    )
    risk, case.prior = case.risk(found.posterior), found.prior
    return [(risk, case.certify(found.posterior, delta, passes=20).bound) for delta in DELTAS]


def columns(case: Case) -> list[Outcome]:
    """The second column of a progressive network. Its risk is measured on 20,000 examples, each met by a draw of its own."""
    torch.manual_seed(case.task.generator.initial_seed())
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    options = {"training": QUICK | {"batch_size": 16}, "scales": pt.Scales()}
    learner = pt.BPNN(model, pt.isotropic(model, 1.0), ["0"], "2", **options)
    first = SyntheticTask(20_000_000 + case.task.generator.initial_seed(), N)
    for name, data in (("a", first.data), ("b", case.data)):
        learner.learn(pt.Task(name, data, None, None, 2), **case.quiet)
    fresh = SyntheticTask(case.task.generator.initial_seed(), N)
    sign = 2 * torch.randint(2, (20_000,), generator=case.dice) - 1
    x = sign[:, None] * fresh.mu + torch.randn(20_000, 2, generator=case.dice, dtype=torch.float64)
    flipped = torch.rand(20_000, generator=case.dice) < 0.1
    test = x, ((sign > 0) ^ flipped).long()
    risk = pt.pacbayes.gibbs_risk(
        learner.network("b"), learner.posterior("b"), test, passes=1, batch_size=5000, **case.quiet
    ).error
    return [
        (risk, learner.certify("b", data=case.data, confidence=1 - d, passes=20, **case.quiet).bound) for d in DELTAS
    ]


CLIP = 4.0


def regression(case: Case) -> list[Outcome]:
    """A linear regression, clipped: y − wᵀx is normal, so that the expected loss of a draw is known."""
    theta, x, y = _line(case, 0.5)
    torch.manual_seed(0)
    model = nn.Linear(2, 1).double()
    prior = pt.isotropic(model, 1.0)
    pt.train(model, (x, y), prior, pt.GaussianNoise(4.0), validation=None, epochs=12, lr=0.1, progress=False)
    curvature = pt.estimate(model, (x, y), pt.KFAC(), pt.GaussianNoise(4.0), **case.quiet)
    posterior = pt.update(model, curvature, prior)
    w = posterior.sample(4000, generator=case.dice)[""][:, 0]
    spread = ((w[:, :2] - theta).square().sum(1) + 0.25).sqrt()
    risk = float(_clipped_mean(spread, w[:, 2]).mean())
    return [
        (risk, certify_clipped(model, posterior, prior, (x, y), CLIP, 1 - d, generator=case.dice).bound) for d in DELTAS
    ]


def _line(case: Case, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    theta = torch.tensor([0.8, -0.5], dtype=torch.float64)
    x = torch.randn(N, 2, generator=case.dice, dtype=torch.float64)
    y = x @ theta + noise * torch.randn(N, generator=case.dice, dtype=torch.float64)
    return theta, x, y[:, None]


def _clipped_mean(spread: Tensor, shift: Tensor) -> Tensor:
    """E min(r², clip) for r ~ N(−shift, spread²), by 400 evenly spaced quantiles."""
    q = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
    z = math.sqrt(2) * torch.erfinv(2 * q - 1)
    return (spread[:, None] * z - shift[:, None]).square().clamp_max(CLIP).mean(1)


def linear_model(case: Case) -> list[Outcome]:
    """The closed form for a linear model whose assumptions hold: expected nats of draws from its posterior."""
    theta, x, y = _line(case, 1.0)
    assumed = LinearModel(1.0, 0.01, 1.0, float(theta.norm()))
    mean, precision = assumed.posterior(x, y[:, 0])
    away = (mean - theta).square().sum() + torch.linalg.inv(precision).trace()
    risk = 0.5 * float(away + 1.0) + 0.5 * math.log(2 * math.pi)
    return [(risk, assumed.bound(x, y[:, 0], delta)) for delta in DELTAS]


QUICK = {"epochs": 4, "lr": 0.05}

PATHS: dict[str, Callable[[Case], list[Outcome]]] = {
    "drawn from the prior": drawn_from_prior,
    "methods: draws": by("draws"),
    "methods: excess": by("excess"),
    "methods: prior": by("prior"),
    "methods: mean": by("mean"),
    "methods: all four": by(*FAMILY),
    "hold-out": hold_out,
    "best of draws": best_of_draws,
    "least of several priors": least_of_priors,
    "with copies": with_copies,
    "drawn as a whole": drawn_as_a_whole,
    "split": split,
    "split, then optimised": split_and_optimised,
    "optimised": optimised,
    "recursive": recursive,
    "few-shot": few_shot,
    "folds": folds,
    "strengths": strengths,
    "columns": columns,
    "regression, clipped": regression,
    "regression, linear model": linear_model,
}

EXACT: dict[str, int] = {
    "drawn from the prior": N,
    "methods: prior": N,
    "methods: mean": N,
    "hold-out": N,
    "drawn as a whole": N,
    "split": N // 2,
}
"""Paths whose bound is Clopper's and Pearson's for one binomial sample, and the sample's size: their rate is known exactly."""


def violations(path: str, trials: int, start: int = 0) -> tuple[list[int], list[list[float]]]:
    """For each δ how often the risk was above the bound, and the true risks."""
    found, risks = [0] * len(DELTAS), [[] for _ in DELTAS]
    for seed in range(start, start + trials):
        for k, (risk, bound) in enumerate(PATHS[path](Case(seed))):
            found[k] += risk > bound
            risks[k].append(risk)
    return found, risks


# --- what the counts may be ------------------------------------------------------------------------

ALARM = 1e-4
"""How often a test may fail though all is right: fixed before any rate was looked at."""


def too_many(found: int, trials: int, delta: float) -> bool:
    """Whether so many violations have a chance below `ALARM` if each has a probability of δ at most (binomial test)."""
    return _tail(found, [delta] * trials) < ALARM


def too_few(found: int, expected: Sequence[float]) -> bool:
    """Whether so few have a chance below `ALARM`, if each trial is violated with its own exact probability."""
    return 1 - _tail(found + 1, expected) < ALARM


def exact_rate(risk: float, n: int, delta: float) -> float:
    """The probability that Clopper's and Pearson's bound at δ is below the risk: what whole numbers of errors allow."""
    k = torch.arange(n + 1, dtype=torch.float64)
    top = torch.tensor(n + 1.0, dtype=torch.float64)
    logs = torch.lgamma(top) - torch.lgamma(k + 1) - torch.lgamma(top - k)
    chances = (logs + k * math.log(risk) + (n - k) * math.log1p(-risk)).exp()
    return float(chances[torch.tensor(_bounds(n, delta), dtype=torch.float64) < risk].sum())


@cache
def _bounds(n: int, delta: float) -> tuple[float, ...]:
    """By the number of errors."""
    return tuple(clopper_pearson(errors, n, delta) for errors in range(n + 1))


def _tail(least: int, chances: Sequence[float]) -> float:
    """The probability of at least so many successes in trials with these chances."""
    ways = torch.zeros(len(chances) + 1, dtype=torch.float64)
    ways[0] = 1.0
    for p in chances:
        ways[1:] = ways[1:] * (1 - p) + ways[:-1] * p
        ways[0] *= 1 - p
    return float(ways[least:].sum())
