"""Plain methods, each tuned with the labels of the task by the folds of the task."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posterity.data.leave_out import LeaveOut
from posterity_studies.shared.rivals.training import (
    Budget,
    Pair,
    nll,
    outputs,
    probabilities,
    temperature,
    trained,
    with_dropout,
)

STRENGTHS = tuple(10.0**k for k in range(-2, 4))
BOUNDS = (0.2, 5.0)
"""Temperatures that few left-out labels may choose."""
STEPS = (30, 100, 300)
FIVE = 5
Fitted = Callable[[Tensor], Tensor]
"""Logits of new rows."""


def scored(probs: Tensor, y: Tensor, began: float) -> dict[str, float]:
    """The NLL, the accuracy and the CPU seconds since `began`."""
    seconds = time.process_time() - began
    accuracy = float((probs.argmax(-1) == y).float().mean())
    return {"nll": round(nll(probs, y), 5), "accuracy": round(accuracy, 4), "seconds": round(seconds, 3)}


def on_rows(train: Pair, test: Pair) -> dict[str, Any]:
    """Linear methods on features (n, d) as they are and at unit length."""
    x, y = train
    unit = [nn.functional.normalize(rows) for rows in (x, test[0])]
    found = {
        "logistic": _by_folds(_logistic, STRENGTHS, (x, y), test),
        "logistic, unit": _by_folds(_logistic, STRENGTHS, (unit[0], y), (unit[1], test[1])),
        "cosine": _by_folds(_cosine, (1.0,), (unit[0], y), (unit[1], test[1]), (0.01, 1.0), 0.1),
    }
    if int(y.bincount().min()) > 2:
        found["LDA"] = _by_folds(_discriminant, (1.0,), (x, y), test)
    return found


def _by_folds(
    fit: Callable[[Pair, float], Fitted],
    options: Sequence[float],
    train: Pair,
    test: Pair,
    bounds: tuple[float, float] = BOUNDS,
    usual: float = 1.0,
) -> dict[str, float]:
    """The option and the temperature of least NLL of left-out labels. With one label a class: 1, and the usual temperature."""
    began = time.process_time()
    x, y = train
    leave_out = LeaveOut.of(y)
    best, soft = 1.0, usual
    if parts := leave_out.parts:
        scores = {}
        for option in options:
            logits = torch.zeros(len(y), int(y.max()) + 1)
            for fold in parts:
                kept, out = leave_out.split(fold)
                logits[out] = fit((x[kept], y[kept]), option)(x[out])
            judged = leave_out.judged
            t = min(max(temperature(logits[judged], y[judged]), bounds[0]), bounds[1])
            scores[option] = (nll((logits[judged] / t).softmax(-1), y[judged]), t)
        best = min(scores, key=lambda o: scores[o][0])
        soft = scores[best][1]
    probs = (fit(train, best)(test[0]) / soft).softmax(-1)
    return scored(probs, test[1], began)


def _logistic(train: Pair, strength: float) -> Fitted:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=strength, max_iter=200).fit(train[0].numpy(), train[1].numpy())
    return lambda x: _logits(model.decision_function(x.numpy()))


def _discriminant(train: Pair, _: float) -> Fitted:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(train[0].numpy(), train[1].numpy())
    return lambda x: _logits(model.decision_function(x.numpy()))


def _cosine(train: Pair, _: float) -> Fitted:
    x, y = train
    means = nn.functional.normalize(torch.stack([x[y == c].mean(0) for c in range(int(y.max()) + 1)]))
    return lambda new: new @ means.mT


def _logits(found: Any) -> Tensor:
    rows = torch.from_numpy(np.asarray(found)).float()
    return torch.stack([torch.zeros_like(rows), rows], 1) if rows.ndim == 1 else rows


def fine_tuned(start: nn.Module, train: Pair, test: Pair, seed: int) -> dict[str, float]:
    """All layers from a start, Adam; steps and temperature by folds (one label a class: 100 steps, temperature 1)."""
    began = time.process_time()
    x, y = train
    leave_out = LeaveOut.of(y)
    steps, soft = 100, 1.0
    if parts := leave_out.parts:
        logits = {s: torch.zeros(len(y), int(y.max()) + 1) for s in STEPS}
        for fold in parts:
            kept, out = leave_out.split(fold)
            for s in STEPS:
                logits[s][out] = outputs(trained(start, (x[kept], y[kept]), Budget(s, 1e-3), seed), x[out])
        judged = leave_out.judged
        soften = {s: min(max(temperature(f[judged], y[judged]), BOUNDS[0]), BOUNDS[1]) for s, f in logits.items()}
        steps = min(STEPS, key=lambda s: nll((logits[s][judged] / soften[s]).softmax(-1), y[judged]))
        soft = soften[steps]
    return scored(probabilities(trained(start, train, Budget(steps, 1e-3), seed), test[0], soft), test[1], began)


def plain(model: nn.Module, train: Pair, test: Pair, budget: Budget, seed: int) -> dict[str, float]:
    """One network by a one-cycle rate, with a temperature from a tenth (few examples: a fifth) that it did not see."""
    began = time.process_time()
    x, y = train
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    held, kept = order.split([len(y) // (10 if len(y) > 2000 else 5), len(y) - len(y) // (10 if len(y) > 2000 else 5)])
    network = trained(model, (x[kept], y[kept]), budget, seed)
    soft = temperature(outputs(network, x[held]), y[held])
    return scored(probabilities(network, test[0], soft), test[1], began)


def bagged(model: nn.Sequential, train: Pair, test: Pair, budget: Budget, seed: int) -> dict[str, float]:
    """Five networks with dropout, each on its own bootstrap sample; one temperature of their average, by what each left out."""
    began = time.process_time()
    x, y = train
    average = torch.zeros(len(test[1]), int(y.max()) + 1)
    left_out, counts = torch.zeros(len(y), average.shape[1]), torch.zeros(len(y))
    for k in range(FIVE):
        draw = torch.randint(len(y), (len(y),), generator=torch.Generator().manual_seed(FIVE * seed + k))
        network = trained(fresh(with_dropout(model, 0.2), FIVE * seed + k), (x[draw], y[draw]), budget, seed + k)
        average += probabilities(network, test[0]) / FIVE
        out = torch.ones(len(y), dtype=torch.bool)
        out[draw] = False
        left_out[out] += probabilities(network, x[out])
        counts[out] += 1
    seen = counts > 0
    logs = (left_out[seen] / counts[seen, None]).clamp_min(1e-9).log()
    soft = temperature(logs, y[seen])
    return scored((average.clamp_min(1e-9).log() / soft).softmax(-1), test[1], began)


def ensemble(model: nn.Module, train: Pair, test: Pair, budget: Budget, seed: int) -> dict[str, float]:
    """Five networks on all examples, averaged as they are."""
    began = time.process_time()
    networks = [trained(fresh(model, FIVE * seed + k), train, budget, FIVE * seed + k) for k in range(FIVE)]
    probs = torch.stack([probabilities(network, test[0]) for network in networks]).mean(0)
    return scored(probs, test[1], began)


def fresh(model: nn.Module, seed: int) -> nn.Module:
    """The same layers with other weights."""
    twin = copy.deepcopy(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for module in twin.modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
    return twin
