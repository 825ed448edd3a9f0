"""Ours, its candidates one by one, and rivals tuned with the same labels: each gives probabilities or a normal number."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import posterity as pt
from posterity.data.leave_out import LeaveOut
from posterity.tables import ClassModel, NumberModel, fit_linear, fit_process, fit_process_classes, fit_trees

Array = npt.NDArray[np.float64]
Found = tuple[Array, Array | None]
"""Probabilities and None, or means and variances."""
LEAST = 0.01
"""The share of a uniform distribution in the probabilities of rivals that may be sure of what never happened."""
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to learn from and rows to test by; targets of regressions in standard deviations of the former."""

    x: Array
    y: Array
    new: Array
    truth: Array
    classes: int

    @property
    def scaled(self) -> tuple[Array, Array]:
        """Inputs with mean 0 and variance 1."""
        centre, spread = self.x.mean(0), self.x.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        return (self.x - centre) / spread, (self.new - centre) / spread


def ours(task: Task) -> tuple[dict[str, Any], list[str]]:
    """The estimator with its defaults."""
    estimator = (pt.PosteriorClassifier if task.classes else pt.PosteriorRegressor)(random_state=0)
    found = scored(lambda t: _of_estimator(estimator.fit(t.x, t.y), t), task)
    return found, list(estimator.fit_.plan.ways)


def _of_estimator(estimator: Any, task: Task) -> Found:
    if task.classes:
        return estimator.predict_proba(task.new), None
    mean, deviation = estimator.predict(task.new, return_std=True)
    return mean, deviation**2


def candidates(task: Task) -> dict[str, dict[str, Any]]:
    """Each candidate alone, as the stack has it."""
    x, new = (torch.as_tensor(part).float().double() for part in task.scaled)
    y = torch.as_tensor(task.y)
    y = y.long() if task.classes else y
    folds = LeaveOut.of(y).folds
    process = partial(fit_process_classes, classes=task.classes) if task.classes else fit_process
    fitting: dict[str, Callable[[], Any]] = {
        "linear": lambda: fit_linear(x, y, folds, task.classes),
        "process": lambda: process(x, y, folds),
        "forest": lambda: fit_trees("forest", x, y, folds, task.classes),
    }
    if 0 < task.classes <= 5:
        fitting["boosted"] = lambda: fit_trees("boosted", x, y, folds, task.classes)

    def said(model: ClassModel | NumberModel) -> Found:
        if isinstance(model, ClassModel):
            return model.logits(new).exp().numpy(), None
        mean, own, noise = model.numbers(new)
        return mean.numpy(), (own + noise).numpy()

    def measured(fit: Callable[[], Any]) -> dict[str, Any]:
        return scored(lambda _: said(fit().model), task)

    return {name: measured(fit) for name, fit in fitting.items()}


def scored(method: Callable[[Task], Found], task: Task) -> dict[str, Any]:
    """NLL, and accuracy or RMSE, with the CPU seconds of learning and predicting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        mean, variance = method(task)
        seconds = round(time.process_time() - start, 3)
    if variance is None:
        truth = task.truth.astype(int)
        nll = -float(np.log(np.clip(mean[np.arange(len(truth)), truth], 1e-12, None)).mean())
        return {"nll": round(nll, 5), "accuracy": round(float((mean.argmax(1) == truth).mean()), 5), "seconds": seconds}
    squared = (task.truth - mean) ** 2
    nll = float(0.5 * (squared / variance + np.log(2 * np.pi * variance)).mean())
    return {"nll": round(nll, 5), "rmse": round(float(squared.mean() ** 0.5), 5), "seconds": seconds}


def _mixed(p: Array) -> Array:
    return (1 - LEAST) * p + LEAST / p.shape[1]


def _log_loss(p: Array, y: Array) -> float:
    return -float(np.log(_mixed(p)[np.arange(len(y)), y.astype(int)]).mean())


def linear(task: Task) -> Found:
    """Logistic or ridge regression, strength by folds."""
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV

    x, new = task.scaled
    if task.classes:
        model = LogisticRegressionCV(Cs=8, cv=FOLDS, scoring="neg_log_loss", max_iter=200)
        return model.fit(x, task.y).predict_proba(new), None
    ridge = RidgeCV(np.logspace(-3, 4, 15), store_cv_results=True).fit(x, task.y)
    noise = ridge.cv_results_.mean(0).min()
    return ridge.predict(new), np.full(len(new), noise)


def discriminant(task: Task) -> Found:
    """Linear discriminant analysis with Ledoit and Wolf's shrinkage."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, new = task.scaled
    return _mixed(LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(x, task.y).predict_proba(new)), None


def forest(task: Task) -> Found:
    """A random forest; the size of its leaves, and the noise, by what trees have not seen."""
    from sklearn import ensemble

    tried = []
    for leaf in (1, 3, 6):
        options: dict[str, Any] = {"min_samples_leaf": leaf, "oob_score": True, "random_state": 0}
        if task.classes:
            model = ensemble.RandomForestClassifier(150, **options).fit(task.x, task.y)
            tried.append((_log_loss(np.nan_to_num(model.oob_decision_function_, nan=1 / task.classes), task.y), model))
        else:
            model = ensemble.RandomForestRegressor(150, max_features=1 / 3, **options).fit(task.x, task.y)
            tried.append((float(np.mean((model.oob_prediction_ - task.y) ** 2)), model))
    loss, best = min(tried, key=lambda pair: pair[0])
    if task.classes:
        return _mixed(best.predict_proba(task.new)), None
    return best.predict(task.new), np.full(len(task.new), loss)


def boosting(task: Task) -> Found:
    """Gradient boosting; the number of trees, and the noise, by folds."""
    from sklearn import ensemble
    from sklearn.model_selection import KFold, StratifiedKFold

    options: dict[str, Any] = {"subsample": 0.7, "random_state": 0}
    if task.classes:
        make = partial(
            ensemble.GradientBoostingClassifier, max_depth=2, n_estimators=80, max_features="sqrt", **options
        )
        folds = StratifiedKFold(3, shuffle=True, random_state=0).split(task.x, task.y)
    else:
        make = partial(ensemble.GradientBoostingRegressor, max_depth=3, n_estimators=200, **options)
        folds = KFold(FOLDS, shuffle=True, random_state=0).split(task.x)
    losses = []
    for kept, out in folds:
        model = make().fit(task.x[kept], task.y[kept])
        if task.classes and len(model.classes_) < task.classes:
            continue
        stages = (model.staged_predict_proba if task.classes else model.staged_predict)(task.x[out])
        truth = task.y[out]
        losses.append([_log_loss(p, truth) if task.classes else float(np.mean((p - truth) ** 2)) for p in stages])
    curve = np.mean(losses, 0)
    whole = make(n_estimators=int(curve.argmin()) + 1).fit(task.x, task.y)
    if task.classes:
        return _mixed(whole.predict_proba(task.new)), None
    return whole.predict(task.new), np.full(len(task.new), curve.min())


def process(task: Task) -> Found:
    """scikit-learn's Gaussian process by its evidence: one length a column (more than three classes: one for all)."""
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    x, new = task.scaled
    lengths = np.full(x.shape[1] if task.classes <= 3 else 1, x.shape[1] ** 0.5)
    kernel = ConstantKernel() * RBF(lengths, (1e-2, 1e3))
    if not task.classes:
        model = GaussianProcessRegressor(kernel + WhiteKernel(), n_restarts_optimizer=1, random_state=0).fit(x, task.y)
        mean, deviation = model.predict(new, return_std=True)
        return mean, deviation**2

    found = GaussianProcessClassifier(kernel, random_state=0).fit(x, task.y)
    return _mixed(found.predict_proba(new)), None


def networks(task: Task) -> Found:
    """Five networks, averaged; weight decay, and temperature or noise, by a fifth that the first of them leave out."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    x, new = task.scaled
    kind, options = MLPClassifier if task.classes else MLPRegressor, {"learning_rate_init": 1e-2, "max_iter": 150}
    make = partial(kind, hidden_layer_sizes=(64,), **options)
    out = np.arange(len(x)) % FOLDS == 0
    tried = []
    for alpha in (1e-2, 1.0, 10.0):
        model = make(alpha=alpha, random_state=0).fit(x[~out], task.y[~out])
        if not task.classes:
            tried.append((float(np.mean((model.predict(x[out]) - task.y[out]) ** 2)), alpha, 1.0))
        elif len(model.classes_) == task.classes:
            p = model.predict_proba(x[out])
            tried += [(_log_loss(_softer(p, t), task.y[out]), alpha, t) for t in (0.7, 1.0, 1.5, 2.0, 3.0)]
    loss, alpha, temperature = min(tried, default=(1.0, 1.0, 1.0))
    members = [make(alpha=alpha, random_state=seed).fit(x, task.y) for seed in range(5)]
    if task.classes:
        return _mixed(np.mean([_softer(m.predict_proba(new), temperature) for m in members], 0)), None
    means = np.array([m.predict(new) for m in members])
    return means.mean(0), means.var(0) + loss


def _softer(p: Array, temperature: float) -> Array:
    powers: Array = np.clip(p, 1e-12, None) ** (1 / temperature)
    return powers / powers.sum(1, keepdims=True)


RIVALS: dict[str, Callable[[Task], Found]] = {
    "linear model": linear,
    "discriminant": discriminant,
    "random forest": forest,
    "boosting": boosting,
    "Gaussian process": process,
    "networks": networks,
}
