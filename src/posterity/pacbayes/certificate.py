"""What a certificate says, and all that a reviewer needs to compute it again."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from posterity.errors import BadAudit
from posterity.files import write_whole
from posterity.pacbayes.bounds import klinv

FORMAT = 1


@dataclass(frozen=True)
class Holdout:
    """What the same examples would say of the network at the prior's mean, as plain test data: no Bayes needed."""

    error: float
    bound: float


@dataclass(frozen=True)
class Certificate:
    """A bound on the risk of networks drawn from a posterior that holds with the stated probability.

    The probability is over the examples and over the draws. `bound` = klinv(upper, (KL + ln(2K√n/δ))/n), where `upper` =
    klinv(gibbs, ln(1/δ′)/m) and δ + δ′ = 1 − confidence.
    """

    bound: float
    confidence: float
    delta: float
    """The share of 1 − confidence that pays for the bound."""
    delta_draws: float
    """The share that pays for estimating the Gibbs error by draws."""
    n: int
    """Examples that certify, none of which the prior has seen."""
    replicates: int
    kl: float
    gibbs: float
    """Mean 0-1 error of single draws, over the replicates."""
    upper: float
    """The same from above: what it is at most, but for `delta_draws`."""
    holdout: Holdout
    grid: int = 1
    """How many priors were declared in advance, of which the data chose one."""
    drawn_per: str = "example"
    kl_by_block: Mapping[str, float] = field(default_factory=dict)
    prior: str = ""
    posterior: str = ""
    data: str = ""
    """Fingerprints."""
    checks: tuple[str, ...] = ()
    """What was looked for, and not found."""
    versions: Mapping[str, str] = field(default_factory=dict)
    rule: str = "klinv"

    def recomputed(self) -> float:
        """The bound again from the numbers it is made of."""
        if self.rule == "best-of-draws":
            return klinv(self.gibbs, math.log(self.grid / self.delta) / self.n)
        upper = klinv(self.gibbs, math.log(1 / self.delta_draws) / self.replicates)
        return klinv(upper, (self.kl + math.log(2 * self.grid * math.sqrt(self.n) / self.delta)) / self.n)

    def recomputed_without_kl(self) -> float:
        """What the bound would be for a posterior that equals its prior: what n, δ and the draws alone cost."""
        return replace(self, kl=0.0).recomputed()

    def __str__(self) -> str:
        return "\n".join(f"{name:<28}{value}" for name, value in self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """The certificate as a table a reviewer can follow from top to bottom."""
        percent = f"{100 * self.confidence:g} %"
        what = "the drawn network's error" if self.rule == "best-of-draws" else "error of a network drawn anew"
        rows = [
            (f"risk, at {percent}", f"≤ {self.bound:.4f}   {what}"),
            ("hold-out bound beside it", f"≤ {self.holdout.bound:.4f}   prior's mean, error {self.holdout.error:.4f}"),
            ("examples n", f"{self.n:,}"),
        ]
        if self.rule == "best-of-draws":
            rows += [
                ("draws from the prior", f"{self.grid:,}"),
                ("least error among them", f"{self.gibbs:.4f}"),
                ("ln(M/δ)/n", f"{math.log(self.grid / self.delta) / self.n:.5f}"),
            ]
        else:
            each = "an example" if self.drawn_per == "example" else "a batch"
            rows += [
                ("Gibbs error", f"{self.gibbs:.4f}   {self.replicates:,} replicates, weights drawn for {each} each"),
                (
                    "from above",
                    f"{self.upper:.4f}   klinv at ln(1/δ′)/m = {math.log(1 / self.delta_draws) / self.replicates:.2e}",
                ),
                ("KL(posterior ‖ prior)", f"{self.kl:,.1f} nats   {self.kl / self.n:.4f} an example"),
                ("priors declared", f"{self.grid}"),
            ]
        rows.append(("δ for the bound, the draws", f"{self.delta:g}, {self.delta_draws:g}"))
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
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw.pop("posterity_certificate") != FORMAT:
                raise BadAudit(f"this is no certificate in format {FORMAT}.")
            raw["holdout"] = Holdout(**raw["holdout"])
            raw["checks"] = tuple(raw["checks"])
            found = cls(**raw)
            again = found.recomputed()
        except BadAudit:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, ZeroDivisionError) as error:
            raise BadAudit(f"this is no certificate of posterity: {type(error).__name__}: {error}.") from None
        if not math.isclose(again, found.bound, rel_tol=1e-9):
            raise BadAudit(f"the record states {found.bound:.6f} and its numbers give {again:.6f}: do not trust it.")
        if not math.isclose(found.delta + found.delta_draws, 1 - found.confidence, rel_tol=1e-9):
            raise BadAudit(
                f"δ and δ′ sum to {found.delta + found.delta_draws:g}, which is not 1 − {found.confidence:g}."
            )
        return found
