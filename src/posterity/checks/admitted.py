"""What a user gives to a verb (network, data, choices), looked at before anything is computed."""

from __future__ import annotations

import cmath
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from posterity.blocks import evaluating, run_with
from posterity.checks.explained import explained
from posterity.errors import BadData, BadTargets, NotFinite, UnsupportedNetwork, WrongChoice

P = ParamSpec("P")
R = TypeVar("R")
TRIED = 2
"""Examples that the network is tried on before all of them are taken."""
LIKELIHOODS = (
    "pt.Categorical() for classes, pt.GaussianNoise() for numbers, pt.Bernoulli() for independent yes-or-no labels"
)
MEANT = {
    "classification": "pt.Categorical()",
    "categorical": "pt.Categorical()",
    "multiclass": "pt.Categorical()",
    "regression": "pt.GaussianNoise()",
    "gaussian": "pt.GaussianNoise()",
    "binary": "pt.Bernoulli()",
    "bernoulli": "pt.Bernoulli()",
}


class ValidatedData(NamedTuple):
    """Data in the form that all parts take, and the names of its classes where labels were text."""

    data: Any
    classes: tuple[str, ...] | None = None


def admitted(
    model: nn.Module,
    data: Any,
    likelihood: object = None,
    estimator: object = None,
    classes: Sequence[str] | None = None,
) -> ValidatedData:
    """Look at what a user gave, before anything is computed.

    Arrays of numpy and tables of pandas become tensors; labels that are text become numbers, and their names, in
    alphabetical order, the names of the classes. A pair of arrays is looked at as a whole. Of a Dataset or DataLoader nothing is
    read here: its batches are looked at when they come.

    Args:
        model: the network. It is tried on two examples and comes out as it went in.
        data: as the verb takes it. What was admitted before is handed on as it is: verbs that call others look once.
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
    if isinstance(data, ValidatedData):
        return data
    check_likelihood(likelihood)
    check_estimator(estimator)
    categorical = likelihood is None or type(likelihood).__name__ == "Categorical"
    check_network(model, classes=categorical)
    if isinstance(classes, str):
        raise WrongChoice(f'classes is the text "{classes}": give a list of names, one for each class.')
    # A card without names has an empty tuple of them.
    names = tuple(map(str, classes)) if classes is not None and len(classes) else None
    if isinstance(data, (tuple, list)) and len(data) == 2 and isinstance(data[0], Mapping) and _is_array(data[1]):
        y, names = _targets(data[1], names)
        return ValidatedData(NamedRows(data[0], y), names)
    if not _is_pair(data):
        return ValidatedData(data, names)
    x = _inputs(data[0], model)
    y, names = _targets(data[1], names)
    if not x.ndim or not y.ndim or len(x) != len(y):
        sizes = [len(t) if t.ndim else "a single number of" for t in (x, y)]
        raise BadData(f"there are {sizes[0]} inputs and {sizes[1]} targets: they must pair up.")
    check_finite(x)
    check_finite(y, "the targets")
    if len(x):
        _try(model, x[:TRIED], categorical)
        if categorical and names is not None and not y.is_floating_point() and int(y.max()) >= len(names):
            raise BadTargets(
                f"labels reach up to {int(y.max())} and classes= has {len(names)} names: name every class, in the order of "
                "the labels, which begin at 0."
            )
    return ValidatedData((x, y), names)


class NamedRows(Dataset[dict[str, Any]]):
    """Inputs by name and targets, given as a pair: an example is a row of each."""

    def __init__(self, inputs: Mapping[str, Any], targets: Tensor) -> None:
        self.inputs = {name: torch.as_tensor(x) for name, x in inputs.items()}
        self.targets = targets
        sizes = {name: len(x) for name, x in self.inputs.items()} | {"the targets": len(targets)}
        if len(set(sizes.values())) > 1:
            raise BadData(f"inputs by name and targets must pair up, and have {sizes} examples.")

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {name: x[i] for name, x in self.inputs.items()} | {"labels": self.targets[i]}


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
        # numpy computes in float64 unless stated otherwise: of an array, that says nothing about what its owner wants.
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
    x = x.to(next(model.parameters()).device)
    try:
        with evaluating(model):
            # What the network writes into buffers goes into copies.
            outputs = run_with(model, {name: b.clone() for name, b in model.named_buffers()}, (x,))
    except Exception as error:
        clearer = explained(error, model, (x,), {})
        if clearer is None:
            raise
        raise clearer from error
    if categorical and isinstance(outputs, Tensor):
        check_logits(outputs)


def check_likelihood(given: object) -> None:
    """Refuse a string or a class where a likelihood is meant; None is the default and fine.

    Raises:
        WrongChoice: with what to write instead.
    """
    if given is None:
        return
    if isinstance(given, str):
        meant = MEANT.get(given.lower())
        raise WrongChoice(
            f'likelihood is the text "{given}": write '
            + (f"likelihood={meant}." if meant else f"one of {LIKELIHOODS}.")
        )
    _no_class("likelihood", given)
    if not hasattr(given, "nll"):
        raise WrongChoice(f"likelihood is a {type(given).__name__}: give {LIKELIHOODS}.")


def check_prior(given: object) -> None:
    """Refuse what is no Gaussian where a prior is meant; None is no prior and fine.

    Raises:
        WrongChoice: with what to write instead.
    """
    if given is None or (hasattr(given, "precision") and hasattr(given, "mean") and not isinstance(given, Tensor)):
        return
    if isinstance(given, (str, os.PathLike)):
        raise WrongChoice(f'prior is the path "{given}": open it with prior=pt.load("{given}").')
    if hasattr(given, "posterior"):
        raise WrongChoice(f"prior is a {type(given).__name__}: give its posterior, prior=fit.posterior.")
    if isinstance(given, nn.Module):
        raise WrongChoice("prior is a network: pt.prior(network, inputs) makes a prior of it.")
    raise WrongChoice(
        f"prior is a {type(given).__name__}: give a Gaussian, such as pt.load(file) or fit.posterior. Data is one argument, "
        "the pair (inputs, targets), as in pt.learn(model, (x, y)) and pt.adapt(model, (x, y), prior)."
    )


TRAINING = ("epochs", "lr", "optimiser", "patience", "start", "polish_steps", "weight_decay")


def with_known_options(verb: Callable[P, R]) -> Callable[P, R]:
    """A verb that refuses options it does not have by name, and sends those of training to their place (`WrongChoice`)."""
    known, name = inspect.signature(verb).parameters, f"pt.{verb.__name__}"

    @wraps(verb)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        for option, value in options.items():
            if option not in known and option in TRAINING:
                raise WrongChoice(
                    f'{option}= is an option of training: write {name}(..., training={{"{option}": {value!r}}}).'
                )
            if option not in known:
                raise WrongChoice(f"{name} has no option {option}=: help({name}) lists them.")
        return verb(*args, **options)

    return checked


def check_groups(given: object, count: int) -> None:
    """Refuse groups that are not one number for each example; None is no groups and fine.

    Raises:
        BadData: with both numbers.
    """
    if given is None:
        return
    if not isinstance(given, Tensor) or given.ndim != 1 or given.is_floating_point():
        raise BadData(
            "groups is a tensor with one whole number for each example: torch.tensor([0, 0, 1, ...]). "
            "Names become one with torch.tensor(np.unique(names, return_inverse=True)[1])."
        )
    if len(given) != count:
        raise BadData(f"groups has {len(given)} numbers and there are {count} examples: one for each is needed.")


def check_estimator(given: object) -> None:
    """Refuse a string or a class where an estimator of curvature is meant; None is the default and fine.

    Raises:
        WrongChoice: with what to write instead.
    """
    if given is None:
        return
    if isinstance(given, str):
        raise WrongChoice(f'estimator is the text "{given}": write estimator=pt.{given.upper()}(), a value.')
    _no_class("estimator", given)


def _no_class(name: str, given: object) -> None:
    if isinstance(given, type):
        raise WrongChoice(
            f"{name} is the class {given.__name__}: write {name}=pt.{given.__name__}(), with brackets, a value of it."
        )


def check_network(model: object, *, classes: bool = False) -> None:
    """Refuse a network that nothing can be learned about, or whose outputs are not what the likelihood takes.

    Args:
        model: what was given as a network.
        classes: whether its outputs should be logits of classes.
    Raises:
        UnsupportedNetwork: with what to give instead.
    """
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise UnsupportedNetwork(
            f"the network is the class {model.__name__}: write {model.__name__}(...), a value of it."
        )
    if not isinstance(model, nn.Module):
        raise UnsupportedNetwork(f"the network is a {type(model).__name__}: give a torch.nn.Module.")
    if isinstance(model, nn.DataParallel):
        raise UnsupportedNetwork(
            "the network is wrapped in DataParallel: give network.module; torchrun uses several devices instead."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedNetwork(
            "the network is a ScriptModule, whose layers cannot be watched: give it as it was before."
        )
    for name, module in model.named_modules():
        if ".quantized" in type(module).__module__:
            raise UnsupportedNetwork(
                f'layer "{name}" is quantised ({type(module).__name__}): its weights have no gradient. Make the posterior '
                "with the network as it was before it was quantised."
            )
    if next(model.parameters(), None) is None:
        raise UnsupportedNetwork("the network has no parameters: there is nothing to learn about.")
    last = _last(model)
    if classes and isinstance(last, (nn.Softmax, nn.Softmax2d)):
        raise UnsupportedNetwork(_softmax("its last layer is a softmax"))


def check_logits(outputs: Tensor) -> None:
    """Refuse outputs that are probabilities already.

    Raises:
        UnsupportedNetwork: if every row is a distribution over the last dimension.
    """
    if outputs.ndim < 2 or outputs.shape[-1] < 2 or outputs.shape[0] < 2 or not outputs.is_floating_point():
        return
    sums_to_one = (outputs.sum(-1) - 1).abs().max() < 1e-3
    if bool(sums_to_one) and bool((outputs > 0).all()):
        raise UnsupportedNetwork(_softmax("its outputs are positive and sum to one"))


def _softmax(how: str) -> str:
    return f"the network already ends in a softmax ({how}): take it off, logits are needed."


def _last(model: nn.Module) -> nn.Module:
    """The layer that makes the outputs, where that can be known without running it."""
    while isinstance(model, nn.Sequential) and len(model):
        model = model[-1]
    return model


def not_finite(values: Tensor, what: str = "the inputs") -> str | None:
    """A sentence that says how many numbers are NaN or infinite, and where the first one is; None where all are finite."""
    if not (values.is_floating_point() or values.is_complex()) or not values.numel() or values.is_quantized:
        return None
    # A sum is finite in almost every case, in one pass and without a mask as large as the data.
    total = values.sum(dtype=torch.complex128 if values.is_complex() else torch.float64).item()
    if cmath.isfinite(total):
        return None
    bad = ~torch.isfinite(values)
    count = int(bad.sum())
    if not count:
        return None
    rows = bad.reshape(len(values), -1).any(1) if values.ndim else bad.reshape(1)
    kind = "NaN" if bool(torch.isnan(values).any()) else "infinite"
    return (
        f"{what} hold {count:,} {kind} number{'s' if count > 1 else ''} in {int(rows.sum()):,} of {len(rows):,} examples, the "
        f"first in example {int(rows.nonzero()[0])}: drop these examples or fill the numbers in."
    )


def check_finite(values: Tensor, what: str = "the inputs") -> None:
    """Refuse numbers that are NaN or infinite.

    Raises:
        NotFinite: with how many there are, and where the first one is.
    """
    problem = not_finite(values, what)
    if problem:
        raise NotFinite(problem)
