"""How a network's outputs depend on its weights, example by example, in the frame of the prior."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from posterity.algebra import (
    DenseMatrix,
    DiagonalMatrix,
    JointEigen,
    Matrix,
    RotatedMatrix,
    ScaledIdentity,
    as_floored,
    is_large,
)
from posterity.blocks import Block, Call, LinearLayer, Recorder, watched, write_blocks
from posterity.blocks.base import gradient_rows, gradients, positions, rows, tensors
from posterity.data.batches import Batch
from posterity.errors import BadData, NotFinite
from posterity.kernel.gradients import BlockGradients, Gradients, Positions, Rows

REPEATED = 64
"""Examples times outputs up to which one pass with repeated examples is cheaper than a pass for every output."""
Places = dict[str, Tensor] | None
"""The position of each example that a head is read at, by block; None where gradients are written out instead."""


@dataclass(frozen=True, eq=False)
class BlockFrame:
    """Orthogonal directions in which a block's learned curvature is diagonal, and its values there.

    A dense curvature has directions over all weights of the block at once (`whole`); any other has a basis for the outputs and
    one for the inputs, either None where it is the identity. `source` is None where nothing was learned. Directions that are
    turned among themselves (`turn`) need gradients written out: more memory than rows.
    """

    shape: tuple[int, int]
    left: Float[Tensor, "out out"] | None
    right: Float[Tensor, "inp inp"] | None
    whole: Float[Tensor, "size size"] | None
    source: Float[Tensor, "out inp"] | None
    share: float
    floor: float
    turn: RotatedMatrix | None = None

    @classmethod
    def of(cls, precision: Matrix) -> BlockFrame:
        """From a prior's precision, brought to the form share · curvature + floor where it has another."""
        family = as_floored(precision)
        numbers = (family.share, family.floor)
        match family.diagonalised:
            case ScaledIdentity() as identity:
                scale = float(identity.scale)
                source = None if scale == 0 else torch.full(family.shape, scale, dtype=torch.float64)
                return cls(family.shape, None, None, None, source, *numbers)
            case DiagonalMatrix() as diagonal:
                return cls(family.shape, None, None, None, diagonal.values.double(), *numbers)
            case JointEigen() | RotatedMatrix() as found:
                turn = found if isinstance(found, RotatedMatrix) else None
                eigen = found.frame_of if isinstance(found, RotatedMatrix) else found
                left, right = eigen.left.matrix, eigen.right.matrix
                if not is_large(*family.shape):
                    left, right = left.double(), right.double()
                return cls(family.shape, left, right, None, eigen.values.double(), *numbers, turn)
            case DenseMatrix() as dense:
                values, vectors = torch.linalg.eigh(dense.values.double())
                source = values.clamp_min(0).unflatten(-1, family.shape)
                return cls(family.shape, None, None, vectors, source, *numbers)
        raise AssertionError(f"no frame for {type(family.curvature).__name__}")

    def turned(self, x: Float[Tensor, "*batch out inp"]) -> Float[Tensor, "*batch out inp"]:
        """Coordinates of matrices in the frame, in their own precision."""
        if self.whole is not None:
            return (x.flatten(-2) @ self.whole.to(x)).unflatten(-1, self.shape)
        x = x if self.left is None else self.left.mT.to(x) @ x
        x = x if self.right is None else x @ self.right.to(x)
        return x if self.turn is None else self.turn.turn(x)


def rows_are_cheaper(block: Block, calls: list[Call], outputs: int) -> bool:
    """Whether turning input and gradient rows takes fewer multiplications than turning every gradient.

    A gradient is Σ_t s_t a_tᵀ over t positions. Turned as a matrix it costs out · inp · (out + inp) for every output; the rows
    cost t · out² for every output and t · inp² once for all of them. Elementwise layers have no rows.
    """
    if not block.layer.separable:
        return False
    (out, inp), t = block.shape, positions(block, calls)
    by_rows = outputs * t * (out * out + out * inp) + t * inp * inp
    by_gradients = outputs * (t * out * inp + out * inp * (out + inp))
    return by_rows < by_gradients


def turned_rows(rows: Float[Tensor, "*n side"], basis: Float[Tensor, "side side"] | None) -> Float[Tensor, "*n side"]:
    """Rows in the coordinates of a basis (its columns), in float64; products with a basis in float32 run in float32."""
    return _turned(rows, basis).double()


def _turned(rows: Float[Tensor, "*n side"], basis: Float[Tensor, "side side"] | None) -> Float[Tensor, "*n side"]:
    return rows if basis is None else rows.to(basis.dtype) @ basis


def _turned_as_is(rows: Float[Tensor, "*n side"], basis: Float[Tensor, "side side"] | None) -> Float[Tensor, "*n side"]:
    """The same in the rows' own precision: the network has rounded them to it already."""
    return rows if basis is None else rows @ basis.to(rows)


@dataclass(frozen=True, eq=False)
class Jacobian:
    """Outputs at the point of linearisation, and their gradients by every block in the prior's frame."""

    outputs: Float[Tensor, "n outputs"]
    blocks: Mapping[str, Rows | Gradients | Positions]

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(self.outputs)


def jacobian(
    model: nn.Module,
    blocks: Mapping[str, Block],
    point: Mapping[str, Tensor],
    frames: Mapping[str, BlockFrame],
    inputs: Iterable[Batch],
) -> Jacobian:
    """One forward pass and a backward pass an output, in evaluation mode; the model comes out as it went in.

    Linear layers with one position an example keep input and gradient rows, all others their gradients written out; in
    float64, so that what the network's precision has rounded still makes a kernel without negative eigenvalues. (Many rows are
    added up to a gradient in the network's own precision: no rounding after that is left to the kernel.) Large blocks
    keep the rows of all positions, in the precision of their frame: their gradients would be gigabytes.
    """
    like, weights = next(model.parameters()), _weights(model, blocks, point)
    parts = []
    with torch.inference_mode(False), watched(model, blocks) as watch:
        for batch in inputs:
            there = batch.to(like.device)
            try:
                parts.append(_of_batch(model, blocks, weights, frames, there, watch, {}))
            except _OtherPosition:
                parts.append(_of_batch(model, blocks, weights, frames, there, watch, None))
    outputs = torch.cat([p.outputs for p in parts])
    joined: Any = BlockGradients.joined
    return Jacobian(outputs, {name: joined(*(p.blocks[name] for p in parts)) for name in blocks})


@torch.no_grad()
def outputs_at(model: nn.Module, blocks: Mapping[str, Block], point: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """The network's outputs with other weights in some of its blocks; the model comes out as it went in."""
    weights = _weights(model, blocks, point)
    return batch.to(next(model.parameters()).device).outputs(model, weights)


def _weights(model: nn.Module, blocks: Mapping[str, Block], point: Mapping[str, Tensor]) -> dict[str, Tensor]:
    like = next(model.parameters())
    weights = {name: p.detach() for name, p in model.named_parameters()}
    weights |= {name: b.detach().clone() for name, b in model.named_buffers()}
    return weights | write_blocks(blocks, {name: point[name].to(like) for name in blocks})


class Passes(NamedTuple):
    """The calls of every block for some outputs: each example stands there once for each of them, one behind the other."""

    outputs: int
    calls: dict[str, list[Call]]

    def once(self, name: str) -> list[Call]:
        """A block's calls with every example once: its inputs are the same for all outputs."""
        return [Call(a[:: self.outputs], s[:: self.outputs]) for a, s in map(tensors, self.calls[name])]

    def some(self, name: str, examples: slice) -> Passes:
        """Some examples' calls of one block."""
        rows = slice(examples.start * self.outputs, examples.stop * self.outputs)
        return Passes(self.outputs, {name: [Call(a[rows], s[rows]) for a, s in map(tensors, self.calls[name])]})

    def each(self, x: Shaped[Tensor, "rows *rest"]) -> Shaped[Tensor, "n outputs *rest"]:
        """Rows by example and output."""
        return x.reshape(-1, self.outputs, *x.shape[1:])


def each_output(  # type: ignore[no-untyped-def]
    model: nn.Module, weights: Mapping[str, Tensor], batch: Batch, width: int, watch
) -> Iterator[Passes]:
    """The calls of blocks with their gradients, one backward pass an output.

    Few examples take one pass for all outputs, every example repeated for each of them: the same numbers up to rounding.
    """
    together = width > 1 and batch.count * width <= REPEATED
    repeated = batch.rows(torch.arange(batch.count).repeat_interleave(width)) if together else batch
    seen: dict[str, list[Call]] = {}
    keep = lambda name, calls: seen.update({name: [Call(c.a, c.s) for c in calls]})  # noqa: E731
    recorder = Recorder(repeated.count, lambda name, a: None, keep)
    watch(recorder)
    with torch.enable_grad():
        outputs = repeated.outputs(model, weights)
    if together:
        recorder.backward(outputs, torch.eye(width).to(outputs).repeat(batch.count, 1).view_as(outputs), again=False)
        yield Passes(width, seen)
        return
    for k in range(width):
        direction = torch.zeros_like(outputs).view(batch.count, width)
        direction[:, k] = 1
        seen.clear()
        recorder.backward(outputs, direction.view_as(outputs), again=k < width - 1)
        yield Passes(1, dict(seen))


def _of_batch(model, blocks, weights, frames, batch, watch, places: Places) -> Jacobian:  # type: ignore[no-untyped-def]
    watch(None)  # the last batch's recorder counts other examples
    with torch.no_grad():
        outputs = batch.each(batch.outputs(model, weights))
    if outputs.ndim != 2:
        raise BadData(
            f"outputs of shape {tuple(outputs.shape)}: a posterior in function space needs one vector of outputs an example. "
            "`pt.posterior` and `pt.learn` keep a structured posterior of others."
        )
    if not bool(torch.isfinite(outputs).all()):
        raise NotFinite("the network's outputs are not finite: look for bad inputs or diverged weights.")
    collected: dict[str, list[tuple[int, Tensor | None]]] = {name: [] for name in blocks}
    inputs: dict[str, Tensor] = {}
    turned: dict[str, Tensor] = {}
    with torch.no_grad():
        for passes in each_output(model, weights, batch, outputs.shape[1], watch):
            for name, block in blocks.items():
                seen = _seen(block, frames[name], passes, inputs, places, turned, outputs.shape[1])
                collected[name].append((passes.outputs, seen))
        found: dict[str, Rows | Gradients | Positions] = {}
        for name, block in blocks.items():
            together = _joined(collected[name], block, outputs)
            if name in inputs:
                found[name] = Rows(inputs[name], together)
            else:
                large = name in turned and is_large(*block.shape)
                found[name] = Positions(turned[name], together) if large else Gradients(together.double())
    return Jacobian(outputs.detach(), found)


def _seen(
    block: Block,
    frame: BlockFrame,
    passes: Passes,
    inputs: dict[str, Tensor],
    places: Places,
    kept: dict[str, Tensor],
    outputs: int,
) -> Float[Tensor, "n outputs *rest"] | None:
    """Some outputs' gradients by one block: rows where there is one position an example or the block is large, else matrices.

    Of convolutions the rows are turned where that is cheaper, input rows (`kept`) once for all outputs.
    """
    calls = passes.calls.get(block.name)
    if calls is None:
        return None
    once = passes.once(block.name)
    by_rows = block.layer.separable and frame.whole is None and frame.turn is None
    if by_rows and (one := _one_position(block, passes, once, places)) is not None:
        a, s = one
        if block.name not in inputs:
            inputs[block.name] = turned_rows(a, frame.right)
        return passes.each(turned_rows(s, frame.left))
    if by_rows and is_large(*block.shape):
        if block.name not in kept:
            kept[block.name] = _turned(rows(block, once)[0], frame.right)
        return passes.each(_turned(gradient_rows(block, calls), frame.left))
    turned = frame.left is not None or frame.right is not None
    if by_rows and turned and rows_are_cheaper(block, once, outputs):
        if block.name not in kept:
            kept[block.name] = _turned_as_is(rows(block, once)[0], frame.right)
        return passes.each(_turned_as_is(gradient_rows(block, calls), frame.left)).mT @ kept[block.name][:, None]
    return passes.each(frame.turned(torch.cat(list(gradients(block, calls))).double()))


def _one_position(
    block: Block, passes: Passes, once: list[Call], places: Places
) -> tuple[Float[Tensor, "n inp"], Float[Tensor, "rows out"]] | None:
    """Input and gradient rows of a block with one position an example, None for others.

    So is a head at many positions of which the network returns one, as that of the last token of a text: its gradient is 1
    at one output of one position. The first output shows which position; another output must not use another.
    """
    calls = passes.calls[block.name]
    if positions(block, once) == 1:
        return rows(block, once)[0].squeeze(1), gradient_rows(block, calls).squeeze(1)
    if places is None or not isinstance(block.layer, LinearLayer) or len(calls) > 1:
        return None
    s = tensors(calls[0])[1].flatten(1, -2)
    if not bool(((s == 1).sum((1, 2)) == 1).all() and ((s != 0).sum((1, 2)) == 1).all()):
        return None
    every = passes.each(s.any(-1).int().argmax(1))
    place = places.setdefault(block.name, every[:, 0])
    if not bool((every == place[:, None]).all()):
        raise _OtherPosition
    a, n = rows(block, once)[0], torch.arange(len(place), device=s.device)
    return a[n, place], s[torch.arange(len(s), device=s.device), every.flatten()]


class _OtherPosition(Exception):
    """Outputs read a layer at different positions: its gradients have to be written out."""


def _joined(parts: list[tuple[int, Tensor | None]], block: Block, outputs: Tensor) -> Float[Tensor, "n outputs *rest"]:
    """All outputs' gradients; those of an output that does not depend on the block are zero."""
    found = [x for _, x in parts if x is not None]
    some = found[0] if found else outputs.new_zeros(len(outputs), 1, *block.shape).double()
    return torch.cat([some.new_zeros(len(some), k, *some.shape[2:]) if x is None else x for k, x in parts], 1)
