"""`pt.adapt` on a draw of few examples, with each way to leave examples out, tested on other training images of the target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import torch
from torch import Tensor

import posterity as pt
from posterity.data.leave_out import LeaveOut
from posterity.lenet import lenet5
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.sources import Recipe, data_set, learned_prior


def source(arguments: Arguments) -> Recipe:
    name = arguments["source"]
    return Recipe(name, 1000 if name == "digits" else 2000, 1.0)


@contextmanager
def one_by_one() -> Iterator[None]:
    """Every example is left out alone, and folds are five whatever the classes have."""
    order = torch.Generator().manual_seed(0)

    def alone(targets: Tensor, groups: Tensor | None = None) -> LeaveOut:
        shuffled = torch.randperm(len(targets), generator=order.manual_seed(0))
        shuffled = shuffled[targets[shuffled].argsort(stable=True)]
        found = torch.empty(len(targets), dtype=torch.int64)
        found[shuffled] = torch.arange(len(targets)) % 5
        return LeaveOut(found)

    with mock.patch.object(LeaveOut, "of", alone), mock.patch.object(LeaveOut, "lots", return_value=None):
        yield


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    prior = learned_prior(source(arguments))
    x, y = data_set(arguments["target"]).train
    # Of the draw alone, so that tasks and numbers of examples share their order of images.
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(300 + arguments["draw"]))
    x, y = x[order], y[order]
    few = torch.cat([(y == c).nonzero().flatten()[: arguments["each"]] for c in range(10)])
    others = torch.ones(len(y)).bool()
    others[few] = False
    new, labels = x[others][: arguments["tested"]], y[others][: arguments["tested"]]
    values = {}
    for name, way in (("one of every class", nullcontext()), ("alone", one_by_one())):
        with way:
            fit = pt.adapt(lenet5(), (x[few], y[few]), prior, head=arguments["head"], progress=False)
        found = pt.metrics.score(fit.predict(new).probs, labels)
        values[name] = {k: round(float(getattr(found, k)), 4) for k in ("nll", "ece", "accuracy")}
    return values
