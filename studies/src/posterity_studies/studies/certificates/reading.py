"""What each row is to reach, its bounds with everything paid for that was tried, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from posterity_studies.engine.declaration import Outcome, Record, Verdict

ROWS: dict[str, tuple[str, float]] = {
    "notmnist-split": ("NotMNIST, MNIST prior refined on a half", 0.092),
    "fashion-split": ("Fashion-MNIST, prior from a half of it", 0.117),
    "mnist-split": ("MNIST, prior from a half of it", 0.0123),
    "notmnist-alone": ("NotMNIST, MNIST prior alone", 0.37),
    "fashion-wide": ("Fashion-MNIST, a wider network", 0.101),
    "mnist-recursive": ("MNIST, recursive, 97.5 %", 0.186),
}
"""What each row is called, and what it is to reach."""

TRIED = {
    "notmnist-split": 10,
    "notmnist-alone": 20,
    "mnist-split": 4,
    "fashion-split": 4,
    "fashion-wide": 2,
    "mnist-recursive": 1,
}
"""How many priors were looked at on the way to each row, recipes of training included: the bounds pay for all of them."""


def best(record: Record) -> dict[str, Any]:
    """A record's values."""
    return dict(record.values)


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
