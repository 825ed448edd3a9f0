"""One learner on one stream: the settings of each task chosen by validation NLL, all judged on the same test images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from posterity.gaussian import Gaussian
from posterity.lenet import lenet5
from posterity.progressive import BPNN, Stream, Task
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.continual import PNN, JointNetwork, Judgement, OneNetwork, judge
from posterity_studies.shared.continual.metrics import average_accuracy, backward_transfer, forgetting, gathered, judged
from posterity_studies.shared.networks import with_fast_pooling
from posterity_studies.shared.priors import start_at
from posterity_studies.shared.prototypes import Prototypes
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
    kind, _, rest = arguments["method"].partition(" ")
    learned = learned_prior(recipe)
    if kind == "incremental":
        return _incremental(None if rest == "prototypes" else small(rest, learned, training, seed), learned, stream)
    method = small(arguments["method"], learned, training, seed)
    values = _values(*run_stream(method, stream))
    return {**values, **_certified(method.learner, stream)} if kind == "scales" else values


def _incremental(method: Method | None, learned: Gaussian, stream: Stream) -> dict[str, Any]:
    """Accuracy over all classes at the end of the stream, and how often the task was found; prototypes where no method is."""
    tasks = list(stream)
    tests = [gathered(task.test) for task in tasks if task.test is not None]
    images = torch.cat([x for x, _ in tests])
    truth = torch.cat([_overall(tasks, k, y) for k, (_, y) in enumerate(tests)])
    if method is None:
        features = _features(learned)
        found = Prototypes.none(sum(task.classes for task in tasks), features(images[:1]).shape[1])
        for k, task in enumerate(tasks):
            x, y = gathered(task.train)
            found = found.after(features(x), _overall(tasks, k, y))
        label = found.probabilities(features(images)).argmax(-1)
    else:
        run_stream(method, stream)
        answers = [
            method.learner.predict(images, task.name, generator=torch.Generator().manual_seed(1)).probs
            for task in tasks
        ]
        doubt = torch.stack([torch.special.entr(probs).sum(-1) for probs in answers])
        labels = torch.stack([_overall(tasks, k, probs.argmax(-1)) for k, probs in enumerate(answers)])
        label = labels.gather(0, doubt.argmin(0, keepdim=True)).squeeze(0)
    where = torch.cat([torch.full((task.classes,), k) for k, task in enumerate(tasks)])
    found_task = (where[label] == where[truth]).double().mean()
    return {"acc": _short(float((label == truth).double().mean())), "task": _short(float(found_task))}


def _overall(tasks: Sequence[Task], number: int, y: Tensor) -> Tensor:
    """Labels of a task among the classes of all."""
    return y + sum(task.classes for task in tasks[:number])


def _features(learned: Gaussian) -> Callable[[Tensor], Tensor]:
    """What the source's head sees."""
    model = with_fast_pooling(lenet5())
    start_at(model, learned)
    return lambda x: model.eval()[:-1](x).detach()


def _certified(learner: Any, stream: Stream) -> dict[str, Any]:
    """Bounds and KL divergences of all tasks, where no data of theirs chose the posterior's width."""
    if learner.scales == "loo" or len(learner.temperatures) > 1:
        return {}
    found = [learner.certify(task, generator=torch.Generator().manual_seed(2)) for task in stream]
    return {"certificates": [_short(one.bound) for one in found], "kl": [_short(one.kl) for one in found]}


def run_stream(method: Method, stream: Stream) -> tuple[list[list[Judgement | None]], list[str], float | None]:
    """The matrix of judgements, the setting chosen for each task, and the mean validation NLL where none was."""
    learner, tasks = method.learner, list(stream)
    if isinstance(learner, JointNetwork):
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
