"""PAC-Bayes bounds on a risk in [0, 1]: pure functions of numbers, in float64.

All hold with probability at least 1 − delta over n examples the prior has not seen, for the *Gibbs* risk (the mean
error of single draws). `kl` is KL(posterior ‖ prior) in nats. `Spending` says which delta each may take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from posterity.laplace.evidence import minimise

DRAWS_SHARE = 0.02
"""How much of 1 − confidence goes into estimating the Gibbs error; the bound itself takes the rest."""


@dataclass(frozen=True)
class Spending:
    """An account of 1 − confidence. A choice among K things divides it by K, and choices multiply: a union bound."""

    total: float
    payments: tuple[tuple[str, int], ...] = ()
    """What was chosen, and from how many."""

    def __post_init__(self) -> None:
        if not 0 < self.total < 1:
            raise ValueError(f"a confidence lies between 0 and 1, not {1 - self.total}")

    def paying(self, what: str, options: int) -> Spending:
        """The account after one more choice. A choice among one costs nothing and is not written down."""
        if options < 1:
            raise ValueError(f"{what}: a choice is from at least one, not {options}")
        return self if options == 1 else replace(self, payments=(*self.payments, (what, options)))

    @property
    def options(self) -> int:
        """The number of combinations that the union bound pays for."""
        return math.prod(options for _, options in self.payments)

    @property
    def each(self) -> float:
        """What one combination may spend."""
        return self.total / self.options

    @property
    def bound(self) -> float:
        """δ of one combination, where draws estimate the Gibbs error."""
        return self.each * (1 - DRAWS_SHARE)

    @property
    def draws(self) -> float:
        """δ′ of one combination: what its draws may spend."""
        return self.each * DRAWS_SHARE

    def __str__(self) -> str:
        if not self.payments:
            return f"{self.total:g}, for one thing declared in advance"
        what = " × ".join(f"{options} ({what})" for what, options in self.payments)
        return f"{self.total:g} over {what}"


def binary_kl(q: float, p: float) -> float:
    """kl(q‖p) between two coins, in nats; infinite where p excludes what q allows."""
    _probability(q, "q")
    _probability(p, "p")
    return _term(q, p) + _term(1 - q, 1 - p)


def _term(a: float, b: float) -> float:
    if a == 0:
        return 0.0
    return math.inf if b == 0 else a * math.log(a / b)


def klinv(q: float, c: float) -> float:
    """sup{p ≥ q : kl(q‖p) ≤ c}, from above: bisection that returns the upper end, so rounding never makes a bound too small."""
    _probability(q, "q")
    if not c >= 0:
        raise ValueError(f"a divergence is non-negative, not {c}")
    if q == 1 or c == math.inf:
        return 1.0
    low, high = q, 1.0
    # Halving a double can go on for about a thousand steps near zero; each is a few operations.
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return high
        if _term(q, middle) + _term(1 - q, 1 - middle) > c:
            high = middle
        else:
            low = middle


def clopper_pearson(errors: int, n: int, delta: float) -> float:
    """The largest p at which n throws of a coin show `errors` or fewer with probability delta (Clopper and Pearson 1934).

    An upper bound on the risk of one predictor from its errors on n examples, exact: no divergence, no square root. Found by
    bisection, which returns the upper end.
    """
    if type(errors) is not int or type(n) is not int or not 0 <= errors <= n or n < 1:
        raise ValueError(f"errors are a whole number from 0 to n ≥ 1, not {errors} of {n}")
    if not 0 < delta < 1:
        raise ValueError(f"delta lies between 0 and 1, not {delta}")
    if errors == n:
        return 1.0
    if errors == 0:
        # (1 − p)ⁿ = δ; the next number above, so that rounding does not make the bound too small.
        return math.nextafter(-math.expm1(math.log(delta) / n), 1.0)
    k = torch.arange(errors + 1, dtype=torch.float64)
    top = torch.tensor(n + 1.0, dtype=torch.float64)
    choose = torch.lgamma(top) - torch.lgamma(k + 1) - torch.lgamma(top - k)
    low, high = errors / n, 1.0
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high or high - low < 1e-14:
            return high
        tail = torch.logsumexp(choose + k * math.log(middle) + (n - k) * math.log1p(-middle), 0)
        # Logarithms of factorials are rounded: what is near the border counts as inside.
        if float(tail) + 1e-8 < math.log(delta):
            high = middle
        else:
            low = middle


def maurer(risk: float, kl: float, n: int, delta: float) -> float:
    """Maurer's and Seeger's bound: klinv(risk, (KL + ln(2√n/δ))/n). The tightest of these, and what certificates use."""
    return klinv(risk, _cost(kl, n, delta))


def mcallester(risk: float, kl: float, n: int, delta: float) -> float:
    """risk + √((KL + ln(2√n/δ))/2n). May exceed one; the paper reports it so."""
    _probability(risk, "risk", most=math.inf)
    return risk + math.sqrt(_cost(kl, n, delta) / 2)


def quadratic(risk: float, kl: float, n: int, delta: float) -> float:
    """(√(risk + x) + √x)² with x = (KL + ln(2√n/δ))/2n: between McAllester's and Maurer's for small risks."""
    _probability(risk, "risk", most=math.inf)
    x = _cost(kl, n, delta) / 2
    return (math.sqrt(risk + x) + math.sqrt(x)) ** 2


def lambda_bound(risk: float, kl: float, n: int, delta: float) -> float:
    """inf over λ in (0, 2) of risk/(1 − λ/2) + (KL + ln(2√n/δ))/(nλ(1 − λ/2)), in closed form (Thiemann et al. 2017)."""
    _probability(risk, "risk", most=math.inf)
    x = _cost(kl, n, delta)
    if x == math.inf:
        return math.inf
    lam = 2 / (math.sqrt(2 * risk / x + 1) + 1)
    return risk / (1 - lam / 2) + x / (lam * (1 - lam / 2))


def catoni(risk: float, kl: float, n: int, delta: float, c: float) -> float:
    """(1 − exp(−c·risk − (KL + ln(1/δ))/n)) / (1 − e^−c), for a c chosen before the data was seen."""
    _probability(risk, "risk", most=math.inf)
    _sizes(kl, n, delta)
    if not c > 0:
        raise ValueError(f"c is positive, not {c}")
    return -math.expm1(-c * risk - (kl - math.log(delta)) / n) / -math.expm1(-c)


def catoni_best(risk: float, kl: float, n: int, delta: float) -> tuple[float, float]:
    """The least Catoni value over c, and its c.

    The paper's figure: an *estimate* of a bound, since c is chosen after the fact without a union bound.
    As a function of the risk it equals klinv(risk, (KL + ln(1/δ))/n) for risks up to one.
    """
    _sizes(kl, n, delta)
    if not 0 < risk < 1:
        # Beyond a risk of one there is no inverse; at zero the best c is without end.
        log_c = minimise(lambda t: catoni(risk, kl, n, delta, math.exp(t)), -20.0, 8.0)
        return catoni(risk, kl, n, delta, math.exp(log_c)), math.exp(log_c)
    # The tangent of kl at the inverse: its slope in the risk is −c.
    p = klinv(risk, (kl - math.log(delta)) / n)
    slope = math.log(p / risk) + math.log1p(-risk) - math.log1p(-min(p, 1 - 1e-16))
    c = min(max(slope, math.exp(-20.0)), math.exp(8.0))
    return catoni(risk, kl, n, delta, c), c


def count_bound(error: float, n: int, delta: float, *, grouped: bool = False) -> float:
    """A risk from the mean error of n independent units, each met once: no choice, no divergence.

    A unit of one example errs or not: Clopper and Pearson, whole errors rounded up. The mean error of a group is a number in
    [0, 1]: klinv(error, ln(1/δ)/n) (Hoeffding 1963), or Clopper and Pearson at δ/e (Bentkus 2004). Both bound the same chance, so
    that the lesser holds.
    """
    whole = min(n, math.ceil(error * n - 1e-9))
    if not grouped:
        return clopper_pearson(whole, n, delta)
    return min(klinv(min(1.0, error), -math.log(delta) / n), clopper_pearson(whole, n, delta / math.e))


def folds_bound(folds: Sequence[tuple[float, int]], delta: float, *, grouped: bool = False) -> float:
    """The mean risk of some predictors, each bounded by units of its own: all at once, by a union over them.

    A fold is the errors of its units, summed, and how many units it has.
    """
    return sum(count_bound(errors / n, n, delta / len(folds), grouped=grouped) for errors, n in folds) / len(folds)


def compression_bound(errors: float, n: int, picked: int, delta: float, *, grouped: bool = False) -> float:
    """What is learned from `picked` of n units, whichever these are, by its errors on the others: any number of both, at once.

    A union over sizes, and over all sets of each size: δ/(k(k + 1)) for the sets of k ≥ 1 together.
    """
    if not 1 <= picked < n:
        return 1.0
    log_sets = math.lgamma(n + 1) - math.lgamma(picked + 1) - math.lgamma(n - picked + 1)
    part = delta / (picked * (picked + 1)) * math.exp(-log_sets)
    return count_bound(errors / (n - picked), n - picked, part, grouped=grouped)


def preferent_bound(picked: int, n: int, delta: float) -> float:
    """The risk of what is learned from `picked` of n units, if the most disliked was picked each time and no other is an error.

    The ε at which (δ/n) Σ_{m=k}^{n−1} C(m,k)/C(n,k) (1 − ε)^{−(n−m)} = 1 (Campi and Garatti 2023, for preferent
    compression; Paccagnan, Campi and Garatti 2023 show that Pick-to-Learn is one). Bisection, which returns the upper end.
    """
    if picked >= n:
        return 1.0
    m = torch.arange(picked, n, dtype=torch.float64)
    k = torch.tensor(float(picked), dtype=torch.float64)

    def log_choose(top: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(top + 1) - torch.lgamma(k + 1) - torch.lgamma(top - k + 1)

    logs = log_choose(m) - log_choose(torch.tensor(float(n), dtype=torch.float64)) + math.log(delta / n)
    low, high = picked / n, 1.0
    while high - low > 1e-13:
        middle = 0.5 * (low + high)
        above = float(torch.logsumexp(logs - (n - m) * math.log1p(-middle), 0)) > 1e-8
        low, high = (low, middle) if above else (middle, high)
    return high


def excess_bound(
    error: float,
    shares: tuple[float, ...],
    n: int,
    replicates: int,
    kl: float,
    delta: float,
    delta_draws: float,
    *,
    grouped: bool = False,
) -> float:
    """risk(ρ) = risk(mean) + P(errs no less) + P(errs more) − 1, each bounded with its part of δ and δ′."""
    total = count_bound(error, n, delta / 3, grouped=grouped) - 1
    for share in shares:
        upper = klinv(share, math.log(2 / delta_draws) / replicates)
        total += klinv(upper, (kl + math.log(6 * math.sqrt(n) / delta)) / n)
    return min(1.0, max(0.0, total))


def _cost(kl: float, n: int, delta: float) -> float:
    _sizes(kl, n, delta)
    return (kl + math.log(2 * math.sqrt(n) / delta)) / n


def _sizes(kl: float, n: int, delta: float) -> None:
    if not kl >= 0:
        raise ValueError(f"a KL divergence is non-negative, not {kl}")
    if n < 1:
        raise ValueError(f"a bound needs at least one example, not {n}")
    if not 0 < delta < 1:
        raise ValueError(f"delta lies between 0 and 1, not {delta}")


def _probability(x: float, name: str, most: float = 1.0) -> None:
    if not 0 <= x <= most:
        raise ValueError(f"{name} lies between 0 and {most:g}, not {x}")
