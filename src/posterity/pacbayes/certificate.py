"""What a certificate says, and all that a reviewer needs to compute it again."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from posterity.brief import brief
from posterity.files import write_whole
from posterity.pacbayes.bounds import (
    compression_bound,
    count_bound,
    excess_bound,
    folds_bound,
    klinv,
    preferent_bound,
)

FORMAT = 2
RULES = ("binomial", "klinv", "excess", "folds", "compression", "preferent")
PREDICTORS = (
    "a network drawn at random from the posterior",
    "a network drawn at random from the prior",
    "the network at the prior's mean",
    "the network that was drawn and kept",
    "one of several fits, drawn at random, each learned without a part of the examples",
    "the fit that learned from the examples that were picked",
    "the fit that learned from a part of the examples",
    "the fit itself",
)
OF_POSTERIOR, OF_PRIOR, AT_MEAN, KEPT, FOLDS, PICKED, PART, ITSELF = PREDICTORS
IN_PLAIN_WORDS = dict(
    zip(
        PREDICTORS,
        (
            "a network drawn from the posterior, another for every input. It is not what predict() uses, which averages",
            "a network drawn from the prior, another for every input. It learned nothing from these examples: not predict()",
            "the network at the prior's mean. It learned nothing from these examples: not what predict() uses",
            "the one network that was drawn from the prior and kept. It is not what predict() of a fit uses",
            "one of the fits, picked at random for every input. Each of them answers as its own predict() does",
            "the one fit that learned from the few examples that were picked. It is what its predict() uses",
            "the one fit that learned from a part of these examples. It is what its predict() uses",
            "the fit itself: it is what predict() uses. It learned nothing from these examples",
        ),
        strict=True,
    )
)
UNITS = ("example", "group")


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
    δ/K; for n groups, whose mean errors are numbers in [0, 1], by Hoeffding or Bentkus.
    "klinv": klinv(upper, (KL + ln(2K√n/δ))/n) with upper = klinv(gibbs, ln(K/δ′)/m).
    "excess": the network at the prior's mean as by "binomial", plus what draws err more (split-kl: two coins by klinv), each
    with a third of δ. "folds": the mean of binomial bounds for fits that were learned without a part each, by that part, at δ/K
    over their number.
    """

    __repr__ = brief

    bound: float
    confidence: float
    rule: str
    predictor: str
    delta: float
    """The share of 1 − confidence that pays for the bound."""
    delta_draws: float
    """The share that pays for estimating the Gibbs error by draws."""
    n: int
    """Independent units that certify, none of which the prior has seen: distinct examples, or groups."""
    gibbs: float
    """Mean 0-1 error of the predictor."""
    upper: float
    """The same from above: what it is at most, but for `delta_draws`."""
    holdout: Holdout
    payments: tuple[tuple[str, int], ...] = ()
    """What was chosen by looking at the examples, or may have been, and from how many."""
    errors: float = 0
    """Summed over the units. Of the excess rule, those of the network at the prior's mean."""
    shares: tuple[float, ...] = ()
    """Of the excess rule: how often a draw errs no less, and more, than the network at the prior's mean."""
    folds: tuple[tuple[float, int], ...] = ()
    """Of the rule of folds: (errors, units) of every part."""
    picked: int = 0
    """Of the rules of compression: how many units were learned from; the others test."""
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
    unit: str = "example"
    """What is independent, and what n counts. The mean error of a group is one number."""
    assumes: tuple[str, ...] = ()
    """What the bound takes for granted."""
    issued: int = 1
    """The how-manieth different certificate by any of these examples this was, in its process."""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def grid(self) -> int:
        """K: all combinations that the union is over."""
        return math.prod(options for _, options in self.payments)

    def recomputed(self) -> float:
        """The bound again from the numbers it is made of."""
        k, grouped = self.grid, self.unit == "group"
        if self.rule == "binomial":
            return count_bound(self.errors / self.n, self.n, self.delta / k, grouped=grouped)
        if self.rule == "folds":
            return folds_bound(self.folds, self.delta / k, grouped=grouped)
        if self.rule == "compression":
            return compression_bound(self.errors, self.n, self.picked, self.delta / k, grouped=grouped)
        if self.rule == "preferent":
            return preferent_bound(self.picked, self.n, self.delta / k)
        if self.rule == "klinv":
            upper = klinv(self.gibbs, math.log(k / self.delta_draws) / self.replicates)
            return klinv(upper, (self.kl + math.log(2 * k * math.sqrt(self.n) / self.delta)) / self.n)
        error, paid = self.errors / self.n, (self.delta / k, self.delta_draws / k)
        return excess_bound(error, self.shares, self.n, self.replicates, self.kl, *paid, grouped=grouped)

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
            more = f"{9 * self.n:,} more {self.unit}s of the same error"
            return f"it says nothing yet: {more} would make it {self.with_more(10):.4f}"
        more = f"{self.n:,} more {self.unit}s of the same error would make it {self.with_more(2):.4f}"
        parts = {
            "the error itself": self.gibbs,
            f"the number of {self.unit}s": self.recomputed_without_kl() - self.gibbs,
        }
        if self.kl > 0:
            parts["KL to the prior"] = self.bound - self.recomputed_without_kl()
        largest = max(parts, key=lambda name: parts[name])
        return f"{more}; most of it is {largest}, {parts[largest]:.4f}"

    def __str__(self) -> str:
        return "\n".join(f"{name:<28}{value}" for name, value in self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """The certificate as a table a reviewer can follow from top to bottom: every term is explained where it stands."""
        percent = f"{100 * self.confidence:g} %"
        copies = f"   of {self.examples:,}, the others are copies" if self.examples > self.n else ""
        if self.unit == "group":
            copies = f"   with {self.examples:,} examples; the mean error of a group is one value"
        rows = [(f"error ≤ {self.bound:.4f}, at {percent}", f"of {IN_PLAIN_WORDS[self.predictor]}")]
        rows += [("assumes", text) for text in self.assumes]
        rows += [
            (
                "hold-out bound beside it",
                f"≤ {self.holdout.bound:.4f}   the same {self.unit}s as plain test data of the network at the prior's mean, "
                f"error {self.holdout.error:.4f}",
            ),
            (
                "the lesser of these two",
                f'may not be chosen at {percent}: each holds by itself. methods=[…, "mean"] makes and pays that choice',
            ),
            (f"independent {self.unit}s, n", f"{self.n:,}{copies}"),
        ]
        if self.rule == "binomial":
            how = "each example met once: Clopper–Pearson"
            how = "means of groups: Hoeffding or Bentkus" if self.unit == "group" else how
            rows.append(("errors", f"{self.errors:,.10g}   {how}"))
        elif self.rule == "folds":
            parts = ", ".join(f"{errors:,.4g} of {n:,}" for errors, n in self.folds)
            rows.append(("errors", f"{parts}   each fit bounded by the part it never saw, at its share of δ; averaged"))
        elif self.rule in ("compression", "preferent"):
            rest = f"{self.errors:,.4g} errors on the {self.n - self.picked:,} others"
            rows.append(
                ("picked to learn from", f"{self.picked:,}   {rest}; all sets that could have been picked are paid for")
            )
        else:
            each = "an example" if self.drawn_per == "example" else "a batch"
            rows.append(
                (
                    "Gibbs error",
                    f"{self.gibbs:.4f}   mean error of {self.replicates:,} draws, weights drawn for {each} each",
                )
            )
            if self.rule == "klinv":
                cost = math.log(self.grid / self.delta_draws) / self.replicates
                rows.append(
                    ("from above", f"{self.upper:.4f}   klinv at ln(K/δ′)/m = {cost:.2e}: draws are finitely many")
                )
            else:
                rows.append(
                    ("errs more than the mean", f"{self.shares[1]:.4f}   and less {1 - self.shares[0]:.4f} of the time")
                )
            rows.append(
                (
                    "KL(posterior ‖ prior)",
                    f"{self.kl:,.1f} nats   what was learned from these examples: {self.kl / self.n:.4f} each",
                )
            )
        rows.append(("δ for the bound, the draws", f"{self.delta:g}, {self.delta_draws:g}   the chances that it fails"))
        paid = " × ".join(f"{options:,} ({what})" for what, options in self.payments)
        chosen = f"{self.grid:,} = {paid}   δ is divided by it" if paid else "1   nothing was chosen by these examples"
        rows.append(("K, choices paid for", chosen))
        if self.issued > 1:
            rows.append(
                (
                    "certificates by these data",
                    f"{self.issued:,} different ones so far: the least of them needs grid={self.issued} in each",
                )
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
