"""A layer as one matrix, a block (a layer by name), and the calls of blocks while a network runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.errors import BatchLost, ChangedInput, UnreachedBlock

CHUNK = 1 << 24
"""Entries of a temporary (64 MB in float32) beyond which work on a batch goes piece by piece."""

FEW = 8
"""Up to this many positions an example, products of pairs of rows are cheaper than gradients written out."""

CACHED = 1 << 20
"""Entries (4 MB in float32) that a processor's cache holds."""

Expand = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layer(ABC):
    """One kind of layer, seen as a matrix `W` (out × inp, the bias its last column).

    A call on a batch is a set of *positions* t (one for a linear layer, one per output pixel for a convolution) with
    input rows `a_t` and gradient rows `s_t`, such that the gradient of example n is `G_n = Σ_t s_t a_tᵀ`.
    Estimators of curvature see layers through this class alone.
    """

    out: int
    inp: int
    bias: bool

    @property
    def separable(self) -> bool:
        """Whether a Kronecker pair can describe the layer. Elementwise layers are diagonal instead."""
        return True

    @abstractmethod
    def read(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "out inp"]:
        """The matrix, from the layer's own parameters ("weight", "bias")."""

    @abstractmethod
    def write(self, matrix: Float[Tensor, "*batch out inp"]) -> dict[str, Tensor]:
        """The parameters, from the matrix. Leading dimensions (draws, say) are carried along."""

    def by_example(self, x: Tensor, examples: int, name: str) -> Tensor:
        """A call's raw input or output gradient, examples first: the form in which the methods below take them."""
        return batch_first(x, examples, name)

    def spread(self, a: Tensor, out: Tensor, examples: int) -> tuple[Tensor, Tensor]:
        """A call's input and output, repeated for every example where one row stands for all of them."""
        return a, out

    @abstractmethod
    def positions(self, a: Tensor, s: Tensor) -> int:
        """How many positions a call has per example: as many as it has rows."""

    @abstractmethod
    def rows(self, a: Tensor, s: Tensor) -> tuple[Float[Tensor, "n t inp"], Float[Tensor, "n t out"]]:
        """A call as input rows (with the bias's 1) and gradient rows."""

    def gradient_rows(self, a: Tensor, s: Tensor) -> Float[Tensor, "n t out"]:
        """The second part of `rows`, where a layer has it without the first."""
        return self.rows(a, s)[1]

    @abstractmethod
    def input_moment(self, shape: torch.Size) -> Moment:
        """A running Σ a aᵀ over positions, in whatever way is fastest for inputs of this shape (batch first)."""

    @abstractmethod
    def output_moment(self) -> Moment:
        """A running Σ s sᵀ of gradient rows over examples and positions."""

    @abstractmethod
    def gradients(self, a: Tensor, s: Tensor) -> Float[Tensor, "n out inp"]:
        """The gradient matrix of every example."""

    def labels_joined(self, gradients: Sequence[Tensor]) -> Tensor | None:
        """Output gradients of several labels as those of one layer with so many times the outputs, where `gradients` takes them.

        The input is the same for all labels: their gradients are then one product, with the input read once.
        """
        return None

    def squares(self, calls: Sequence[tuple[Tensor, Tensor]]) -> Float[Tensor, "out inp"] | None:
        """Σ_n G_n², entry by entry, where the layer has a shorter way than its gradients written out."""
        return None


@dataclass(frozen=True)
class Block:
    """One named matrix of a network: the kind of layer, and which of the network's parameters it is made of."""

    name: str
    layer: Layer
    parameters: Mapping[str, str]
    """From the layer's own names ("weight", "bias") to the network's ("conv1.weight")."""
    modules: tuple[nn.Module, ...] = field(repr=False, compare=False)
    """More than one where modules share their parameters."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs, the bias counted as an input."""
        return self.layer.out, self.layer.inp


class Resumable:
    """Running sums: fields that hold tensors and numbers, or lists of them, are what a checkpoint keeps."""

    def state(self) -> dict[str, Any]:
        """The sums over the batches seen so far."""

        def plain(value: object) -> bool:
            if isinstance(value, list):
                return all(map(plain, value))
            return value is None or isinstance(value, Tensor | int | float)

        return {name: value for name, value in vars(self).items() if plain(value)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the sums of a checkpoint. Called on an empty one."""
        vars(self).update(state)


class Moment(Resumable, ABC):
    """A running second moment Σ_t a_t a_tᵀ of a layer's input rows, and how many rows it has seen."""

    def __init__(self) -> None:
        self.rows = 0

    @abstractmethod
    def add(self, a: Tensor) -> None:
        """Count the input rows of one more batch."""

    @abstractmethod
    def matrix(self) -> Float[Tensor, "inp inp"]:
        """The sum, symmetric to the last bit; in float64, or in the network's precision from `LARGE` columns on.

        A large sum is handed out itself, not copied: nothing can be added afterwards.
        """


class MomentOfRows(Moment):
    """A moment of the rows, or pictures, that `pieces` makes of what a layer sees, a bounded piece at a time."""

    def __init__(self, pieces: Callable[[Tensor], Iterable[Tensor]]) -> None:
        super().__init__()
        self.pieces = pieces

    def add(self, a: Tensor) -> None:
        for piece in self.pieces(a):
            self._add(piece)

    @abstractmethod
    def _add(self, piece: Tensor) -> None: ...


class DiagonalLayer(Layer):
    """A layer that no Kronecker pair describes: every estimator keeps its block diagonal (the dense oracle aside)."""

    @property
    def separable(self) -> bool:
        return False

    def input_moment(self, shape: torch.Size) -> Moment:
        raise AssertionError(f"a {type(self).__name__} has no Kronecker factors")

    def output_moment(self) -> Moment:
        raise AssertionError(f"a {type(self).__name__} has no Kronecker factors")


def with_ones(rows: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n1"]:
    return torch.cat((rows, rows.new_ones(*rows.shape[:-1], 1)), -1)


def batch_first(x: Tensor, examples: int, name: str) -> Tensor:
    """x with the examples along its first dimension, whether the network puts them first, second or folds them."""
    if x.shape[0] == examples:
        return x
    if x.ndim >= 3 and x.shape[1] == examples:
        return x.transpose(0, 1)
    if x.shape[0] % examples == 0:
        return x.unflatten(0, (examples, -1))
    raise batch_lost(x, examples, name)


def batch_lost(x: Tensor, examples: int, name: str) -> BatchLost:
    return BatchLost(
        f'block "{name}" sees a tensor of shape {tuple(x.shape)} in a batch of {examples} examples: neither its first '
        "nor its second dimension tells the examples apart. Leave the block out with blocks=..., or use one example a batch."
    )


def accumulating(x: Tensor) -> Tensor:
    """Sums over data need float32 or better, whatever precision the network runs in."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@dataclass
class Call:
    """One call of a block: its input, and its output gradient once the backward pass has reached it."""

    a: Tensor | None
    s: Tensor | None = None
    version: int = 0
    """How often the input had been changed in place when the layer read it."""


@dataclass
class Recorder:
    """Collects the calls of one batch.

    No parameter takes part in the backward pass and nothing is written into the network, so a pass costs the gradients of
    activations and no more. What a block needs is handed over as soon as its gradient is there, and then let go.

    `on_input(name, a)` is called at every call going forward; `on_gradient(name, calls)` of each block once, going back,
    when all its calls have their gradients (a module applied twice has two calls).
    """

    examples: int
    on_input: Callable[[str, Tensor], None]
    on_gradient: Callable[[str, list[Call]], None]
    keep_inputs: bool = True
    calls: dict[str, list[Call]] = field(default_factory=dict)
    anchor: Tensor = field(default_factory=lambda: torch.zeros((), requires_grad=True))

    def tap(self, name: str, layer: Layer, a: Tensor, out: Tensor, expand: Expand | None = None) -> Tensor:
        """Note a call of block `name` with input `a`; returns `out`, which the network must go on with."""
        a, out = layer.spread(a.detach(), out, self.examples)
        a = layer.by_example(accumulating(a) if a.is_floating_point() else a, self.examples, name)
        self.on_input(name, a)
        call = Call(a if self.keep_inputs else None, version=version_of(a))
        self.calls.setdefault(name, []).append(call)

        def arrived(s: Tensor) -> None:
            s = accumulating(s.detach())
            call.s = layer.by_example(expand(s) if expand else s, self.examples, name)
            if all(c.s is not None for c in self.calls[name]):
                self._hand_over(name)

        # A view cannot be marked as changed in place inside a custom function; one copy settles it.
        return _Tap.apply(out.clone() if out._is_view() else out, self.anchor, arrived)

    def backward(self, outputs: Tensor, residual: Tensor, again: bool) -> None:
        """Send `residual` back through the network. `again` keeps the graph for another one."""
        if changed := [
            n for n, cs in self.calls.items() if any(c.a is not None and version_of(c.a) != c.version for c in cs)
        ]:
            raise ChangedInput(
                f"the inputs of {changed} were changed in place after the layers had read them (as by x += layer(x)): "
                "write x = x + layer(x), or leave these blocks out with blocks=..."
            )
        if not outputs.requires_grad:
            raise UnreachedBlock(
                f"no gradient leads from the network's output back to {list(self.calls)}: the network ran without automatic "
                "differentiation (torch.no_grad, torch.inference_mode, or a detach inside it)."
            )
        torch.autograd.grad(outputs, self.anchor, residual, retain_graph=again, allow_unused=True)
        # A call the loss does not depend on got no gradient: it contributes nothing.
        for name, calls in self.calls.items():
            if any(c.s is not None for c in calls):
                self._hand_over(name)

    def _hand_over(self, name: str) -> None:
        self.on_gradient(name, [c for c in self.calls[name] if c.s is not None])
        for call in self.calls[name]:
            call.s = None


def version_of(a: Tensor) -> int:
    """How often a tensor was changed in place. Inference tensors keep no count, and no gradient is taken where they change."""
    return 0 if a.is_inference() else a._version


class _Tap(torch.autograd.Function):
    """The identity, which reports the gradient on its way back.

    The anchor makes the output part of the graph even where nothing before it is. Marking the output as changed in place,
    instead of returning a view, lets an in-place activation follow: the gradient heard is the one before it.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, anchor: Tensor, arrived: Callable[[Tensor], None]) -> Tensor:
        ctx.mark_dirty(out)
        ctx.arrived = arrived
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        ctx.arrived(grads[0])
        return grads[0], None, None


def gradients(block: Block, calls: list[Call], pieces: int | None = None) -> Iterator[Tensor]:
    """Gradient matrices [n, out, inp] of a batch, a bounded piece at a time; the calls of an example are summed."""
    layer = block.layer
    n = len(tensors(calls[0])[0])
    step = pieces or max(1, CHUNK // (layer.out * layer.inp))
    for start in range(0, n, step):
        parts = [layer.gradients(*(x[start : start + step] for x in tensors(call))) for call in calls]
        yield parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def rows(block: Block, calls: list[Call]) -> tuple[Tensor, Tensor]:
    """All positions of a batch as input and gradient rows [n, t, inp] and [n, t, out]; calls one behind the other."""
    parts = [block.layer.rows(*tensors(call)) for call in calls]
    return torch.cat([a for a, _ in parts], 1), torch.cat([s for _, s in parts], 1)


def gradient_rows(block: Block, calls: list[Call]) -> Float[Tensor, "n t out"]:
    """The second part of `rows`: input rows are the same for every output, and need not be written twice."""
    return torch.cat([block.layer.gradient_rows(*tensors(call)) for call in calls], 1)


def positions(block: Block, calls: list[Call]) -> int:
    return sum(block.layer.positions(*tensors(call)) for call in calls)


def tensors(call: Call) -> tuple[Tensor, Tensor]:
    """A call's input and its gradient, both there."""
    assert call.a is not None
    assert call.s is not None
    return call.a, call.s


def summed_squares(a: Float[Tensor, "n t inp"], s: Float[Tensor, "n t out"]) -> Float[Tensor, "out inp"]:
    """Σ_n G_n² with G_n = Σ_t s_t a_tᵀ, as one product: the square of a sum is a sum over pairs of positions."""
    t = a.shape[1]
    first, second = torch.triu_indices(t, t, device=a.device)
    twice = torch.where(first == second, 1.0, 2.0).to(s.dtype)
    gradient_pairs = s[:, first] * s[:, second] * twice[:, None]
    return gradient_pairs.flatten(0, 1).T @ (a[:, first] * a[:, second]).flatten(0, 1)
