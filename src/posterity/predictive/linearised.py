"""The generalised linear model at the mode: outputs are normal with covariance J Σ Jᵀ, and J is never formed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import Matrix
from posterity.blocks import Block, Call, Replica, watched, write_blocks
from posterity.blocks.base import gradient_rows, positions, rows, tensors
from posterity.brief import brief
from posterity.curvature import Categorical, Likelihood
from posterity.data.batches import Batch
from posterity.errors import BadData, NotExact, TooLarge
from posterity.gaussian import Gaussian
from posterity.kernel import Calibration, Link
from posterity.kernel.jacobian import Passes, each_output, rows_are_cheaper
from posterity.kernel.storing import Plain, Stored, calibration_of, numbers_of
from posterity.predictive.prediction import Moments
from posterity.predictive.predictor import Context, Predictor, meaning

PIECE = 1 << 20
"""Entries of gradients at a time (8 MB in float64): while they are whitened and multiplied they stay in the cache."""
HELD, FIRST = 1 << 27, 8
"""Bytes of activations and their gradients that are held at a time, and how many examples show how many those are."""
ROOM = 1 << 30
"""Bytes of covariances at a time."""


@dataclass(frozen=True, eq=False)
class StructuredGaussian(Predictor, kind="structured"):
    """A Gaussian over weights through the network made linear at its mean: outputs N(f, JΣJᵀ).

    One forward and one backward pass an output. For a layer with one position an example the covariance of two outputs
    is Σ_i s_i s'_i (Σ_j a_j²/v_ij) in the precision's frame; other layers take gradients in bounded pieces.
    """

    __repr__ = brief

    gaussian: Gaussian
    calibration: Calibration
    likelihood: Likelihood
    link: Link = "probit"

    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        outputs, covariance = output_moments(network, self.gaussian, batch)
        mean, shape = outputs.double().reshape(len(outputs), -1), None
        if outputs.ndim > 2:
            shape = tuple(outputs.shape[1:])
            if isinstance(self.likelihood, Categorical):
                mean, covariance = _by_position(mean, covariance, outputs.shape[-1])
        return [Moments(1.0, mean, covariance, self.calibration, shape)]

    def save(self) -> Stored:
        """The calibration alone: the Gaussian is the fit's posterior and is saved as that."""
        return self.about() | {"calibration": numbers_of(self.calibration)}, {}

    @classmethod
    def load(cls, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Self:
        return cls(context.posterior, calibration_of(plain["calibration"]), *meaning(plain))


def _by_position(
    mean: Float[Tensor, "n outputs"], covariance: Float[Tensor, "n outputs outputs"], classes: int
) -> tuple[Float[Tensor, "rows classes"], Float[Tensor, "rows classes classes"]]:
    """Every position of an example (a token, say) by itself."""
    blocks = covariance.unflatten(2, (-1, classes)).unflatten(1, (-1, classes))  # n, t, classes, t, classes
    own = blocks.diagonal(dim1=1, dim2=3).movedim(-1, 1)
    return mean.reshape(-1, classes), own.reshape(-1, classes, classes)


def output_moments(
    network: Replica, gaussian: Gaussian, batch: Batch
) -> tuple[Tensor, Float[Tensor, "n outputs outputs"]]:
    """A batch's outputs at the mean of the weights, and their covariance (float64, outputs flattened).

    As many examples at a time as `HELD` bytes of recorded activations and their gradients allow.
    """
    model, blocks = network.module, network.blocks(gaussian.mean)
    like = next(model.parameters())
    weights = {name: p.detach() for name, p in model.named_parameters()} | {
        n: b.detach().clone() for n, b in model.named_buffers()
    }
    weights |= write_blocks(blocks, {name: mean.to(like) for name, mean in gaussian.mean.items()})
    with watched(model, blocks) as watch:
        with torch.no_grad():
            outputs = batch.each(batch.outputs(model, weights))
        if outputs[0].numel() > 1000:
            raise BadData(
                f"each example has {outputs[0].numel()} outputs, and the linearised predictive takes a backward pass for each: "
                "use method='jvp', which draws instead, or 'sampled'."
            )
        require_room(batch.count, outputs[0].numel())
        parts, start, step = [], 0, FIRST
        while start < batch.count:
            some = torch.arange(start, min(start + step, batch.count))
            piece = batch if len(some) == batch.count else batch.rows(some)
            jacobians = {name: _Jacobian(block, gaussian.precision[name]) for name, block in blocks.items()}
            with torch.no_grad():
                for passes in each_output(model, weights, piece, outputs[0].numel(), watch):
                    for name in passes.calls:
                        jacobians[name].passes.append(passes)
                parts.append(
                    torch.stack([j.covariance(len(some), outputs[0].numel()) for j in jacobians.values()]).sum(0)
                )
            held = sum(j.held for j in jacobians.values()) // len(some)
            start, step = start + len(some), max(1, HELD // max(1, held))
    return outputs, torch.cat(parts)


def require_room(examples: int, outputs: int) -> None:
    """Refuse covariances that would fill the memory, before any is computed.

    Raises:
        TooLarge: if those of all outputs at so many examples are larger than `ROOM` bytes.
    """
    need = 8 * examples * outputs**2
    if need > ROOM:
        raise TooLarge(
            f"covariances of {outputs:,} outputs at {examples:,} examples are {need / 2**30:.1f} GiB (limit {ROOM / 2**30:g}). "
            "Predict fewer inputs at a time (batch_size=...), or for many classes fit a head on the network's features "
            "(posterity.heads), which has no such matrices."
        )


class _Jacobian:
    """One block's share of J Σ Jᵀ, collected output by output."""

    def __init__(self, block: Block, precision: Matrix) -> None:
        self.block, self.precision = block, precision
        self.passes: list[Passes] = []

    def _calls(self, passes: Passes) -> list[Call]:
        return passes.calls[self.block.name]

    @property
    def held(self) -> int:
        """Bytes of what was recorded."""
        if not self.passes:
            return 0
        inputs = sum(tensors(call)[0].nbytes for call in self._calls(self.passes[0]))
        return inputs + sum(tensors(call)[1].nbytes for passes in self.passes for call in self._calls(passes))

    def covariance(self, n: int, outputs: int) -> Float[Tensor, "n outputs outputs"]:
        if not self.passes:
            return torch.zeros(n, outputs, outputs, dtype=torch.float64, device=self.precision.device)
        self.once = self.passes[0].once(self.block.name)
        if positions(self.block, self.once) == 1 and self._has_frame:
            return self._by_rows()
        return self._by_gradients(n, outputs)

    @cached_property
    def _has_frame(self) -> bool:
        try:
            self.precision.frame()
        except NotExact:
            return False
        return True

    def _by_rows(self) -> Float[Tensor, "n outputs outputs"]:
        """G = s aᵀ: in the frame, weights w_i = Σ_j ã_j²/v_ij belong to the example and s̃ to the output."""
        frame = self.precision.frame()
        a = rows(self.block, self.once)[0].squeeze(1).double()
        s = self._gradient_rows(self.passes).squeeze(2).double()
        if not frame.is_identity:
            # Bases of large blocks are in float32.
            a, s = a @ frame.right.double().mT, s @ frame.left.double().mT
        weight = a.square() @ (1 / frame.values.double()).mT
        return (s * weight[:, None, :]) @ s.mT

    def _by_gradients(self, n: int, outputs: int) -> Float[Tensor, "n outputs outputs"]:
        layer = self.block.layer
        step = max(1, PIECE // (layer.out * layer.inp * outputs))
        by_rows = self._has_frame and rows_are_cheaper(self.block, self.once, outputs)
        parts = []
        for start in range(0, n, step):
            piece = [passes.some(self.block.name, slice(start, start + step)) for passes in self.passes]
            white = (self._whitened_rows(piece) if by_rows else self._whitened(piece)).flatten(2)
            parts.append((white @ white.mT).double())
        return torch.cat(parts)

    def _whitened(self, piece: list[Passes]) -> Float[Tensor, "n outputs out inp"]:
        parts = [p.each(sum(self.block.layer.gradients(*tensors(c)) for c in self._calls(p))) for p in piece]  # type: ignore[arg-type]
        return self.precision.whiten(torch.cat(parts, 1))

    def _whitened_rows(self, piece: list[Passes]) -> Float[Tensor, "n outputs out inp"]:
        """The same from rows turned into the frame: inputs once for all outputs."""
        frame = self.precision.frame()
        a = rows(self.block, piece[0].once(self.block.name))[0]
        a = a @ frame.right.mT.to(a)
        s = self._gradient_rows(piece) @ frame.left.mT.to(a)
        return (s.mT @ a[:, None]) * frame.values.rsqrt().to(a)

    def _gradient_rows(self, passes: list[Passes]) -> Float[Tensor, "n outputs t out"]:
        return torch.cat([p.each(gradient_rows(self.block, self._calls(p))) for p in passes], 1)
