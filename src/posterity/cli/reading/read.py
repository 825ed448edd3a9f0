"""From a path to tensors; and a look at what is there without reading all of it."""

from __future__ import annotations

import difflib
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from posterity.arrays import read_arrays
from posterity.cli.reading import images, tables
from posterity.cli.reading.examples import Array, Examples, Kind, Raw, Recipe, Task, Wish, numbered
from posterity.cli.reading.hugging_face import is_hugging_face, opened, read_hugging_face, shape_of, target_of
from posterity.errors import BadData, NoDataSet
from posterity.idx import IDX
from posterity.idx import images as named_images

FEW_NUMBERS = 20
"""A target of at most so many different whole numbers is taken for classes."""


@dataclass(frozen=True)
class Look:
    """What is on disk, as far as it can be told without reading all of it."""

    kind: Kind
    count: int
    shape: tuple[int, ...]
    """Of one input, as the network will get it."""
    classes: tuple[str, ...] | None
    """None where they are not known before all labels are read."""
    columns: tuple[str, ...] = ()


def kind_of(path: str) -> Kind:
    """What a path names."""
    if path in IDX:
        return "named"
    where = Path(path)
    if not where.exists():
        beside = [p.name for p in where.parent.iterdir()] if where.parent.is_dir() else []
        near = difflib.get_close_matches(where.name, beside, 1)
        meant = f" Did you mean {where.with_name(near[0])}?" if near else ""
        raise NoDataSet(f"there is no file or folder {path}; sets known by name are {', '.join(IDX)}.{meant}")
    if where.is_dir():
        return "hugging face" if is_hugging_face(where) else "images"
    if where.suffix == ".npz":
        return "arrays"
    if where.suffix in (".csv", ".tsv"):
        return "table"
    raise NoDataSet(f"{path} is none of: a folder of images (one folder a class), .npz with x and y, .csv, .tsv.")


def look(path: str, wish: Wish = Wish()) -> Look:  # noqa: B008 (frozen)
    """How many examples there are, of which shape and classes; only names and headers are read where that is enough.

    Raises:
        NoDataSet: if there is nothing of that name, or nothing that can be read.
    """
    kind, where = kind_of(path), Path(path)
    match kind:
        case "images":
            files, classes = images.image_files(where)
            size = wish.size or images.SIZE
            return Look(kind, len(files), (wish.channels or images.channels_of(files), size, size), classes or None)
        case "arrays":
            return Look(kind, *_npz_shape(where), None)
        case "table":
            names = tables.header(where)
            columns = tables.inputs_of(names, wish, where)
            return Look(kind, tables.row_count(where), (len(columns),), None, tuple(names))
        case "named":
            x, y = _named(path, wish)
            return Look(kind, len(x), tuple(x.shape[1:]), tuple(str(i) for i in range(int(y.max()) + 1)))
        case _:
            found = opened(where, wish.part)
            target = target_of(found, wish)
            named = getattr(found.features.get(target), "names", None) if target else None
            shape = shape_of(found, wish)
            return Look(kind, len(found), shape, tuple(named) if named else None, tuple(found.column_names))


def read(
    path: str,
    wish: Wish = Wish(),  # noqa: B008 (frozen)
    recipe: Recipe | None = None,
    classes: tuple[str, ...] = (),
    labels: bool = True,
) -> Examples:
    """All examples as tensors.

    Args:
        path: a folder, a file, or a name.
        wish: what the user asks for.
        recipe: of a fit: new data is read as its training data was.
        classes: of a fit, in the order of its outputs.
        labels: whether labels are needed.
    Returns:
        Inputs and targets, with the recipe to read others alike.
    Raises:
        BadData: if something cannot be read, with the file, row or column.
    """
    kind = kind_of(path)
    if recipe is not None:
        wish = _alike(wish, recipe, kind, path, labels)
    raw = _raw(path, kind, wish)
    if raw.y is None and labels:
        how = "name the column of the labels with --target" if kind == "table" else "they are needed here"
        raise BadData(
            f"{path} has no labels: {how}." + (f" It has {', '.join(raw.columns)}." if kind == "table" else "")
        )
    task = recipe.task if recipe else _task(raw, wish, kind)
    x, made = _inputs(raw, recipe, task, wish)
    if recipe is not None and tuple(x.shape[1:]) != recipe.shape:
        raise BadData(f"{path} has inputs of shape {tuple(x.shape[1:])}; those learned from had {recipe.shape}.")
    if raw.y is None or (recipe is not None and not labels):
        # Folders of foreign inputs may have names of their own: nobody asked for them.
        return Examples(x, None, raw.names, classes, made, raw.notes)
    if task == "regression":
        y, made = _numbers(raw.y, recipe, made)
        return Examples(x, y, raw.names, (), made, raw.notes)
    y, found = _classes(raw, classes, path)
    return Examples(x, y, raw.names, found, made, raw.notes)


def _alike(wish: Wish, recipe: Recipe, kind: Kind, path: str, labels: bool) -> Wish:
    """The recipe of a fit as a wish: what it was learned with is what is read."""
    target = wish.target or recipe.target
    if kind in ("table", "hugging face") and not labels and target not in _column_names(path, kind, wish):
        target = None
    picture = len(recipe.shape) == 3
    return replace(
        wish,
        target=target,
        columns=recipe.columns,
        task=recipe.task,
        size=recipe.shape[-1] if picture else None,
        channels=recipe.shape[0] if picture else None,
    )


def _column_names(path: str, kind: Kind, wish: Wish) -> list[str]:
    return tables.header(Path(path)) if kind == "table" else list(opened(Path(path), wish.part).column_names)


def _raw(path: str, kind: Kind, wish: Wish) -> Raw:
    where = Path(path)
    match kind:
        case "images":
            files, _ = images.image_files(where)
            return images.read_images(where, wish.size or images.SIZE, wish.channels or images.channels_of(files))
        case "arrays":
            return _npz(where)
        case "table":
            return tables.read_table(where, wish)
        case "named":
            x, y = _named(path, wish)
            return Raw(x.numpy(), y.numpy(), [str(i + 1) for i in range(len(x))])
        case _:
            return read_hugging_face(where, wish)


def _named(name: str, wish: Wish) -> tuple[Tensor, Tensor]:
    if wish.part not in ("train", "test"):
        raise BadData(f'{name} has the parts train and test, and no "{wish.part}".')
    found = named_images(name)
    return found.train if wish.part == "train" else found.test


def _npz(path: Path) -> Raw:
    x = read_arrays(path, ["x"])["x"]
    y = read_arrays(path, ["y"])["y"] if "y.npy" in zipfile.ZipFile(path).namelist() else None
    if x.dtype.kind not in "fiub" or not x.ndim:
        raise NoDataSet(
            f"{path}: x is an array of {x.dtype} and shape {x.shape[:9]}: one row of numbers for each input."
        )
    if y is not None and (not y.ndim or len(y) != len(x) or not len(y)):
        raise NoDataSet(f"{path}: x has shape {x.shape[:9]} and y {y.shape[:9]}: one label is needed for each input.")
    return Raw(x.astype(np.float32), y, [str(i + 1) for i in range(len(x))])


def _npz_shape(path: Path) -> tuple[int, tuple[int, ...]]:
    """(examples, shape of one) from the header alone."""
    try:
        with zipfile.ZipFile(path) as file, file.open("x.npy") as member:
            version = np.lib.format.read_magic(member)
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            shape, _, _ = read_header(member)
    except Exception as error:  # zipfile, zlib and numpy raise a dozen kinds between them
        raise NoDataSet(f"{path} is no .npz file with an array x ({type(error).__name__}).") from None
    return (shape[0], tuple(shape[1:])) if shape else (0, ())


def _task(raw: Raw, wish: Wish, kind: Kind) -> Task:
    if wish.task:
        return wish.task
    y = raw.y
    if y is None or kind in ("images", "named") or raw.classes or y.dtype.kind in "USO":
        return "classification"
    whole = y.dtype.kind in "iub" or bool((y == np.round(y)).all())
    if y.ndim == 1 and whole and (kind != "table" or len(np.unique(y)) <= FEW_NUMBERS):
        return "classification"
    return "regression"


def _inputs(raw: Raw, recipe: Recipe | None, task: Task, wish: Wish) -> tuple[Tensor, Recipe]:
    """Inputs as a tensor; columns of a table are brought to mean 0 and size 1, as the recipe has it or the data gives it."""
    x = raw.x
    if recipe is None:
        mean: Array = x.mean(0, dtype=np.float64) if raw.columns else np.zeros(0)
        scale: Array = x.std(0, dtype=np.float64) if raw.columns else np.zeros(0)
        scale = np.where(scale > 1e-12, scale, 1.0)
        recipe = Recipe(task, x.shape[1:], raw.columns, wish.target, tuple(mean.tolist()), tuple(scale.tolist()))
    if recipe.columns:
        x = (x - np.array(recipe.mean)) / np.array(recipe.scale)
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), recipe


def _numbers(y: Array, recipe: Recipe | None, made: Recipe) -> tuple[Tensor, Recipe]:
    if y.dtype.kind not in "fiub":
        raise BadData(
            "the targets are text, and a regression needs numbers: --task classification takes them for classes."
        )
    values = y.astype(np.float64).reshape(len(y), -1)
    if recipe is None:
        spread = float(values.std())
        made = replace(made, target_mean=float(values.mean()), target_scale=spread if spread > 1e-12 else 1.0)
    scaled = (values - made.target_mean) / made.target_scale
    return torch.from_numpy(scaled.astype(np.float32)), made


def _classes(raw: Raw, known: tuple[str, ...], path: str) -> tuple[Tensor, tuple[str, ...]]:
    assert raw.y is not None
    if raw.y.ndim != 1:
        raise BadData(f"{path}: labels have shape {raw.y.shape[:9]}: one for each input is needed.")
    found, words = numbered(raw.y)
    classes = known or raw.classes or found
    place = {name: i for i, name in enumerate(classes)}
    foreign = [name for name in found if name not in place]
    if foreign:
        raise BadData(
            f'{path} has the class "{foreign[0]}", which is none of those learned: {", ".join(classes[:20])}.'
        )
    return torch.tensor([place[word] for word in words]), classes
