"""One learner on one stream: the settings of each task chosen by validation NLL, all judged on the same test images."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from posterity.gaussian import Gaussian
from posterity.progressive import BPNN, PNN, Joint, Judgement, OneNetwork, Stream, Task, judge
from posterity.progressive.metrics import average_accuracy, backward_transfer, forgetting, gathered, judged
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.sources import Recipe, learned_prior
from posterity_studies.shared.streams import split
from posterity_studies.studies.continual.methods import Method, full, small

HELD, TESTED = 25, 100
"""Validation and test images a class."""


def source(arguments: Arguments) -> Recipe | None:
    """With all of a data set there is no other data."""
    small = arguments["protocol"] == "small"
    return Recipe(arguments["source"], arguments["examples"], 1.0) if small else None


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    seed, recipe = arguments["seed"], source(arguments)
    if recipe is None:
        stream = split("mnist", seed, held=100)
        training = {"epochs": arguments["epochs"], "stop_after": 99, "lr": 1e-3, "batch_size": 128, "validation": None}
        return _values(*run_stream(full(arguments["method"], training, seed), stream))
    shots = arguments["shots"]
    stream = split(arguments["target"], seed, shots=shots, held=HELD, tested=TESTED)
    batch = min(64, 2 * shots)
    epochs = max(1, arguments["steps"] * batch // (2 * shots))
    training = {"epochs": epochs, "stop_after": epochs, "lr": 2e-3, "batch_size": batch, "validation": None}
    learned = learned_prior(recipe)
    return _values(*run_stream(small(arguments["method"], learned, training, seed), stream))


def run_stream(method: Method, stream: Stream) -> tuple[list[list[Judgement | None]], list[str], float | None]:
    """The matrix of judgements, the setting chosen for each task, and the mean validation NLL where none was."""
    learner, tasks = method.learner, list(stream)
    if isinstance(learner, Joint):
        return _all_at_once(method, tasks)
    if isinstance(learner, OneNetwork) and method.settings:
        return _by_whole_streams(method, stream)
    rows: list[list[Judgement | None]] = []
    chosen: list[str] = []
    for number, task in enumerate(tasks):
        chosen.append(_learn(method, task))
        if isinstance(learner, BPNN | PNN) and rows:
            # Earlier tasks are bit-identical, which tests hold: there is no need to look again.
            row = [*rows[-1][:number], judge(learner, task)]
        else:
            row = [judge(learner, old) for old in tasks[: number + 1]]
        rows.append([*row, *[None] * (len(tasks) - len(row))])
    # Only where nothing was chosen yet is there still a choice to make: among weight decays, in the tables.
    return rows, chosen, None if method.settings or method.priors else _held_out(learner, tasks)


def _by_whole_streams(method: Method, stream: Stream) -> tuple[list[list[Judgement | None]], list[str], float | None]:
    """Once through the stream with every setting: how hard to hold on to a task shows only in those that follow."""
    trials = []
    for name, apply in method.settings:
        learner = copy.deepcopy(method.learner)
        apply(learner)
        rows, _, held = run_stream(Method(learner), stream)
        assert held is not None
        trials.append((held, name, rows))
    held, name, rows = min(trials, key=lambda trial: trial[0])
    return rows, [name], held


def _learn(method: Method, task: Task) -> str:
    """Learn a task with every setting, keep the one of least validation NLL."""
    learner: Any = method.learner
    if isinstance(learner, BPNN):
        learned = learner.draft(task, prior=method.priors or None, progress=False)
        learner.adopt(learned)
        return "" if not method.priors else str(_which(learned.prior, method.priors, len(learner.learned) - 1))
    if not method.settings:
        learner.learn(task, progress=False)
        return ""
    before = learner.learned
    trials = []
    for name, apply in method.settings:
        apply(learner)
        learner.adopt(learner.draft(task, progress=False))
        trials.append((_held_out(learner, [task]), name, learner.learned))
        learner.learned = before
    _, name, learner.learned = min(trials, key=lambda trial: trial[0])
    return name


def _which(prior: Gaussian, priors: Sequence[Gaussian], column: int) -> int:
    """Which of the candidates a column's prior came from."""
    found = prior.precision[f"columns.{column}.0"]
    return next(k for k, candidate in enumerate(priors) if candidate.precision["0"] is found)


def _all_at_once(method: Method, tasks: list[Task]) -> tuple[list[list[Judgement | None]], list[str], float | None]:
    """Joint training, once, on everything: only the last row is of use."""
    learner: Any = method.learner
    trials = []
    for name, apply in method.settings:
        apply(learner)
        learner.seen = tuple(tasks[:-1])
        learner.learn(tasks[-1], progress=False)
        trials.append((_held_out(learner, tasks), name, learner.network))
    loss, name, learner.network = min(trials, key=lambda trial: trial[0])
    return [[judge(learner, task) for task in tasks]], [name], loss


def _held_out(learner: Any, tasks: list[Task]) -> float:
    losses = []
    for task in tasks:
        assert task.validation is not None
        x, y = gathered(task.validation)
        losses.append(judged(learner.predict(x, task.name, generator=torch.Generator().manual_seed(1)), y).nll)
    return sum(losses) / len(losses)


def _values(rows: list[list[Judgement | None]], chosen: list[str], held: float | None) -> Values:
    r = [[float("nan") if j is None else j.accuracy for j in row] for row in rows]
    last = [j for j in rows[-1] if j is not None]
    whole = len(rows) == len(rows[0])
    return {
        "acc": _short(average_accuracy(r)),
        "bwt": _short(backward_transfer(r)) if whole else None,
        "forgetting": _short(forgetting(r)) if whole else None,
        "nll": _short(sum(j.nll for j in last) / len(last)),
        "ece": _short(sum(j.ece for j in last) / len(last)),
        "when learned": [_short(r[k][k]) for k in range(len(r))] if whole else None,
        "at the end": [_short(j.accuracy) for j in last],
        "held out": None if held is None else _short(held),
        "chosen": chosen,
    }


def _short(x: float) -> float:
    return float(f"{x:.5g}")
