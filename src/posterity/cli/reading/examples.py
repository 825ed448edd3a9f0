"""What reading leaves behind: tensors, the names of inputs and classes, and the recipe to read others alike."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from posterity.errors import BadData, UnknownNetwork

Array = npt.NDArray[Any]
Task = Literal["classification", "regression"]
Kind = Literal["images", "arrays", "table", "hugging face", "named"]
MissingRule = Literal["refuse", "drop", "mean"]
LIBRARIES = ("timm", "torchvision")
"""Whose networks are encoders by name."""
SMALLEST_SCALE = 1e-12
"""A column that varies less is constant, and only shifted."""


@dataclass(frozen=True)
class ReadOptions:
    """What a user asks of the data; what is None is found out."""

    target: str | None = None
    columns: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    """Columns that hold text even where they look like numbers."""
    task: Task | None = None
    missing: MissingRule | None = None
    size: int | None = None
    channels: int | None = None
    part: str = "train"
    groups: str | None = None
    """The column (of .npz the array) that says which examples belong together. It is no input."""
    labels: str | None = None
    """A file of labels that stands beside the inputs."""
    encoder: str | None = None
    """What makes features of images."""
    quiet: bool = False
    """Whether encoding shows no progress."""

    def like(self, recipe: DataRecipe | None) -> ReadOptions:
        """What it takes to read data as that of a fit was; a target or a rule for missing values may be named again."""
        if recipe is None:
            return self
        if self.columns and recipe.columns and set(self.columns) != set(recipe.names):
            raise BadData(
                f"--columns names {', '.join(self.columns)}, and what was learned reads {', '.join(recipe.names)}: "
                "leave --columns out."
            )
        picture = len(recipe.shape) == 3
        if recipe.encoder is not None and self.encoder is None and is_code(recipe.encoder):
            raise UnknownNetwork(
                f"these images were encoded by {recipe.encoder}, which is code and not in the file: say --encoder "
                f"{recipe.encoder} to run it."
            )
        return replace(
            self,
            target=self.target or recipe.target,
            groups=self.groups or recipe.groups,
            columns=recipe.names,
            text=(),
            task=recipe.task,
            missing=self.missing or recipe.missing,
            size=recipe.shape[-1] if picture else recipe.size,
            encoder=(self.encoder or recipe.encoder) if recipe.encoder is not None else None,
            channels=recipe.shape[0] if picture else None,
        )


def is_code(encoder: str) -> bool:
    """Whether an encoder's name stands for someone's code, which is run only if the user names it."""
    return ":" in encoder and encoder.partition(":")[0] not in LIBRARIES


@dataclass(frozen=True)
class TableColumn:
    """A column of a table that is read: numbers as one input, text as one input of 0 or 1 for each category."""

    name: str
    categories: tuple[str, ...] = ()
    """Of a column of text, in order. Any other text, later, is 0 in all of them."""

    @property
    def width(self) -> int:
        """How many inputs of the network this column becomes."""
        return len(self.categories) or 1

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.categories)})" if self.categories else self.name


@dataclass(frozen=True)
class DataRecipe:
    """How raw data became the network's inputs and targets: kept with a fit and with a prior, so that new data is read alike."""

    task: Task
    shape: tuple[int, ...]
    """Of one input."""
    columns: tuple[TableColumn, ...] = ()
    target: str | None = None
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    """Of each input from a table: the network sees (value − mean) / scale. Categories have 0 and 1."""
    missing: MissingRule = "refuse"
    """Rows of a table with missing values: refused, left out, or filled in with the mean (text: no category)."""
    target_mean: float = 0.0
    target_scale: float = 1.0
    """Of a regression's target; predictions are turned back into its own units."""
    encoder: str | None = None
    """What made features of images, and of which size."""
    size: int | None = None
    groups: str | None = None
    """What belonged together where it was learned: certificates count the same."""

    @classmethod
    def of(cls, raw: RawData, task: Task, options: ReadOptions) -> DataRecipe:
        """The recipe that data makes for itself: columns of numbers get mean 0 and variance 1."""
        recipe = cls(
            task,
            raw.x.shape[1:],
            raw.columns,
            options.target,
            missing=options.missing or "refuse",
            groups=options.groups,
        )
        if options.encoder is not None:
            recipe = replace(recipe, encoder=options.encoder, size=options.size)
        if task == "regression" and raw.y is not None:
            y = numbers_of(raw.y)
            recipe = replace(recipe, target_mean=float(y.mean()), target_scale=_scale(float(y.std())))
        if not raw.columns:
            return recipe
        of_text = np.concatenate([np.full(column.width, bool(column.categories)) for column in raw.columns])
        with np.errstate(over="ignore", invalid="ignore"):  # which shows below
            centre, spread = np.nanmean(raw.x, 0), np.nanstd(raw.x, 0)
        if not np.isfinite(centre).all() or not np.isfinite(spread).all():
            k = int((~np.isfinite(centre + spread)).argmax())
            raise BadData(f'the values of column "{recipe.inputs[k]}" are too large to take their mean and spread.')
        return replace(
            recipe,
            mean=tuple(np.where(of_text, 0.0, centre).tolist()),
            scale=tuple(1.0 if text else _scale(s) for text, s in zip(of_text, spread.tolist(), strict=True)),
        )

    def filled(self, x: Array) -> Array:
        """Rows as they were read, gaps filled in with the mean."""
        return np.where(np.isnan(x), np.array(self.mean), x) if self.columns and np.isnan(x).any() else x

    def standardised(self, x: Array) -> Array:
        """Inputs from rows as they were read."""
        return (x - np.array(self.mean)) / np.array(self.scale) if self.columns else x

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(column.name for column in self.columns)

    @property
    def inputs(self) -> tuple[str, ...]:
        """A name for each input from a table: of the column, or column=category."""
        return tuple(name for c in self.columns for name in ([f"{c.name}={v}" for v in c.categories] or [c.name]))

    def rows(self) -> list[tuple[str, str]]:
        """What a reader of a fit's card has to know, in words."""
        if self.encoder is not None:
            return [("encoder", f"{self.encoder}, {self.size or 'its own number of'} pixels on a side")]
        if not self.columns:
            return []
        text = [str(column) for column in self.columns if column.categories]
        rules = {
            "refuse": "refused",
            "drop": "their rows are left out",
            "mean": "the column's mean; no category for text; rows without a target are left out",
        }
        return [
            ("columns", ", ".join(self.names)),
            *([("text columns", f"{'; '.join(text)}: 0 or 1 for each; any other text is 0 in all")] if text else []),
            ("missing values", rules[self.missing]),
        ]

    def to_json(self) -> dict[str, Any]:
        """The recipe as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Any) -> DataRecipe:
        """From plain values, each looked at: they may come from a file of unknown origin."""
        try:
            recipe = cls(
                task={name: name for name in get_args(Task)}[found["task"]],
                shape=tuple(int(side) for side in found["shape"]),
                columns=tuple(
                    TableColumn(str(c["name"]), tuple(str(v) for v in c["categories"])) for c in found["columns"]
                ),
                target=None if found["target"] is None else str(found["target"]),
                mean=tuple(float(v) for v in found["mean"]),
                scale=tuple(float(v) for v in found["scale"]),
                missing={name: name for name in get_args(MissingRule)}[found["missing"]],
                target_mean=float(found["target_mean"]),
                target_scale=float(found["target_scale"]),
                encoder=None if found.get("encoder") is None else str(found["encoder"]),
                size=None if found.get("size") is None else int(found["size"]),
                groups=None if found.get("groups") is None else str(found["groups"]),
            )
            recipe._check()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadData(f"the recipe for reading data is damaged: {type(error).__name__} {error}.") from None
        return recipe

    def _check(self) -> None:
        width = sum(column.width for column in self.columns)
        if len(self.mean) != width or len(self.scale) != width or (width and self.shape != (width,)):
            raise ValueError(f"{len(self.mean)} means and {len(self.scale)} scales for {width} inputs {self.shape}")
        numbers = (*self.mean, *self.scale, self.target_mean, self.target_scale)
        if not all(map(math.isfinite, numbers)) or min((*self.scale, self.target_scale)) <= 0:
            raise ValueError("a scale is not positive, or a number is not finite")


def _scale(spread: float) -> float:
    return spread if spread > SMALLEST_SCALE else 1.0


@dataclass(frozen=True, eq=False)
class RawData:
    """Inputs and labels as they stand in the files."""

    x: Array
    """Of a table in float64, NaN where a value is missing and is to be filled in."""
    y: Array | None
    """Text or numbers."""
    names: list[str]
    """Of the inputs: files, or numbers of rows."""
    classes: tuple[str, ...] = ()
    """Names that the data itself gives to numbers 0, 1, …"""
    columns: tuple[TableColumn, ...] = ()
    notes: list[str] = field(default_factory=list)
    groups: Array | None = None
    """A text or number for each example, the same for those that belong together."""


@dataclass(frozen=True, eq=False)
class TensorExamples:
    """Inputs and targets fit for a network."""

    x: Tensor
    y: Tensor | None
    names: list[str]
    classes: tuple[str, ...]
    """Empty for a regression."""
    recipe: DataRecipe
    rows: Tensor
    """The inputs as they were read, before standardisation: another mean and scale leave their hashes the same."""
    notes: list[str] = field(default_factory=list)
    groups: Tensor | None = None
    """A number for each example, the same for those that belong together, where the data says so."""

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets, where there are any."""
        if self.y is None:
            raise BadData("these inputs have no labels, and labels are needed here.")
        return self.x, self.y

    @property
    def outputs(self) -> int:
        """How many outputs a network needs for these examples."""
        return len(self.classes) if self.classes else (1 if self.y is None or self.y.ndim < 2 else self.y.shape[1])


def numbers_of(y: Array) -> npt.NDArray[np.float64]:
    """The targets of a regression, one row for each example."""
    if y.dtype.kind not in "fiub":
        raise BadData(
            "the targets are text, and a regression needs numbers: --task classification takes them for classes."
        )
    return y.astype(np.float64).reshape(len(y), -1)


def numbered(labels: Array) -> tuple[tuple[str, ...], list[str]]:
    """The names of the classes in order, and every label as its name. Whole numbers are ordered as numbers."""
    if labels.dtype.kind in "iub" or (labels.dtype.kind == "f" and bool((labels == np.round(labels)).all())):
        numbers = [int(v) for v in labels.tolist()]
        return tuple(str(v) for v in sorted(set(numbers))), [str(v) for v in numbers]
    words = [str(v) for v in labels.tolist()]
    return tuple(sorted(set(words))), words
