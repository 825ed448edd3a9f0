"""The generalised linear model at the mode: outputs are normal with covariance J Σ Jᵀ, and J is never formed."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.algebra import Matrix
from posterity.blocks import Block, Call, Recorder, find_blocks, named, watched, write_blocks
from posterity.blocks.base import positions, rows
from posterity.curvature import Categorical, Likelihood
from posterity.curvature.batches import Batch
from posterity.errors import BadData, NotExact
from posterity.gaussian import Gaussian
from posterity.kernel import Calibration, Link, Moments, normal_draws
from posterity.kernel.jacobian import rows_are_cheaper, turned_rows
from posterity.predictive.prediction import Prediction, from_moments

PIECE = 1 << 20
"""Entries of gradients at a time (8 MB in float64): while they are whitened and multiplied they stay in the cache."""


def linearised(
    model: nn.Module,
    gaussian: Gaussian,
    inputs: list[Batch],
    likelihood: Likelihood,
    calibration: Calibration,
    kind: Link,
    samples: int,
    generator: torch.Generator | None,
    keep: bool,
) -> Prediction:
    """Outputs N(f, JΣJᵀ) around the mean's own, through the link.

    One forward and one backward pass an output. For a layer with one position an example the covariance of two outputs
    is Σ_i s_i s'_i (Σ_j a_j²/v_ij) in the precision's frame; other layers take gradients in bounded pieces.
    """
    found = [output_moments(model, gaussian, batch) for batch in inputs]
    outputs, covariance = torch.cat([m for m, _ in found]), torch.cat([c for _, c in found])
    mean = outputs.double().reshape(len(outputs), -1)
    if outputs.ndim > 2 and isinstance(likelihood, Categorical):
        mean, covariance = _by_position(mean, covariance, outputs.shape[-1])
    moments = Moments(1.0, mean, covariance, calibration, usual=calibration.usual)
    prediction = from_moments([moments], likelihood, kind, samples, generator)
    draws = normal_draws(mean, calibration.tau * covariance, samples, generator) if keep else None
    return _shaped(prediction, outputs, draws).to(outputs.dtype)


def _by_position(
    mean: Float[Tensor, "n outputs"], covariance: Float[Tensor, "n outputs outputs"], classes: int
) -> tuple[Float[Tensor, "rows classes"], Float[Tensor, "rows classes classes"]]:
    """Every position of an example (a token, say) by itself."""
    blocks = covariance.unflatten(2, (-1, classes)).unflatten(1, (-1, classes))  # n, t, classes, t, classes
    own = blocks.diagonal(dim1=1, dim2=3).movedim(-1, 1)
    return mean.reshape(-1, classes), own.reshape(-1, classes, classes)


def _shaped(prediction: Prediction, outputs: Tensor, draws: Tensor | None) -> Prediction:
    """As the network's outputs are shaped: one number an output, or one for all classes of a position."""

    def like(x: Tensor) -> Tensor:
        for shape in (outputs.shape, outputs.shape[:-1]):
            if x.numel() == shape.numel():
                return x.reshape(shape)
        return x

    fields = {name: like(getattr(prediction, name)) for name in ("mean", "epistemic", "aleatoric", "logits", "unknown")}
    kept = None if draws is None else draws.reshape(len(draws), *outputs.shape)
    return replace(prediction, **fields, draws=kept)  # type: ignore[arg-type]


def output_moments(
    model: nn.Module, gaussian: Gaussian, batch: Batch
) -> tuple[Tensor, Float[Tensor, "n outputs outputs"]]:
    """A batch's outputs at the mean of the weights, and their covariance (float64, outputs flattened)."""
    blocks = find_blocks(model, named(gaussian.mean))
    like = next(model.parameters())
    weights = {name: p.detach() for name, p in model.named_parameters()} | {
        n: b.detach().clone() for n, b in model.named_buffers()
    }
    weights |= write_blocks(blocks, {name: mean.to(like) for name, mean in gaussian.mean.items()})
    jacobians = {name: _Jacobian(block, gaussian.precision[name]) for name, block in blocks.items()}
    with watched(model, blocks) as watch:
        recorder = Recorder(batch.count, lambda name, a: None, lambda name, calls: jacobians[name].see(calls))
        watch(recorder)
        with torch.enable_grad():
            outputs = batch.each(batch.outputs(model, weights))
        flat = outputs.reshape(batch.count, -1)
        if flat.shape[1] > 1000:
            raise BadData(
                f"each example has {flat.shape[1]} outputs, and the linearised predictive takes a backward pass for each: "
                "use method='jvp', which draws instead, or 'sampled'."
            )
        with torch.no_grad():
            for k in range(flat.shape[1]):
                direction = torch.zeros_like(flat)
                direction[:, k] = 1
                recorder.backward(outputs, direction.view_as(outputs), again=k < flat.shape[1] - 1)
            covariance = torch.stack([j.covariance(batch.count, flat.shape[1]) for j in jacobians.values()]).sum(0)
    return outputs.detach(), covariance


class _Jacobian:
    """One block's share of J Σ Jᵀ, collected output by output."""

    def __init__(self, block: Block, precision: Matrix) -> None:
        self.block, self.precision = block, precision
        self.passes: list[list[Call]] = []

    def see(self, calls: list[Call]) -> None:
        self.passes.append([Call(c.a, c.s) for c in calls])

    def covariance(self, n: int, outputs: int) -> Float[Tensor, "n outputs outputs"]:
        if not self.passes:
            return torch.zeros(n, outputs, outputs, dtype=torch.float64, device=self.precision.device)
        if positions(self.block, self.passes[0]) == 1 and self._has_frame:
            return self._by_rows()
        return self._by_gradients()

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
        a, _ = rows(self.block, self.passes[0])
        # Bases of large blocks are in float32.
        left, right = frame.left.double(), frame.right.double()
        turned = a.squeeze(1).double() @ right.mT
        weight = turned.square() @ (1 / frame.values.double()).mT
        s = torch.stack([rows(self.block, calls)[1].squeeze(1) for calls in self.passes], 1).double() @ left.mT
        return (s * weight[:, None, :]) @ s.mT

    def _by_gradients(self) -> Float[Tensor, "n outputs outputs"]:
        layer = self.block.layer
        n = len(self.passes[0][0].s)  # type: ignore[arg-type]
        step = max(1, PIECE // (layer.out * layer.inp * len(self.passes)))
        by_rows = self._has_frame and rows_are_cheaper(self.block, self.passes[0], len(self.passes))
        parts = []
        for start in range(0, n, step):
            piece = [[Call(c.a[start : start + step], c.s[start : start + step]) for c in p] for p in self.passes]  # type: ignore[index]
            white = (self._whitened_rows(piece) if by_rows else self._whitened(piece)).flatten(2)
            parts.append(white @ white.mT)
        return torch.cat(parts)

    def _whitened(self, passes: list[list[Call]]) -> Float[Tensor, "n outputs out inp"]:
        layer = self.block.layer
        gradients = torch.stack([sum(layer.gradients(c.a, c.s) for c in p) for p in passes], 1)  # type: ignore[arg-type, misc]
        return self.precision.whiten(gradients)

    def _whitened_rows(self, passes: list[list[Call]]) -> Float[Tensor, "n outputs out inp"]:
        """The same from rows turned into the frame: inputs once for all outputs."""
        frame = self.precision.frame()
        a = turned_rows(rows(self.block, passes[0])[0], frame.right.mT)
        s = [turned_rows(rows(self.block, p)[1], frame.left.mT) for p in passes]
        return torch.stack([x.mT @ a for x in s], 1) * frame.values.rsqrt()
