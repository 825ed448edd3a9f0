"""CIFAR-10 by a prior that never saw it: a head on features of ImageNet's ResNet-50. All images both train and certify."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from posterity.laplace import isotropic
from posterity.pacbayes import certify_few, clopper_pearson, recursive_certificate
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.datasets import gallery
from posterity_studies.shared.features import features
from posterity_studies.shared.imagenet import pooled

PIXELS = 128
LENGTH = 10.0
"""Rows of features are brought to one length: no image of CIFAR-10 has a part in that."""


def head_cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """The certificate of networks drawn from a recursive posterior, or of one of several exact heads, on all images."""
    found = gallery("cifar10")
    if arguments["examples"] is not None:
        found = found.only(torch.randperm(len(found), generator=generator)[: arguments["examples"]])
    x = LENGTH * normalize(features(pooled(), found, PIXELS))
    y, model = found.labels, nn.Linear(x.shape[1], len(found.classes))
    prior = isotropic(model, arguments["precision"], mean="zero")
    values = _recursive if arguments["row"] == "cifar-recursive" else _folds
    return values(model, prior, (x, y), arguments) | {
        "holdout": _round(_holdout(x, y, arguments["precision"], generator))
    }


def _recursive(model: nn.Module, prior: Any, data: tuple[Tensor, Tensor], arguments: Arguments) -> dict[str, Any]:
    c = recursive_certificate(
        model,
        prior,
        data,
        chunks=arguments["chunks"],
        epochs=arguments["epochs"],
        passes=5,
        lr=arguments["lr"],
        grid=arguments["tried"],
        progress=False,
    ).certificate
    kl = sum(step.kl for step in c.steps)
    return {
        "bound": _round(c.bound),
        "gibbs": _round(c.gibbs),
        "kl": _round(kl),
        "n": c.steps[0].n,
        "free": _round(c.gibbs),
    }


def _folds(model: nn.Module, prior: Any, data: tuple[Tensor, Tensor], arguments: Arguments) -> dict[str, Any]:
    def learner(x: Tensor, y: Tensor) -> Any:
        rows = exact_head(x, y, arguments["precision"])
        return lambda new: (with_one(new) @ rows.T).softmax(1)

    options = {"folds": arguments["folds"], "grid": arguments["tried"]}
    c = certify_few(model, prior, data, learner, ways=["folds"], **options).certificate
    return {"bound": _round(c.bound), "gibbs": _round(c.gibbs), "kl": 0.0, "n": c.n, "free": _round(c.bound)}


def exact_head(x: Tensor, y: Tensor, precision: float) -> Tensor:
    """The mode of a softmax regression: rows and biases around zero, by L-BFGS."""
    inputs, rows = with_one(x), torch.zeros(10, x.shape[1] + 1, requires_grad=True)
    optimiser = torch.optim.LBFGS([rows], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = cross_entropy(inputs @ rows.T, y, reduction="sum") + 0.5 * precision * rows.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return rows.detach()


def with_one(x: Tensor) -> Tensor:
    """A column of ones, for the bias."""
    return torch.cat((x, torch.ones(len(x), 1)), 1)


def _holdout(x: Tensor, y: Tensor, precision: float, generator: torch.Generator) -> float:
    """The usual procedure: the same head on four fifths, and the error of the other fifth, bounded."""
    order = torch.randperm(len(y), generator=generator)
    held, rest = order[: len(y) // 5], order[len(y) // 5 :]
    wrong = (with_one(x[held]) @ exact_head(x[rest], y[rest], precision).T).argmax(1) != y[held]
    return clopper_pearson(int(wrong.sum()), len(held), 0.05)


def _round(x: float) -> float:
    return float(f"{x:.5g}")
