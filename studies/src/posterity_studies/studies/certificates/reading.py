"""What each row is to reach, its bounds with everything paid for that was tried, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from posterity.pacbayes import clopper_pearson
from posterity_studies.engine.declaration import Outcome, Record, Verdict

ROWS: dict[str, tuple[str, float]] = {
    "notmnist-split": ("NotMNIST, MNIST prior refined on a half", 0.092),
    "fashion-split": ("Fashion-MNIST, prior from a half of it", 0.117),
    "mnist-split": ("MNIST, prior from a half of it", 0.0123),
    "notmnist-alone": ("NotMNIST, MNIST prior alone", 0.37),
    "fashion-wide": ("Fashion-MNIST, a wider network, prior from 65 %", 0.101),
    "mnist-recursive": ("MNIST, recursive, 97.5 %", 0.186),
    "cifar-recursive": ("CIFAR-10, a drawn head on ImageNet's features", 0.35),
    "cifar-folds": ("CIFAR-10, one of five exact heads on ImageNet's features", 0.35),
}
"""What each row is called, and what it is to reach."""

TRIED = {
    "notmnist-split": 10,
    "notmnist-alone": 20,
    "mnist-split": 5,
    "fashion-split": 4,
    "fashion-wide": 4,
    "mnist-recursive": 8,
    "cifar-recursive": 8,
    "cifar-folds": 4,
}
"""How many priors were looked at on the way to each row, recipes of training included: the bounds pay for all of them."""


WITHOUT_TEST = ("cifar-recursive", "cifar-folds")
"""Rows in which every image certifies, and none is left to test by; one cell each, since the seed follows from the images."""

SEEDS = 5
TESTED = 10_000
"""Test images of each set."""


def lowest(error: float) -> float:
    """What the risk is at least, at 99 %, by so many test images."""
    return 1 - clopper_pearson(round((1 - error) * TESTED), TESTED, 0.01)


def best(record: Record) -> dict[str, Any]:
    """A record's values."""
    return dict(record.values)


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where every row has five seeds and reaches its target on average, and test images contradict no certificate."""
    sentences, reached = [], []
    for name, (title, target) in ROWS.items():
        found = [best(r) for r in records if r.arguments["row"] == name]
        if found:
            mean = statistics.mean(v["bound"] for v in found)
            wanted = 1 if name in WITHOUT_TEST else SEEDS
            against = sum("test gibbs" in v and v["bound"] < lowest(v["test gibbs"]) for v in found)
            reached.append(mean <= target and not against and len(found) >= wanted)
            seeds = f"{len(found)} of {wanted} seeds" if len(found) < wanted else f"{wanted} seed{'s' * (wanted > 1)}"
            tested = "no image left to test by" if name in WITHOUT_TEST else f"{against or 'none'} contradicted"
            sentences.append(f"{title}: {mean:.4f} (target {target}; {seeds}, {tested})")
    outcome = Outcome.ours if reached and all(reached) else Outcome.unsupported
    return Verdict(outcome, f"Risk bounds at 95 %. {'; '.join(sentences)}.")
