"""The one call at the beginning of every verb: the model and data that a user gave, fit to be computed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from posterity.blocks.capture import evaluating
from posterity.checks.choices import check_estimator, check_likelihood
from posterity.checks.networks import check_logits, check_network
from posterity.checks.numbers import check_finite
from posterity.checks.running import explained, trial
from posterity.errors import BadData, BadTargets

TRIED = 2
"""Examples that the network is tried on before all of them are taken."""


class Admitted(NamedTuple):
    """Data in the form that all parts take, and the names of its classes where labels were text."""

    data: Any
    classes: tuple[str, ...] | None


def admitted(
    model: nn.Module,
    data: Any,
    likelihood: object = None,
    estimator: object = None,
    classes: Sequence[str] | None = None,
) -> Admitted:
    """Look at what a user gave, before anything is computed.

    Arrays of numpy and tables of pandas become tensors; labels that are text become numbers, and their names, in
    alphabetical order, the names of the classes. A pair of arrays is looked at as a whole. Of a Dataset or DataLoader nothing is
    read here: its batches are looked at when they come.

    Args:
        model: the network. It is tried on two examples and comes out as it went in.
        data: as the verb takes it.
        likelihood: a value, or None for the verb's default.
        estimator: a value, or None for the verb's default.
        classes: names of the classes, in the order of the labels.
    Returns:
        The data and the names of the classes.
    Raises:
        WrongChoice: if a string or a class stands where a value is meant.
        UnsupportedNetwork: if nothing can be learned about the network, or it ends in a softmax.
        NotFinite: if inputs or targets hold NaN or infinities.
        BadData: if inputs and targets do not pair up, or do not fit the network.
    """
    check_likelihood(likelihood)
    check_estimator(estimator)
    categorical = likelihood is None or type(likelihood).__name__ == "Categorical"
    check_network(model, classes=categorical)
    names = None if classes is None else tuple(map(str, classes))
    if not _is_pair(data):
        return Admitted(data, names)
    x = _inputs(data[0], model)
    y, names = _targets(data[1], names)
    if not x.ndim or not y.ndim or len(x) != len(y):
        sizes = [len(t) if t.ndim else "a single number of" for t in (x, y)]
        raise BadData(f"there are {sizes[0]} inputs and {sizes[1]} targets: they must pair up.")
    check_finite(x)
    check_finite(y, "the targets")
    if len(x):
        _try(model, x[:TRIED], categorical)
    return Admitted((x, y), names)


def _is_pair(data: object) -> bool:
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    first, second = data
    return _is_array(first) and (_is_array(second) or (isinstance(second, (list, tuple)) and _is_flat(second)))


def _is_array(value: object) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) or hasattr(value, "to_numpy")


def _is_flat(values: Sequence[object]) -> bool:
    return all(isinstance(v, (str, int, float, np.generic)) for v in values)


def _inputs(given: Any, model: nn.Module) -> Tensor:
    if isinstance(given, Tensor):
        return given
    array = given.to_numpy() if hasattr(given, "to_numpy") else given
    if array.dtype.kind not in "fiub":
        raise BadData(f"the inputs are an array of {array.dtype}: numbers are needed, text and objects are not.")
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if tensor.is_floating_point():
        # numpy computes in float64 unless told otherwise: of an array, that says nothing about what its owner wants.
        own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        tensor = tensor.to(own)
    return tensor


def _targets(given: Any, names: tuple[str, ...] | None) -> tuple[Tensor, tuple[str, ...] | None]:
    if isinstance(given, Tensor):
        return given, names
    array = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
    text = array.dtype.kind in "US" or (array.dtype.kind == "O" and all(isinstance(v, str) for v in array.ravel()))
    if text and array.ndim == 1:
        return _numbered([str(v) for v in array.tolist()], names)
    if array.dtype.kind not in "fiub":
        raise BadTargets(f"the targets are an array of {array.dtype}: give numbers, or names of classes as text.")
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return (tensor.float() if tensor.dtype == torch.float64 else tensor), names


def _numbered(labels: list[str], names: tuple[str, ...] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Labels that are text as numbers, in the order of the names."""
    names = names or tuple(sorted(set(labels)))
    number = {name: i for i, name in enumerate(names)}
    foreign = sorted(set(labels) - set(number))
    if foreign:
        raise BadTargets(
            f'the label "{foreign[0]}" is not among the classes {", ".join(names[:20])}: add it to classes=.'
        )
    return torch.tensor([number[label] for label in labels]), names


@torch.no_grad()
def _try(model: nn.Module, x: Tensor, categorical: bool) -> None:
    where = next(model.parameters()).device
    x = x.to(where)
    try:
        with evaluating(model):
            outputs = trial(model, (x,), {})
    except Exception as error:
        clearer = explained(error, model, (x,), {})
        if clearer is None:
            raise
        raise clearer from error
    if categorical and isinstance(outputs, Tensor):
        check_logits(outputs)
