"""Models of inputs as plain values and tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from posterity.errors import DamagedFile
from posterity.heads import ClassHead, NumberHead, from_tensors, to_tensors
from posterity.tables.linear import LinearClasses, LinearNumbers
from posterity.tables.model import ClassModel, NumberModel
from posterity.tables.process import Process, ProcessClasses, ProcessKernel, Standardisation
from posterity.tables.trees import TreeClasses, TreeNumbers, Trees

Plain = dict[str, Any]
NODES = ("roots", "feature", "threshold", "left", "right", "values", "start")

NUMBERS = ("width", "floor", "mean", "scale")


def to_plain(model: ClassModel | NumberModel) -> tuple[Plain, dict[str, Tensor]]:
    """All that predicts but the training examples; they are needed beside it for a process."""
    match model:
        case LinearClasses() | LinearNumbers():
            tensors, about = to_tensors(model.head)
            return {"model": "linear", "head": about}, tensors
        case Process():
            tensors = {"centre": model.scaled.centre, "scale": model.scaled.scale, "logs": model.kernel.logs}
            tensors |= {"weights": model.weights, "root": model.root}
            return {"model": "process", "mean": model.mean, "deviation": model.scale, "width": model.width}, tensors
        case ProcessClasses():
            head, about = to_tensors(model.head)
            tensors = {"centre": model.scaled.centre, "scale": model.scaled.scale, "logs": model.kernel.logs}
            tensors |= {"along": model.along} | {f"head/{name}": x for name, x in head.items()}
            return {"model": "process of classes", "head": about}, tensors
        case TreeClasses():
            plain = {"model": "tree classes", "mixed": model.mixed, "temperature": model.temperature}
            return plain | {"depth": model.trees.depth}, _nodes(model.trees) | {"frequencies": model.frequencies}
        case TreeNumbers():
            numbers = {name: getattr(model, name) for name in NUMBERS}
            plain = {"model": "tree numbers", **numbers}
            return plain | {"depth": model.trees.depth}, _nodes(model.trees)
    raise TypeError(f"a {type(model).__name__} has no place in a file")


def from_plain(
    plain: Plain, tensors: Mapping[str, Tensor], examples: Float[Tensor, "n d"] | None
) -> ClassModel | NumberModel:
    """The model again, to the last bit.

    Raises:
        DamagedFile: if a part is missing, or nodes point outside.
    """
    match plain["model"]:
        case "linear":
            head = from_tensors(dict(tensors), plain["head"])
            return LinearClasses(head) if isinstance(head, ClassHead) else LinearNumbers(_number(head))
        case "process":
            if examples is None or len(examples) != len(tensors["weights"]):
                raise DamagedFile("the training examples of a Gaussian process are missing.")
            scaled = Standardisation(tensors["centre"], tensors["scale"])
            kernel, numbers = (
                ProcessKernel(tensors["logs"]),
                [float(plain[name]) for name in ("mean", "deviation", "width")],
            )
            return Process(scaled, kernel, scaled(examples), tensors["weights"], tensors["root"], *numbers)
        case "process of classes":
            if examples is None or len(examples) != len(tensors["along"]):
                raise DamagedFile("the training examples of a Gaussian process are missing.")
            own = {name.removeprefix("head/"): x for name, x in tensors.items() if name.startswith("head/")}
            scaled, found = Standardisation(tensors["centre"], tensors["scale"]), from_tensors(own, plain["head"])
            assert isinstance(found, ClassHead)
            return ProcessClasses(scaled, ProcessKernel(tensors["logs"]), scaled(examples), tensors["along"], found)
        case "tree classes":
            trees = _trees(plain, tensors)
            return TreeClasses(trees, tensors["frequencies"], float(plain["mixed"]), float(plain["temperature"]))
        case "tree numbers":
            return TreeNumbers(_trees(plain, tensors), *(float(plain[name]) for name in NUMBERS))
    raise DamagedFile(f"no model of inputs is called {plain['model']!r}.")


def _nodes(trees: Trees) -> dict[str, Tensor]:
    return {name: getattr(trees, name) for name in NODES}


def _trees(plain: Plain, tensors: Mapping[str, Tensor]) -> Trees:
    count = len(tensors["values"])
    for name in ("roots", "left", "right"):
        if not bool(((tensors[name] >= 0) & (tensors[name] < count)).all()):
            raise DamagedFile(f'"{name}" of trees points outside of their {count} nodes.')
    if not bool((tensors["feature"] >= 0).all()):
        raise DamagedFile('"feature" of trees is below zero.')
    return Trees(**{name: tensors[name] for name in NODES}, depth=int(plain["depth"]))


def _number(head: NumberHead | ClassHead) -> NumberHead:
    assert isinstance(head, NumberHead)
    return head
