"""The exact posterior of a hundred examples beside what it replaces: training, and linearised predictions.

    python -m benchmarks.function_space > benchmarks/results/function_space.jsonl

LeNet-5 learned 2,000 MNIST images and is adapted to 100 of NotMNIST, with a new head (all classes share one kernel) or its own
(every class has its own: ten times as many rows). CPU seconds on one thread, the least of three, all in one run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

import posterity as pt
from posterity.lenet import lenet5
from posterity_studies.shared.sources import Recipe, data_set, learned_prior

IMAGES, EXAMPLES, STEPS, REPEATS = 1000, 100, 100, 3


def seconds(work: Callable[[], object]) -> float:
    """The least of some runs."""
    found = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)


def measured(head: Literal["new", "keep"]) -> dict[str, object]:
    prior, (x, y), (new, _) = (
        learned_prior(Recipe("mnist", 2000, 1.0)),
        data_set("notmnist").train,
        data_set("notmnist").test,
    )
    model, few, new = lenet5(), (x[:EXAMPLES], y[:EXAMPLES]), new[:IMAGES]

    def adapted() -> pt.Fit:
        return pt.adapt(model, few, prior, head=head, progress=False)

    def trained() -> None:
        optimiser = torch.optim.Adam(model.parameters(), 1e-4)
        for _ in range(STEPS):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(few[0]), few[1]).backward()
            optimiser.step()

    set_up, steps = seconds(adapted), seconds(trained)
    fit = adapted()
    exact, linearised = seconds(lambda: fit.predict(new)), seconds(lambda: pt.predict(model, fit.posterior, new))
    assert fit.choice is not None
    row: dict[str, object] = {
        "head": head,
        "posteriors averaged": len(fit.choice.members),
        "set-up": round(set_up, 3),
        "100 training steps": round(steps, 3),
        "set-up, times the steps": round(set_up / steps, 2),
        "1,000 predictions": round(exact, 3),
        "linearised": round(linearised, 3),
        "predictions, times linearised": round(exact / linearised, 2),
    }
    return row


def main() -> None:
    torch.set_num_threads(1)
    for head in ("new", "keep"):
        print(json.dumps(measured(head)), flush=True)


if __name__ == "__main__":
    main()
