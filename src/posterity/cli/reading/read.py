"""From a path to tensors; and a look at what is there without reading all of it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from posterity.arrays import array_shape, read_arrays
from posterity.border import check_size, reading
from posterity.cli.reading import encoders, hugging_face, images, tables
from posterity.cli.reading.columns import check_target, read_columns, read_target
from posterity.cli.reading.examples import (
    Array,
    DataRecipe,
    Kind,
    RawData,
    ReadOptions,
    Task,
    TensorExamples,
    numbered,
    numbers_of,
)
from posterity.errors import BadData, NoDataSet
from posterity.idx import IDX, part_of

FEW_NUMBERS = 20
"""A target of at most so many different whole numbers is taken for classes."""


@dataclass(frozen=True)
class Preview:
    """What is on disk, as far as it can be known without reading all of it."""

    kind: Kind
    count: int
    shape: tuple[int, ...]
    """Of one input, as the network will get it."""
    classes: tuple[str, ...] | None
    """None where they are not known before all labels are read."""
    columns: tuple[str, ...] = ()


def kind_of(path: str) -> Kind:
    """The kind of data at a path."""
    if path in IDX:
        return "named"
    where = Path(path)
    if not where.exists():
        beside = [p.name for p in where.parent.iterdir()] if where.parent.is_dir() else []
        near = difflib.get_close_matches(where.name, beside, 1)
        meant = f" Did you mean {where.with_name(near[0])}?" if near else ""
        raise NoDataSet(f"there is no file or folder {path}; sets known by name are {', '.join(IDX)}.{meant}")
    if where.is_dir():
        return "hugging face" if hugging_face.is_hugging_face(where) else "images"
    if where.suffix.lower() in (".npz", ".npy"):
        return "arrays"
    if where.suffix.lower() in tables.SUFFIXES:
        return "table"
    raise NoDataSet(
        f"{path} is none of: a folder of images (one folder a class), .npz with x and y, .npy, {', '.join(tables.SUFFIXES)}."
    )


def look(path: str, options: ReadOptions = ReadOptions(), recipe: DataRecipe | None = None) -> Preview:  # noqa: B008 (frozen)
    """How many examples there are, of which shape and classes. Of images and arrays only names and headers are read.

    Raises:
        NoDataSet: if there is nothing of that name, or nothing that can be read.
    """
    kind, where = kind_of(path), Path(path)
    options = options.like(recipe)
    with reading(path, f"data ({kind})", BadData):
        if kind == "images":
            files, classes = images.image_files(where)
            if options.encoder is not None:
                return Preview(kind, len(files), (), classes or None)
            size = options.size or images.SIZE
            channels = options.channels or images.channels_of([(str(p), p) for p, _ in files])
            return Preview(kind, len(files), (channels, size, size), classes or None)
        if kind == "arrays":
            count, *shape = _shape(where) or (0,)
            return Preview(kind, count, tuple(shape), None)
        if kind == "hugging face":
            found = hugging_face.opened(where, options.part)
            shape_ = hugging_face.image_shape(found, options)
            if shape_ is not None:
                named = hugging_face.class_names(found, hugging_face.target_of(found, options))
                return Preview(kind, len(found), shape_, named or None, tuple(found.column_names))
    examples = read(path, options, recipe, labels=False)
    return Preview(kind, len(examples.x), tuple(examples.x.shape[1:]), examples.classes or None, examples.recipe.names)


def read(
    path: str,
    options: ReadOptions = ReadOptions(),  # noqa: B008 (frozen)
    recipe: DataRecipe | None = None,
    classes: tuple[str, ...] = (),
    labels: bool = True,
) -> TensorExamples:
    """All examples as tensors.

    Args:
        path: a folder, a file, or a name.
        options: what the user asks for.
        recipe: of a fit: new data is read as its training data was.
        classes: of a fit, in the order of its outputs.
        labels: whether labels are needed.
    Returns:
        Inputs and targets, with the recipe to read others alike.
    Raises:
        BadData: if something cannot be read, with the file, row or column.
    """
    kind = kind_of(path)
    with reading(path, f"data ({kind})", BadData):
        raw = _raw(path, kind, options.like(recipe), recipe, labels)
        if options.labels is not None and labels:
            raw = replace(raw, y=_beside(Path(options.labels), options.target, len(raw.x)), classes=())
        if not len(raw.x):
            raise BadData(f"{path} has no example.")
        if raw.y is None and labels:
            raise BadData(f"{path} has no labels, and they are needed here.")
        return _examples(path, kind, raw, options.like(recipe), recipe, classes, labels)


def _examples(
    path: str,
    kind: Kind,
    raw: RawData,
    options: ReadOptions,
    recipe: DataRecipe | None,
    classes: tuple[str, ...],
    labels: bool,
) -> TensorExamples:
    known = recipe is not None
    task = recipe.task if recipe is not None else _task(raw, options, kind)
    recipe = recipe or DataRecipe.of(raw, task, options)
    if raw.x.shape[1:] != recipe.shape:
        raise BadData(f"{path} has inputs of shape {raw.x.shape[1:]}; those learned from had {recipe.shape}.")
    rows = recipe.filled(raw.x)
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(recipe.standardised(rows), dtype=np.float32)
    _check_finite(path, x, raw, recipe)
    inputs = torch.from_numpy(x)
    as_read = torch.from_numpy(np.ascontiguousarray(rows)) if recipe.columns else inputs
    y: Tensor | None = None
    if raw.y is None or (known and not labels):
        # Folders of foreign inputs may have names of their own: no one asked for them.
        found = classes
    elif task == "regression":
        y, found = _scaled(raw.y, recipe), ()
    else:
        y, found = _classes(raw, classes, path)
    groups = None if raw.groups is None else torch.from_numpy(np.unique(raw.groups, return_inverse=True)[1].reshape(-1))
    return TensorExamples(inputs, y, raw.names, found, recipe, as_read, raw.notes, groups)


def _raw(path: str, kind: Kind, options: ReadOptions, recipe: DataRecipe | None, labels: bool) -> RawData:
    where = Path(path)
    if options.groups is not None and not labels:
        options = replace(options, groups=None)  # new inputs need not have it
    if options.groups is not None and kind in ("images", "named"):
        raise BadData(
            f'{path} has no column "{options.groups}": --groups names a column of a table, or an array of an .npz file.'
        )
    match kind:
        case "images":
            if options.encoder is not None:
                return encoders.encoded_images(where, options.encoder, options.size, options.quiet)
            return images.read_images(where, options.size, options.channels)
        case "arrays":
            return _npy(where, options.groups) if where.suffix.lower() == ".npy" else _npz(where, options.groups)
        case "table":
            table = tables.read_table(where)
            if recipe is not None and not labels:
                options = replace(options, target=None)  # new inputs need not have it, and may have gaps in it
            check_target(table, options, labels)
            return read_columns(table, options, recipe)
        case "named":
            if options.part not in ("train", "test"):
                raise BadData(f'{path} has the parts train and test, and no "{options.part}".')
            x, y = part_of(path, "train" if options.part == "train" else "test")
            return RawData(x.numpy(), y.numpy(), [str(i + 1) for i in range(len(x))])
        case _:
            return hugging_face.read_hugging_face(where, options, recipe, labels)


def _npz(path: Path, groups: str | None) -> RawData:
    arrays = read_arrays(path, ["x"] if groups is None else ["x", groups], ["y"])
    x, y = arrays["x"], arrays.get("y")
    if x.dtype.kind not in "fiub" or not x.ndim:
        raise NoDataSet(
            f"{path}: x is an array of {x.dtype} and shape {x.shape[:9]}: one row of numbers for each input."
        )
    if y is not None and (not y.ndim or len(y) != len(x) or not len(y)):
        raise NoDataSet(f"{path}: x has shape {x.shape[:9]} and y {y.shape[:9]}: one label is needed for each input.")
    together = None if groups is None else arrays[groups]
    if together is not None and together.shape != (len(x),):
        raise NoDataSet(
            f'{path}: x has {len(x):,} inputs and "{groups}" has shape {together.shape[:9]}: one for each is needed.'
        )
    return RawData(x.astype(np.float32), y, [str(i + 1) for i in range(len(x))], groups=together)


def _npy(path: Path, groups: str | None) -> RawData:
    if groups is not None:
        raise BadData(f'{path} holds one array, and no "{groups}": --groups names an array of an .npz file.')
    x = np.load(path, mmap_mode="r", allow_pickle=False)
    if x.dtype.kind not in "fiub" or x.ndim < 2:
        raise NoDataSet(f"{path} is an array of {x.dtype} and shape {x.shape[:9]}: one row of numbers for each input.")
    check_size(path, 4 * x.size, f"an array of shape {x.shape[:9]}")
    return RawData(x.astype(np.float32), None, [str(i + 1) for i in range(len(x))])


def _shape(path: Path) -> tuple[int, ...]:
    if path.suffix.lower() != ".npy":
        return array_shape(path, "x")
    found: tuple[int, ...] = np.load(path, mmap_mode="r", allow_pickle=False).shape
    return found


def _beside(path: Path, column: str | None, count: int) -> Array:
    """Labels from a file of their own: a .npy array, or a column of a table."""
    with reading(path, "a file of labels", BadData):
        if path.suffix.lower() == ".npy":
            y: Array = np.load(path, allow_pickle=False)
        elif path.suffix.lower() in tables.SUFFIXES:
            table = tables.read_table(path)
            if column is None and len(table.names) == 1:
                column = table.names[0]
            if column is None:
                raise BadData(
                    f"{path} has the columns {', '.join(table.names)}: name that of the labels with --target."
                )
            check_target(table, ReadOptions(target=column), True)
            y = read_target(table, ReadOptions(target=column))
        else:
            raise BadData(f"{path} is no file of labels: a .npy array, or {', '.join(tables.SUFFIXES)}.")
    if y.ndim == 0 or len(y) != count:
        raise BadData(
            f"{path} has {0 if y.ndim == 0 else len(y):,} labels for {count:,} inputs: one for each, in their order."
        )
    return y


def _check_finite(path: str, x: Array, raw: RawData, recipe: DataRecipe) -> None:
    finite = np.isfinite(x)
    if finite.all():
        return
    place = np.argwhere(~finite)[0].tolist()
    column = f', column "{recipe.inputs[place[1]]}"' if recipe.columns else ""
    value = raw.x[tuple(place)]
    raise BadData(f"{path}, input {raw.names[place[0]]}{column}: {value} is no number that a network can take.")


def _task(raw: RawData, options: ReadOptions, kind: Kind) -> Task:
    if options.task:
        return options.task
    y = raw.y
    if y is None or kind in ("images", "named") or raw.classes or y.dtype.kind in "USO":
        return "classification"
    whole = y.dtype.kind in "iub" or bool((y == np.round(y)).all())
    if y.ndim == 1 and whole and (kind != "table" or len(np.unique(y)) <= FEW_NUMBERS):
        return "classification"
    return "regression"


def _scaled(y: Array, recipe: DataRecipe) -> Tensor:
    scaled = (numbers_of(y) - recipe.target_mean) / recipe.target_scale
    return torch.from_numpy(scaled.astype(np.float32))


def _classes(raw: RawData, known: tuple[str, ...], path: str) -> tuple[Tensor, tuple[str, ...]]:
    assert raw.y is not None
    if raw.y.ndim != 1:
        raise BadData(f"{path}: labels have shape {raw.y.shape[:9]}: one for each input is needed.")
    found, words = numbered(raw.y)
    classes = known or raw.classes or found
    place = {name: i for i, name in enumerate(classes)}
    foreign = [name for name in found if name not in place]
    if foreign:
        raise BadData(f'{path} has the class "{foreign[0]}", which is none of those learned: {", ".join(classes)}.')
    return torch.tensor([place[word] for word in words]), classes
