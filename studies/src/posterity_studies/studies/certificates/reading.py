"""What each row is to reach, its bounds with everything paid for that was tried, and the verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from posterity.pacbayes import klinv
from posterity_studies.engine.declaration import Outcome, Record, Verdict

ROWS: dict[str, tuple[str, float]] = {
    "notmnist-split": ("NotMNIST, MNIST prior refined on a half", 0.11),
    "notmnist-alone": ("NotMNIST, MNIST prior alone", 0.40),
    "mnist-split": ("MNIST, prior from a half of it", 0.0155),
    "fashion-split": ("Fashion-MNIST, prior from a half of it", 0.1582),
}
"""What each row is called, and what it is to reach."""

TRIED = {"notmnist-split": 8, "notmnist-alone": 18, "mnist-split": 3, "fashion-split": 1}
"""How many priors were looked at on the way to each row, recipes of training included: the bounds shown pay for all of them."""


def best(record: Record) -> dict[str, Any]:
    """With or without optimising: a posterior may be chosen by the bound, which holds for all of them at once."""
    plain = dict(record.values)
    optimised = {
        key.removeprefix("optimised "): value for key, value in record.values.items() if key.startswith("optimised ")
    }
    found = optimised if optimised and optimised["bound"] < plain["bound"] else plain
    return found | {"bound": _paid(found, TRIED[record.arguments["row"]]), "free": _paid(found | {"kl": 0.0}, 1)}


def _paid(values: dict[str, Any], tried: int, delta: float = 0.04, delta_draws: float = 0.01) -> float:
    """The bound from its parts, with the union over everything that was tried."""
    upper = klinv(values["gibbs"], math.log(1 / delta_draws) / values["replicates"])
    return klinv(upper, (values["kl"] + math.log(2 * tried * math.sqrt(values["n"]) / delta)) / values["n"])


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where every row reaches its target on average, and no certificate is below the test error that it bounds."""
    sentences, reached = [], []
    for name, (title, target) in ROWS.items():
        found = [best(r) for r in records if r.arguments["row"] == name]
        if found:
            mean = statistics.mean(v["bound"] for v in found)
            held = sum(v["bound"] >= v["test gibbs"] for v in found)
            reached.append(mean <= target and held == len(found))
            sentences.append(
                f"{title}: {mean:.4f} (target {target}; above the test error in {held} of {len(found)} seeds)"
            )
    outcome = Outcome.ours if reached and all(reached) else Outcome.unsupported
    return Verdict(outcome, f"Risk bounds at 95 %. {'; '.join(sentences)}.")
