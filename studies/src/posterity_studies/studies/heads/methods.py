"""Our head and its rivals on the same rows: logits of left-out and of test examples, and what they took."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posterity.data.leave_out import LeaveOut
from posterity.heads import ClassFit, Words, classify
from posterity_studies.shared.labelled import LabelledSet
from posterity_studies.shared.labelled.sets import REPORTED

TEMPERATURES = tuple(round(10 ** (-1.6 + 0.1 * i), 4) for i in range(25))
"""At one label a class rivals have a temperature that was settled on other sets: NLLs are kept for all of these."""
SCALED = {*REPORTED["tables and series"], "iris", "yeast", "gun point", "digits"}
"""Sets whose columns are standardised before a rival sees them "raw"."""
BOUNDS = {"logistic": (0.2, 5.0), "discriminant": (0.2, 20.0), "cosine": (0.01, 1.0)}
"""Temperatures that a rival may have. Without bounds few labels that are all separated send them to zero, and NLL to 50."""
STEPS = 200
"""Iterations of scikit-learn's solver, twice its default."""
RIVALS = ("logistic", "logistic, unit", "discriminant", "cosine", "cosine, centred")


@dataclass(frozen=True, eq=False)
class Task:
    """What a seed draws of a set."""

    name: str
    found: LabelledSet
    train: Tensor
    test: Tensor

    @property
    def folds(self) -> Tensor:
        labels = self.found.y[self.train]
        if int(labels.bincount().max()) == 1:
            return torch.full_like(labels, -1)
        return LeaveOut.of(labels).folds


def ours(task: Task, words: Words | None = None) -> dict[str, Any]:
    """Our head, timed with its prediction."""
    start = time.process_time()
    fit = fitted(task, words)
    log_probs = fit.head.log_probs(task.found.x[task.test])
    seconds = time.process_time() - start
    named = sum(w for c, w in fit.head.weights().items() if c.size)
    return {**scores(log_probs, task.found.y[task.test]), "seconds": round(seconds, 4), "named": round(named, 3)}


def fitted(task: Task, words: Words | None = None) -> ClassFit:
    return classify(task.found.x[task.train], task.found.y[task.train], task.folds, words=words)


def words_of(task: Task, shuffled: int | None = None) -> Words:
    """The names of a set's classes, each at its place or at another's."""
    assert task.found.embedded is not None
    rows = task.found.embedded
    if shuffled is not None:
        rows = rows[_derangement(len(rows), shuffled)]
    return Words.of(task.found.names, rows)


def _derangement(count: int, seed: int) -> Tensor:
    """An order in which nothing stays at its place."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    moved = torch.empty_like(order)
    moved[order] = order.roll(1)
    return moved


def rival(name: str, task: Task) -> dict[str, Any]:
    """A rival: strength and temperature by the same folds; with one label a class the NLL at every temperature."""
    x, y = task.found.x.numpy(), task.found.y.numpy()
    train, test = task.train.numpy(), task.test.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        left_out, logits = METHODS[name](task.name, x[train], y[train], x[test], task.folds.numpy())
        seconds = time.process_time() - start
    labels = torch.from_numpy(y[test])
    if left_out is None:
        each = {str(t): scores(torch.from_numpy(logits / t).log_softmax(-1), labels) for t in TEMPERATURES}
        return {
            "nll": {t: v["nll"] for t, v in each.items()},
            "accuracy": each["1.0"]["accuracy"],
            "seconds": round(seconds, 4),
        }
    temperature = best_temperature(left_out, y[train], *BOUNDS[name.split(",")[0]])
    tested = scores(torch.from_numpy(logits / temperature).log_softmax(-1), labels)
    return {**tested, "seconds": round(seconds, 4), "temperature": round(temperature, 4)}


def scores(log_probs: Tensor, labels: Tensor) -> dict[str, float]:
    return {
        "nll": round(float(-log_probs.gather(1, labels[:, None]).mean()), 5),
        "accuracy": round(float((log_probs.argmax(1) == labels).double().mean()), 5),
    }


def best_temperature(logits: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], least: float, most: float) -> float:
    """By the labels of left-out examples, from a fine grid."""
    grid = np.geomspace(least, most, 101)
    rows, y = torch.from_numpy(logits), torch.from_numpy(labels)
    losses = [float(torch.nn.functional.cross_entropy(rows / t, y)) for t in grid]
    return float(grid[int(np.argmin(losses))])


Rows = Any
Found = tuple[Any, Any]
"""Logits of left-out examples (None where nothing can be left out), and of test examples."""


def _unit(x: Rows) -> Rows:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def _logistic(name: str, x: Rows, y: Rows, test: Rows, folds: Rows, unit: bool) -> Found:
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.model_selection import PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    first = [Normalizer()] if unit else [StandardScaler()] if name in SCALED else []
    if x.shape[1] > len(x):
        # A rotation into the span of the training rows changes nothing but the time.
        rows = make_pipeline(*first, PCA(len(x) - 1, svd_solver="full")).fit(x)
        x, test, first = rows.transform(x), rows.transform(test), []
    if folds.max() < 0:
        return None, _logits(make_pipeline(*first, LogisticRegression(max_iter=STEPS)).fit(x, y), test)
    splits = PredefinedSplit(folds)
    search = make_pipeline(
        *first,
        LogisticRegressionCV(
            Cs=10, cv=splits, scoring="neg_log_loss", max_iter=STEPS, l1_ratios=(0,), use_legacy_attributes=False
        ),
    ).fit(x, y)
    chosen = make_pipeline(*first, LogisticRegression(C=float(search[-1].C_), max_iter=STEPS))
    left_out = cross_val_predict(chosen, x, y, cv=splits, method="decision_function")
    return _columns(left_out), _logits(search, test)


def _logits(model: Any, x: Rows) -> Rows:
    return _columns(model.decision_function(x))


def _columns(scores: Rows) -> Rows:
    return np.stack([np.zeros_like(scores), scores], 1) if scores.ndim == 1 else scores


def _discriminant(name: str, x: Rows, y: Rows, test: Rows, folds: Rows) -> Found:
    """With Ledoit and Wolf's shrinkage, in the span of the training rows where there are fewer of them than columns."""
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_std=name in SCALED).fit(x)
    x, test = scaler.transform(x), scaler.transform(test)

    def fit(rows: Rows, labels: Rows) -> Any:
        span = [PCA(len(rows) - 1, svd_solver="full")] if rows.shape[1] >= len(rows) else []
        return make_pipeline(*span, LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")).fit(rows, labels)

    if folds.max() < 0:
        return None, _logits(fit(x, y), test)
    left_out = np.zeros((len(y), len(np.unique(y))))
    for k in range(folds.max() + 1):
        left_out[folds == k] = _logits(fit(x[folds != k], y[folds != k]), x[folds == k])
    return left_out, _logits(fit(x, y), test)


def _cosine(name: str, x: Rows, y: Rows, test: Rows, folds: Rows, centred: bool) -> Found:
    """Cosines to the mean of each class's unit vectors."""
    scale = x.std(0) if name in SCALED else 1.0
    scale = np.where(scale > 1e-9, scale, 1.0)
    mean = x.mean(0) if centred or name in SCALED else 0.0
    x, test = _unit((x - mean) / scale), _unit((test - mean) / scale)

    def prototypes(rows: Rows, labels: Rows) -> Rows:
        return _unit(np.stack([rows[labels == c].mean(0) for c in np.unique(y)]))

    if folds.max() < 0:
        return None, test @ prototypes(x, y).T
    left_out = np.zeros((len(y), len(np.unique(y))))
    for k in range(folds.max() + 1):
        left_out[folds == k] = x[folds == k] @ prototypes(x[folds != k], y[folds != k]).T
    return left_out, test @ prototypes(x, y).T


METHODS: dict[str, Callable[[str, Rows, Rows, Rows, Rows], Found]] = {
    "logistic": partial(_logistic, unit=False),
    "logistic, unit": partial(_logistic, unit=True),
    "discriminant": _discriminant,
    "cosine": partial(_cosine, centred=False),
    "cosine, centred": partial(_cosine, centred=True),
}
