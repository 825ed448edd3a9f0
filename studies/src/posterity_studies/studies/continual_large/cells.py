"""One learner on one seed's stream: every task judged when it was learned, and again at the end."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from posterity.algebra import FlooredMatrix
from posterity.progressive import BPNN, Stream, Task
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.columns import Origin, imagenet_columns, last_stages, made_up_columns
from posterity_studies.shared.continual import PNN
from posterity_studies.shared.continual.metrics import gathered, judged
from posterity_studies.shared.picture_streams import made_up, of_sets, of_washington
from posterity_studies.studies.continual_large.methods import Method, method


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Accuracy, NLL and ECE by task, the temperatures that validation chose, and how many predictions changed later."""
    began = time.process_time()
    origin, stream = _where(arguments)
    epochs = arguments["epochs"]
    training = {"epochs": epochs, "stop_after": epochs, "halve_after": epochs, "batch_size": arguments["batch"]}
    options = {"draws": arguments["draws"], "strengths": arguments["strengths"]}
    found = run(method(arguments["method"], origin, training, arguments["seed"], **options), stream)
    return found | {"cpu": round(time.process_time() - began)}


def _where(arguments: Arguments) -> tuple[Origin, Stream]:
    match arguments["stream"]:
        case "made up":
            return made_up_columns(), made_up(arguments["seed"])
        case "washington":
            return imagenet_columns(), of_washington(arguments["size"])
    sizes = {name: arguments[name] for name in ("size", "shots", "held", "tested")}
    maps = arguments["columns"] == "last stage"
    stream = of_sets(arguments["seed"], classes=tuple(arguments["classes"]), **sizes, maps=maps)
    return last_stages() if maps else imagenet_columns(), stream


def run(chosen: Method, stream: Stream) -> dict[str, Any]:
    """Learn the tasks one by one."""
    learner = chosen.learner
    measures: dict[str, list[float]] = {"accuracy": [], "nll": [], "ece": []}
    temperatures: list[float | None] = []
    kept: list[tuple[Tensor, Tensor | None]] = []
    for number, task in enumerate(stream):
        chosen.learn(task)
        if isinstance(learner, BPNN):
            temperatures.append(_temperature(learner))
        x, y = _test(task)
        prediction = _predicted(learner, x, task)
        scores = judged(prediction, y)
        for name, values in measures.items():
            values.append(float(f"{getattr(scores, name):.5g}"))
        # Draws take longest: those of the first task, which all others come after, are looked at again.
        kept.append((_outputs(learner, x, task), prediction.probs if number == 0 else None))
    changed = 0
    for task, (outputs, probs) in zip(stream, kept, strict=True):
        x, _ = _test(task)
        differs = (_outputs(learner, x, task) != outputs).any(1)
        if probs is not None:
            differs |= (_predicted(learner, x, task).probs != probs).any(1)
        changed += int(differs.sum())
    tested = [len(outputs) for outputs, _ in kept]
    return {**measures, "tested": tested, "changed": changed, "temperatures": temperatures}


def _test(task: Task) -> tuple[Tensor, Tensor]:
    assert task.test is not None
    return gathered(task.test)


def _predicted(learner: BPNN | PNN, x: Tensor, task: Task) -> Any:
    return learner.predict(x, task.name, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def _outputs(learner: BPNN | PNN, x: Tensor, task: Task) -> Tensor:
    """Of the task's network at its own weights, bit by bit."""
    network = learner.network(task.name)
    return torch.cat([network(part) for part in x.split(50)])


def _temperature(learner: BPNN) -> float | None:
    """The τ that validation chose for the newest column: one over what its curvature was multiplied by."""
    found = [m.share for m in learner.learned[-1].posterior.precision.values() if isinstance(m, FlooredMatrix)]
    return float(f"{1 / found[0]:.3g}") if found else None
