"""What a certificate says, and all that a reviewer needs to compute it again."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from posterity.files import write_whole
from posterity.pacbayes.bounds import clopper_pearson, excess_bound, folds_bound, klinv

FORMAT = 2
RULES = ("binomial", "klinv", "excess", "folds")
PREDICTORS = (
    "a network drawn anew from the posterior",
    "a network drawn anew from the prior",
    "the network at the prior's mean",
    "the network that was drawn and kept",
    "one of several fits, drawn anew, each learned without a part of the examples",
)
FOLDS = PREDICTORS[-1]


@dataclass(frozen=True)
class Holdout:
    """What the same examples would say of the network at the prior's mean, as plain test data: no Bayes needed."""

    error: float
    bound: float


@dataclass(frozen=True)
class Certificate:
    """A bound on the risk of a predictor that holds with the stated probability, over the examples and over the draws.

    With K = `grid`, the number of all combinations of things that were chosen among, δ + δ′ = 1 − confidence, there are four
    rules. "binomial": `errors` of n examples, each met once by the predictor (or by a draw of its own), by Clopper and Pearson at
    δ/K. "klinv": klinv(upper, (KL + ln(2K√n/δ))/n) with upper = klinv(gibbs, ln(K/δ′)/m). "excess": the network at the prior's
    mean by Clopper and Pearson, plus what draws err more than it (split-kl: two coins by klinv), each with a third of δ.
    "folds": the mean of Clopper's and Pearson's bounds for fits that were learned without a part each, by that part, at δ/K over
    their number.
    """

    bound: float
    confidence: float
    rule: str
    predictor: str
    delta: float
    """The share of 1 − confidence that pays for the bound."""
    delta_draws: float
    """The share that pays for estimating the Gibbs error by draws."""
    n: int
    """Distinct examples that certify, none of which the prior has seen."""
    gibbs: float
    """Mean 0-1 error of the predictor."""
    upper: float
    """The same from above: what it is at most, but for `delta_draws`."""
    holdout: Holdout
    payments: tuple[tuple[str, int], ...] = ()
    """What was chosen by looking at the examples, or may have been, and from how many."""
    errors: int = 0
    """Of the binomial rule; of the excess rule, those of the network at the prior's mean."""
    shares: tuple[float, ...] = ()
    """Of the excess rule: how often a draw errs no less, and more, than the network at the prior's mean."""
    folds: tuple[tuple[int, int], ...] = ()
    """Of the rule of folds: (errors, examples) of every part."""
    replicates: int = 0
    kl: float = 0.0
    examples: int = 0
    """All examples, copies included."""
    drawn_per: str = "example"
    kl_by_block: Mapping[str, float] = field(default_factory=dict)
    prior: str = ""
    posterior: str = ""
    data: str = ""
    """Fingerprints."""
    checks: tuple[str, ...] = ()
    """What was looked for, and not found."""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def grid(self) -> int:
        """K: all combinations that the union is over."""
        return math.prod(options for _, options in self.payments)

    def recomputed(self) -> float:
        """The bound again from the numbers it is made of."""
        k = self.grid
        if self.rule == "binomial":
            return clopper_pearson(self.errors, self.n, self.delta / k)
        if self.rule == "folds":
            return folds_bound(self.folds, self.delta / k)
        if self.rule == "klinv":
            upper = klinv(self.gibbs, math.log(k / self.delta_draws) / self.replicates)
            return klinv(upper, (self.kl + math.log(2 * k * math.sqrt(self.n) / self.delta)) / self.n)
        return excess_bound(
            self.errors, self.shares, self.n, self.replicates, self.kl, self.delta / k, self.delta_draws / k
        )

    def recomputed_without_kl(self) -> float:
        """What the bound would be for a posterior that equals its prior: what n, δ and the draws alone cost."""
        return replace(self, kl=0.0).recomputed()

    def with_more(self, times: int) -> float:
        """What the bound would be if there were so many times as many examples, with the same errors and KL."""
        folds = tuple((times * errors, times * n) for errors, n in self.folds)
        return replace(
            self, n=times * self.n, errors=times * self.errors, replicates=times * self.replicates, folds=folds
        ).recomputed()

    @property
    def advice(self) -> str:
        """What would make the bound smaller."""
        if self.bound >= 1:
            more = f"{9 * self.n:,} more examples of the same error"
            return f"it says nothing yet: {more} would make it {self.with_more(10):.4f}"
        more = f"{self.n:,} more examples of the same error would make it {self.with_more(2):.4f}"
        parts = {"the error itself": self.gibbs, "the number of examples": self.recomputed_without_kl() - self.gibbs}
        if self.kl > 0:
            parts["KL to the prior"] = self.bound - self.recomputed_without_kl()
        largest = max(parts, key=lambda name: parts[name])
        return f"{more}; most of it is {largest}, {parts[largest]:.4f}"

    def __str__(self) -> str:
        return "\n".join(f"{name:<28}{value}" for name, value in self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """The certificate as a table a reviewer can follow from top to bottom."""
        percent = f"{100 * self.confidence:g} %"
        copies = f"   of {self.examples:,}, the others are copies" if self.examples > self.n else ""
        rows = [
            (f"risk, at {percent}", f"≤ {self.bound:.4f}   error of {self.predictor}"),
            ("hold-out bound beside it", f"≤ {self.holdout.bound:.4f}   prior's mean, error {self.holdout.error:.4f}"),
            ("examples n", f"{self.n:,}{copies}"),
        ]
        if self.rule == "binomial":
            rows.append(("errors", f"{self.errors:,}   each example met once: Clopper–Pearson"))
        elif self.rule == "folds":
            parts = ", ".join(f"{errors:,} of {n:,}" for errors, n in self.folds)
            rows.append(("errors", f"{parts}   Clopper–Pearson for each fit at its part of δ, averaged"))
        else:
            each = "an example" if self.drawn_per == "example" else "a batch"
            rows.append(
                ("Gibbs error", f"{self.gibbs:.4f}   {self.replicates:,} replicates, weights drawn for {each} each")
            )
            if self.rule == "klinv":
                cost = math.log(self.grid / self.delta_draws) / self.replicates
                rows.append(("from above", f"{self.upper:.4f}   klinv at ln(K/δ′)/m = {cost:.2e}"))
            else:
                rows.append(
                    ("errs more than the mean", f"{self.shares[1]:.4f}   and less {1 - self.shares[0]:.4f} of the time")
                )
            rows.append(("KL(posterior ‖ prior)", f"{self.kl:,.1f} nats   {self.kl / self.n:.4f} an example"))
        rows.append(("δ for the bound, the draws", f"{self.delta:g}, {self.delta_draws:g}"))
        paid = " × ".join(f"{options:,} ({what})" for what, options in self.payments)
        rows.append(
            ("K paid for", f"{self.grid:,}{f' = {paid}' if paid else '   nothing was chosen by these examples'}")
        )
        rows.append(("to make it smaller", self.advice))
        rows += [("checked", check) for check in self.checks]
        return rows

    def to_json(self) -> str:
        """An audit record: every number, fingerprint and version, on one line."""
        return json.dumps({"posterity_certificate": FORMAT} | asdict(self), ensure_ascii=False, sort_keys=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the audit record as a JSON file."""
        write_whole(path, self.to_json() + "\n")

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """A certificate from its record, refused if its numbers do not follow from each other."""
        from posterity.pacbayes.audit import audited  # which builds certificates, and so imports this module first

        return audited(text)
