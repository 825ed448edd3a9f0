"""Networks by name, and by import path: module:function, whose code is run."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import typer
from torch import Tensor, nn

from posterity.errors import UnknownNetwork
from posterity.heads.views import FeatureNetwork
from posterity.lenet import lenet5

Shape = tuple[int, ...]


def build(name: str, shape: Shape, outputs: int) -> nn.Module:
    """A network for inputs of that shape.

    Args:
        name: one of `NETWORKS`, or module:function. The module is looked for in the current folder too.
        shape: of one input.
        outputs: classes, or numbers that a regression predicts.
    Returns:
        The network, with weights as its own code begins with.
    Raises:
        UnknownNetwork: if it cannot be found or built, or is not for such inputs.
    """
    if ":" in name:
        return _imported(name, shape, outputs)
    if name not in NETWORKS:
        raise UnknownNetwork(
            f'"{name}" is none of {", ".join(NETWORKS)}, and no module:function that builds a network.'
        )
    return NETWORKS[name](shape, outputs)


def _lenet5(shape: Shape, outputs: int) -> nn.Module:
    channels, height, width = _image(shape, "lenet5")
    if height != width or height < 12:
        raise UnknownNetwork(
            f"lenet5 takes square images of 12 pixels or more on a side, not {height}×{width}: use mlp."
        )
    return lenet5(outputs, channels, height)


def _mlp(shape: Shape, outputs: int) -> nn.Module:
    width = 64 if math.prod(shape) < 100 else 128
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x)))), halved in size and doubled in width where asked; no norm layer."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, width, 3, stride, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.skip = nn.Identity() if stride == 1 and inputs == width else nn.Conv2d(inputs, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The output of the residual block."""
        found: Tensor = self.skip(x) + 0.5 * self.second(self.first(x.relu()).relu())
        return found


def _resnet8(shape: Shape, outputs: int) -> nn.Module:
    channels, *_ = _image(shape, "resnet8")
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, outputs),
    )


def _head(shape: Shape, outputs: int) -> nn.Module:
    if len(shape) != 1:
        raise UnknownNetwork(
            f"head is for rows of features, not for inputs of shape {shape}: --encoder makes them of images."
        )
    return FeatureNetwork(shape[0], outputs)


HEAD = "head"
"""`pt.head`: no network of its own, but what its Gaussian speaks of."""
NETWORKS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "lenet5": _lenet5,
    "mlp": _mlp,
    "resnet8": _resnet8,
    HEAD: _head,
}


def default_for(shape: Shape) -> str:
    """The network that is taken where none is named."""
    if not shape:
        return HEAD  # of images that are encoded
    return "lenet5" if len(shape) == 3 and shape[1] == shape[2] >= 12 else "mlp"


def _image(shape: Shape, name: str) -> Shape:
    if len(shape) != 3:
        raise UnknownNetwork(
            f"{name} is for images (channels, height, width), not for inputs of shape {shape}: use mlp."
        )
    return shape


def imported(name: str) -> Any:
    """What module:function names, looked for in the current folder too. Importing it runs its code."""
    module, _, function = name.partition(":")
    typer.echo(f"Running {function}() of the module {module}: code of yours, with all that you may do.", err=True)
    # As `python -m` does: modules of the folder one stands in are found.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)
    except Exception as error:  # whatever someone's own module raises
        raise UnknownNetwork(f"{name!r} cannot be imported: {type(error).__name__}: {error}.") from error


def spoken(name: str) -> str:
    """The name of a class as a person would say it."""
    return name.replace("_", " ").replace("-", " ")


def _imported(name: str, shape: Shape, outputs: int) -> nn.Module:
    made, function = imported(name), name.rpartition(":")[2]
    try:
        model = made(**_taken(made, shape, outputs))
    except Exception as error:  # whatever someone's own module raises
        raise UnknownNetwork(f"{name!r} cannot be built: {type(error).__name__}: {error}.") from error
    if not isinstance(model, nn.Module):
        raise UnknownNetwork(
            f"{name!r} gives a {type(model).__name__}: a function that returns an nn.Module is needed."
        )
    with torch.no_grad():
        model.eval()
        try:
            found = model(torch.zeros(2, *shape))
        except Exception as error:
            raise UnknownNetwork(
                f"{name!r} does not run on inputs of shape {tuple(shape)}: {next(iter(str(error).splitlines()), '')}"
            ) from error
        finally:
            model.train()
    if isinstance(found, Tensor) and found.shape[-1] != outputs:
        raise UnknownNetwork(
            f"{name!r} has {found.shape[-1]} outputs and the data needs {outputs}: give {function} an argument outputs=."
        )
    return model


def _taken(made: Callable[..., object], shape: Shape, outputs: int) -> dict[str, object]:
    """What a builder asks for by name: outputs (or classes), and shape."""
    offered = {"outputs": outputs, "classes": outputs, "num_classes": outputs, "shape": tuple(shape)}
    try:
        asked = inspect.signature(made).parameters
    except (TypeError, ValueError):
        return {}
    return {key: value for key, value in offered.items() if key in asked}
