"""A small predictor for classes and one for numbers, and the three ways to make sets of either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from posterity.predictive.sets import (
    class_sets,
    improbability,
    left_out_intervals,
    left_out_sets,
    split_intervals,
    split_threshold,
)

FOLDS = 10
STRENGTHS = (0.01, 0.1, 1.0)

Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Score:
    """The share of targets inside, and the mean size (of sets, or of finite intervals in deviations of the target)."""

    coverage: float
    size: float


def softmax_regression(x: Tensor, y: Tensor, classes: int) -> Predict:
    """Probabilities of a penalised softmax regression on columns of mean 0 and deviation 1."""
    mean, std = x.mean(0), x.std(0).clamp_min(1e-6)
    scale = std * x.shape[1] ** 0.5 / 4

    def columns(z: Tensor) -> Tensor:
        return torch.cat((((z - mean) / scale).clamp(-40, 40), torch.ones(len(z), 1, dtype=z.dtype)), 1)

    a = columns(x)
    weights = torch.zeros(a.shape[1], classes, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=40)

    def objective() -> Tensor:
        optimiser.zero_grad()
        loss = cross_entropy(a @ weights, y, reduction="sum") + 0.05 * weights.square().sum()
        loss.backward()
        return loss

    optimiser.step(objective)
    return lambda z: (columns(z) @ weights.detach()).softmax(-1)


def kernel_regression(x: Tensor, y: Tensor, classes: int) -> Predict:
    """Means of a kernel ridge regression (squared exponential, median length) whose strength leave-one-out chooses."""
    mean, std = x.mean(0), x.std(0).clamp_min(1e-6)
    a, centre = (x - mean) / std, y.mean()
    length = torch.pdist(a).median().clamp_min(1e-6)

    def kernel(z: Tensor) -> Tensor:
        return (-torch.cdist((z - mean) / std, a).square() / (2 * length**2)).exp()

    gram = kernel(x)
    inverses = [torch.linalg.inv(gram + s * torch.eye(len(a), dtype=x.dtype)) for s in STRENGTHS]
    errors = [float(((i @ (y - centre)) / i.diagonal()).square().mean()) for i in inverses]
    weights = inverses[errors.index(min(errors))] @ (y - centre)
    return lambda z: kernel(z) @ weights + centre


def evaluate(data: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], coverage: float, seed: int) -> dict[str, Score]:
    """Every way on the same labels."""
    (x, y), (z, truth) = data, test
    classes = 0 if y.is_floating_point() else int(torch.cat((y, truth)).max()) + 1
    fit = softmax_regression if classes else kernel_regression
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    ways: dict[str, Score] = {}
    folds = order % FOLDS
    predictors = [fit(x[folds != k], y[folds != k], classes) for k in range(FOLDS)]
    new = torch.stack([predict(z) for predict in predictors])
    own = torch.stack([predictors[int(folds[i])](x[i : i + 1])[0] for i in range(len(y))])
    for name, kind in (("CV+", "plus"), ("CV minmax", "minmax")):
        if classes:
            inside = left_out_sets(own, y, new, folds, coverage, kind=kind)  # type: ignore[arg-type]
            ways[name] = _sets(inside, truth)
        else:
            ends = left_out_intervals((y - own).abs(), new, folds, coverage, kind=kind)  # type: ignore[arg-type]
            ways[name] = _intervals(ends, truth, y)
    half = order < len(y) // 2
    predict = fit(x[half], y[half], classes)
    if classes:
        scores = improbability(predict(x[~half])).gather(1, y[~half, None])[:, 0]
        ways["split"] = _sets(class_sets(predict(z), split_threshold(scores, coverage)), truth)
    else:
        limit = split_threshold((y[~half] - predict(x[~half])).abs(), coverage)
        ways["split"] = _intervals(split_intervals(predict(z), torch.ones_like(truth), limit), truth, y)
    return ways


def _sets(inside: Tensor, truth: Tensor) -> Score:
    return Score(float(inside.gather(1, truth[:, None]).double().mean()), float(inside.sum(1).double().mean()))


def _intervals(ends: Tensor, truth: Tensor, y: Tensor) -> Score:
    inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    return Score(float(inside.double().mean()), float((ends[:, 1] - ends[:, 0]).mean() / y.std()))
