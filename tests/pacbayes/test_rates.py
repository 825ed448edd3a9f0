"""How often certificates are violated, by independent experiments on tasks whose risk is known, for every path to one.

The thresholds were fixed before any rate was looked at. No path may be violated so often that a binomial test at δ says no, with
one false alarm in 10,000. Paths whose bound is Clopper's and Pearson's may not be violated too seldom either: their rate is known
exactly from the risk, the number of examples and δ. Broken variants are caught by the same tests.

`python tests/pacbayes/rates.py` writes the rates of docs/reliability.md.
"""

from __future__ import annotations

import math

import pytest
import torch
from experiments import ALARM, DELTAS, EXACT, PATHS, TRIALS, Case, N, exact_rate, too_few, too_many, violations
from test_validity import SyntheticTask

import posterity as pt
from posterity.pacbayes import clopper_pearson, klinv, maurer
from posterity.pacbayes.bounds import folds_bound
from posterity.pacbayes.certify import divergence


@pytest.mark.parametrize("path", PATHS)
def test_in_two_experiments_every_path_gives_a_bound_for_every_delta(path):
    found, risks = violations(path, 2)
    assert not too_many(found[0], 2, DELTAS[0])
    assert all(0 < risk < 3 for one in risks for risk in one)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_no_path_is_violated_more_often_than_delta_nor_an_exact_one_less_often_than_it_must(path):
    trials = TRIALS.get(path, 100)
    found, risks = violations(path, trials, start=1000)
    for delta, count, true in zip(DELTAS, found, risks, strict=True):
        print(f"{path}, delta {delta}: {count} of {trials}")
        assert not too_many(count, trials, delta)
        if path in EXACT:
            assert not too_few(count, [exact_rate(risk, EXACT[path], delta) for risk in true])


def test_the_exact_rate_is_what_simulated_errors_show():
    dice = torch.Generator().manual_seed(0)
    risk, n, delta = 0.2, 40, 0.9
    errors = (torch.rand(4000, n, generator=dice) < risk).sum(1)
    bounds = {k: clopper_pearson(k, n, delta) for k in range(n + 1)}
    shown = sum(bounds[int(k)] < risk for k in errors) / 4000
    assert shown == pytest.approx(exact_rate(risk, n, delta), abs=0.03)
    assert 0 < exact_rate(risk, n, delta) <= delta


def test_the_tests_of_rates_know_too_many_and_too_few():
    assert too_many(30, 100, 0.1)
    assert not too_many(15, 100, 0.1)
    assert too_few(50, [0.8] * 100)
    assert not too_few(75, [0.8] * 100)


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
    assert too_many(broken, trials, delta)
    assert not too_many(paid, trials, delta)


def test_draws_that_do_not_pay_for_the_choice_are_caught():
    """The least of twenty Gibbs estimates, each taken from above at δ′ alone, is too low too often."""
    broken = paid = 0
    trials, share, looks, m = 60, 0.1, 20, 30
    for seed in range(trials):
        case = Case(seed)
        one = tuple(part[:1] for part in case.data)  # a single example: its errors are throws of one coin
        options = {"generator": case.dice, "progress": False}
        exact = pt.pacbayes.gibbs_risk(case.model, case.prior, one, passes=20_000, batch_size=20_000, **options).error
        found = min(
            pt.pacbayes.gibbs_risk(case.model, case.prior, one, passes=m, **options).error for _ in range(looks)
        )
        broken += exact > klinv(found, math.log(1 / share) / m)
        paid += exact > klinv(found, math.log(looks / share) / m)
    assert too_many(broken, trials, share)
    assert not too_many(paid, trials, share)


def test_a_posterior_that_does_not_pay_for_its_divergence_is_caught():
    broken = paid = 0
    for seed in range(10):
        task = SyntheticTask(seed, 40, dimensions=40)
        prior = pt.isotropic(task.model, 1.0)
        pt.train(task.model, task.data, None, validation=None, epochs=30, lr=0.2, progress=False)
        posterior = pt.isotropic(task.model, 1e4, mean="model")
        error = pt.pacbayes.gibbs_risk(
            task.model, posterior, task.data, passes=5, generator=task.generator, progress=False
        ).error
        risk = task.risk(posterior)
        kl = sum(divergence(posterior, prior).values())
        broken += risk > maurer(error, 0.0, 40, 0.05)
        paid += risk > maurer(error, kl, 40, 0.05)
    assert too_many(broken, 10, 0.05)
    assert not too_many(paid, 10, 0.05)


def test_copies_that_count_are_caught():
    """A few hard or easy examples, a hundred times each: taken for a sample of their size they promise far too much."""
    broken = 0
    for seed in range(40):
        case = Case(seed)
        x, y = (part[:6].repeat_interleave(100, 0) for part in case.data)
        drawn = pt.pacbayes.gibbs_risk(case.model, case.prior, (x, y), passes=1, generator=case.dice, progress=False)
        broken += case.task.risk(case.prior) > clopper_pearson(round(drawn.error * 600), 600, 0.05)
    assert too_many(broken, 40, 0.05)
    assert not too_many(violations("with copies", 20)[0][0], 20, 0.05)


def _errors(case: Case, w: torch.Tensor) -> int:
    x, y = case.data
    outputs = x @ w[:, :-1].T + w[:, -1]
    return int((outputs.argmax(1) != y).sum())


def test_a_split_that_certifies_by_what_it_learned_from_is_caught():
    """The share that refined the prior, taken for data that it has not seen: the same rule promises too much."""
    broken, trials, delta = 0, 12, 0.05
    for seed in range(trials):
        task = SyntheticTask(seed, 30, dimensions=30)
        pt.train(task.model, task.data, None, validation=None, epochs=40, lr=0.2, progress=False)
        refined = pt.isotropic(task.model, 1e4, mean="model")
        x, y = task.data
        wrong = int((task.model(x).argmax(1) != y).sum())
        broken += task.risk(refined, draws=500) > clopper_pearson(wrong, len(y), delta)
    assert too_many(broken, trials, delta)


def test_folds_that_have_seen_their_part_are_caught():
    """Networks that learned from all examples, tested by parts of them: what the refusal of such fits keeps out."""
    broken, trials, delta = 0, 12, 0.05
    for seed in range(trials):
        task = SyntheticTask(seed, 30, dimensions=30)
        pt.train(task.model, task.data, None, validation=None, epochs=40, lr=0.2, progress=False)
        x, y = task.data
        wrong = task.model(x).argmax(1) != y
        told = [(int(part.sum()), len(part)) for part in wrong.tensor_split(2)]
        broken += task.risk(pt.isotropic(task.model, 1e4, mean="model"), draws=500) > folds_bound(told, delta)
    assert too_many(broken, trials, delta)


def test_a_clipped_regression_that_does_not_pay_for_its_divergence_is_caught():
    """A posterior that follows the noise of few examples in many dimensions, bounded as if it were its prior."""
    broken, paid, trials, delta, clip = 0, 0, 12, 0.05, 4.0
    for seed in range(trials):
        dice = torch.Generator().manual_seed(seed)
        x = torch.randn(30, 29, generator=dice, dtype=torch.float64)
        y = torch.randn(30, generator=dice, dtype=torch.float64)
        w = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
        loss = float((y - x @ w).square().clamp_max(clip).mean()) / clip
        normal = torch.randn(20_000, generator=dice, dtype=torch.float64) * (1 + float(w @ w)) ** 0.5
        risk = float(normal.square().clamp_max(clip).mean()) / clip
        kl = 0.5 * float(w @ w) * 100.0  # of a posterior with the prior's width, a tenth
        broken += risk > maurer(loss, 0.0, 30, delta)
        paid += risk > maurer(loss, kl, 30, delta)
    assert too_many(broken, trials, delta)
    assert not too_many(paid, trials, delta)


def test_a_recursion_that_forgets_the_step_before_is_caught():
    """risk(ρ₂) − ½ risk(ρ₁) is no bound on risk(ρ₂): without the second half the last step promises too much."""
    broken, trials, delta = 0, 6, 0.05
    for seed in range(trials):
        case = Case(seed, 6000)
        found = pt.pacbayes.recursive_certificate(
            case.model, case.prior, case.data, 1 - delta, chunks=2, epochs=1, updates=1, passes=1, **case.quiet
        )
        first, last = found.certificate.steps
        risk = case.risk(found.posterior)
        assert risk <= found.certificate.bound
        broken += risk > last.bound - 0.5 * first.bound
    assert too_many(broken, trials, delta)


def test_strengths_that_are_chosen_and_not_paid_for_are_caught():
    """The least of many hold-out bounds at each δ: what few-shot certificates would be without their payments."""
    broken, trials, delta, options = 0, 60, 0.3, 30
    for seed in range(trials):
        case = Case(seed)
        priors = case.prior.sample(options, generator=case.dice)[""]
        errors = [_errors(case, w) for w in priors]
        best = min(range(options), key=lambda i: errors[i])
        broken += case.risk_at(priors[best]) > clopper_pearson(errors[best], N, delta)
    assert too_many(broken, trials, delta)
    assert ALARM <= 1e-3
