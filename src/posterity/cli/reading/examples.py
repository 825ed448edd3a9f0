"""What reading leaves behind: tensors, the names of inputs and classes, and the recipe to read others alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from posterity.errors import BadData

Array = npt.NDArray[Any]
Task = Literal["classification", "regression"]
Kind = Literal["images", "arrays", "table", "hugging face", "named"]


@dataclass(frozen=True)
class Wish:
    """What a user asks of the data; what is None is found out."""

    target: str | None = None
    columns: tuple[str, ...] = ()
    task: Task | None = None
    missing: Literal["refuse", "drop"] = "refuse"
    size: int | None = None
    channels: int | None = None
    part: str = "train"


@dataclass(frozen=True)
class Recipe:
    """How raw data became the network's inputs and targets: kept with a fit, so that new data is read alike."""

    task: Task
    shape: tuple[int, ...]
    """Of one input."""
    columns: tuple[str, ...] = ()
    target: str | None = None
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    """Of each column of a table: inputs are (value − mean) / scale."""
    target_mean: float = 0.0
    target_scale: float = 1.0
    """Of a regression's target; predictions are turned back into its own units."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Any) -> Recipe:
        """From plain values, each looked at: they may come from a stranger's file."""
        try:
            return cls(
                task={"classification": "classification", "regression": "regression"}[found["task"]],  # type: ignore[arg-type]
                shape=tuple(int(side) for side in found["shape"]),
                columns=tuple(str(c) for c in found["columns"]),
                target=None if found["target"] is None else str(found["target"]),
                mean=tuple(float(v) for v in found["mean"]),
                scale=tuple(float(v) for v in found["scale"]),
                target_mean=float(found["target_mean"]),
                target_scale=float(found["target_scale"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadData(f"the recipe for reading data is damaged: {type(error).__name__} {error}.") from None


@dataclass(frozen=True, eq=False)
class Raw:
    """Inputs and labels as they stand in the files."""

    x: Array
    y: Array | None
    """Text or numbers."""
    names: list[str]
    """Of the inputs: files, or numbers of rows."""
    classes: tuple[str, ...] = ()
    """Names that the data itself gives to numbers 0, 1, …"""
    columns: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and targets fit for a network."""

    x: Tensor
    y: Tensor | None
    names: list[str]
    classes: tuple[str, ...]
    """Empty for a regression."""
    recipe: Recipe
    notes: list[str] = field(default_factory=list)

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets, where there are any."""
        if self.y is None:
            raise BadData("these inputs have no labels, and labels are needed here.")
        return self.x, self.y

    @property
    def outputs(self) -> int:
        """How many outputs a network needs for them."""
        return len(self.classes) if self.classes else (1 if self.y is None or self.y.ndim < 2 else self.y.shape[1])


def numbered(labels: Array) -> tuple[tuple[str, ...], list[str]]:
    """The names of the classes in order, and every label as its name. Whole numbers are ordered as numbers."""
    if labels.dtype.kind in "iub" or (labels.dtype.kind == "f" and bool((labels == np.round(labels)).all())):
        numbers = [int(v) for v in labels.tolist()]
        return tuple(str(v) for v in sorted(set(numbers))), [str(v) for v in numbers]
    words = [str(v) for v in labels.tolist()]
    return tuple(sorted(set(words))), words
