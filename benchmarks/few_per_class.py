"""What leaving out one example of every class at a time changes, beside leaving out one alone, with one to five examples a class.

`pt.adapt` on LeNet-5 after 2,000 source images, tested on other *training* images of the target: no study's test images are used.
Every line of the results is a task and a draw of its examples.

    python -m benchmarks.few_per_class > benchmarks/results/few_per_class.jsonl
    python -m benchmarks.few_per_class benchmarks/results/few_per_class.jsonl      # means by examples a class
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor

import posterity as pt
from posterity.data.leave_out import LeaveOut
from posterity.lenet import lenet5
from posterity_studies.shared.intervals import interval
from posterity_studies.shared.sources import Recipe, data_set, learned_prior

Head = Literal["new", "keep"]
TASKS: tuple[tuple[str, str, Head], ...] = (
    ("mnist", "fashion_mnist", "new"),
    ("fashion_mnist", "notmnist", "new"),
    ("notmnist", "mnist", "new"),
    ("fashion_mnist", "mnist", "new"),
    ("digits", "mnist", "keep"),
    ("mnist", "digits", "keep"),
)
EACH, DRAWS, TESTED = (1, 2, 3, 5), 3, 600


@contextmanager
def one_by_one() -> Iterator[None]:
    """As it was before: every example is left out alone, and folds are five whatever the classes have."""
    order = torch.Generator().manual_seed(0)

    def alone(targets: Tensor, groups: Tensor | None = None) -> LeaveOut:
        shuffled = torch.randperm(len(targets), generator=order.manual_seed(0))
        shuffled = shuffled[targets[shuffled].argsort(stable=True)]
        found = torch.empty(len(targets), dtype=torch.int64)
        found[shuffled] = torch.arange(len(targets)) % 5
        return LeaveOut(found)

    with mock.patch.object(LeaveOut, "of", alone), mock.patch.object(LeaveOut, "lots", return_value=None):
        yield


def measured(source: str, target: str, head: Head, each: int, draw: int) -> dict[str, Any]:
    prior = learned_prior(Recipe(source, 1000 if source == "digits" else 2000, 1.0))
    x, y = data_set(target).train
    generator = torch.Generator().manual_seed(300 + draw)
    order = torch.randperm(len(y), generator=generator)
    x, y = x[order], y[order]
    chosen = torch.cat([(y == c).nonzero().flatten()[:each] for c in range(10)])
    others = torch.ones(len(y)).bool()
    others[chosen] = False
    new, labels = x[others][:TESTED], y[others][:TESTED]
    row: dict[str, Any] = {"source": source, "target": target, "head": head, "each": each, "draw": draw}
    for name, way in (("alone", one_by_one()), ("one of every class", None)):
        if way is None:
            fit = pt.adapt(lenet5(), (x[chosen], y[chosen]), prior, head=head, progress=False)
        else:
            with way:
                fit = pt.adapt(lenet5(), (x[chosen], y[chosen]), prior, head=head, progress=False)
        found = pt.metrics.score(fit.predict(new).probs, labels)
        row[name] = {k: round(getattr(found, k), 4) for k in ("nll", "ece", "accuracy")}
    return row


def show(path: Path) -> None:
    """Means and the paired difference by examples a class."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for each in EACH:
        some = [r for r in rows if r["each"] == each]
        for key in ("nll", "ece", "accuracy"):
            before, after = ([r[way][key] for r in some] for way in ("alone", "one of every class"))
            gap = interval([b - a for a, b in zip(before, after, strict=True)])
            means = f"{sum(before) / len(some):.3f} → {sum(after) / len(some):.3f}"
            print(f"{each} a class, {key}: {means} ({gap.mean:+.3f} ± {gap.half:.3f}, {len(some)} draws)")


def main() -> None:
    if len(sys.argv) > 1:
        show(Path(sys.argv[1]))
        return
    torch.set_num_threads(1)
    for each in EACH:
        for task in TASKS:
            for draw in range(DRAWS):
                print(json.dumps(measured(*task, each, draw)), flush=True)


if __name__ == "__main__":
    main()
