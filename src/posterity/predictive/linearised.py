"""The generalised linear model at the mode: outputs are normal with covariance J Σ Jᵀ, and J is never formed."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.algebra import Matrix
from posterity.blocks import Block, Call, Recorder, find_blocks, named, watched, write_blocks
from posterity.curvature import Bernoulli, GaussianNoise, Likelihood
from posterity.curvature.base import positions, rows
from posterity.curvature.batches import Batch
from posterity.errors import BadData, NotExact
from posterity.gaussian import Gaussian
from posterity.predictive.prediction import PROBIT, Prediction, from_outputs

PIECE = 1 << 20
"""Entries of gradients at a time (8 MB in float64): while they are whitened and multiplied they stay in the cache."""


def linearised(
    model: nn.Module,
    gaussian: Gaussian,
    inputs: list[Batch],
    likelihood: Likelihood,
    samples: int,
    link: str,
    generator: torch.Generator | None,
    keep: bool,
) -> Prediction:
    """Outputs N(f, JΣJᵀ) around the mean's own, through the link.

    One forward and one backward pass an output. For a layer with one position an example the covariance of two outputs
    is Σ_i s_i s'_i (Σ_j a_j²/v_ij) in the precision's frame; other layers take gradients in bounded pieces.
    """
    moments = [output_moments(model, gaussian, batch) for batch in inputs]
    mean, covariance = torch.cat([m for m, _ in moments]), torch.cat([c for _, c in moments])
    shape = mean.shape
    if isinstance(likelihood, GaussianNoise):
        variance = covariance.diagonal(dim1=-2, dim2=-1).reshape(shape).to(mean.dtype)
        noise = torch.full_like(mean, 1 / likelihood.precision)
        kept = _draws(mean, covariance, samples, generator) if keep else None
        return Prediction(mean, variance, noise, likelihood, mean, kept)
    draws = _draws(mean, covariance, samples, generator)
    closed = None
    if link == "probit":
        spread = covariance.diagonal(dim1=-2, dim2=-1).reshape(shape).to(mean.dtype)
        moderated = mean / (1 + PROBIT * spread).sqrt()
        closed = moderated.sigmoid() if isinstance(likelihood, Bernoulli) else moderated.softmax(-1)
    return from_outputs(draws, likelihood, mean, keep, closed)


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
            outputs = batch.outputs(model, weights)
        flat = outputs.reshape(batch.count, -1)
        if flat.shape[1] > 1000:
            raise BadData(
                f"each example has {flat.shape[1]} outputs, and the linearised predictive takes a backward pass for each: "
                "use method='sampled'."
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
        turned = a.squeeze(1).double() @ frame.right.mT
        weight = turned.square() @ (1 / frame.values).mT
        s = torch.stack([rows(self.block, calls)[1].squeeze(1) for calls in self.passes], 1).double() @ frame.left.mT
        return (s * weight[:, None, :]) @ s.mT

    def _by_gradients(self) -> Float[Tensor, "n outputs outputs"]:
        layer = self.block.layer
        n = len(self.passes[0][0].s)  # type: ignore[arg-type]
        step = max(1, PIECE // (layer.out * layer.inp * len(self.passes)))
        parts = []
        for start in range(0, n, step):
            piece = [[Call(c.a[start : start + step], c.s[start : start + step]) for c in p] for p in self.passes]  # type: ignore[index]
            gradients = torch.stack([sum(layer.gradients(c.a, c.s) for c in p) for p in piece], 1)  # type: ignore[arg-type, misc]
            white = self.precision.whiten(gradients).flatten(2)
            parts.append(white @ white.mT)
        return torch.cat(parts)


def _draws(
    mean: Tensor, covariance: Float[Tensor, "n outputs outputs"], samples: int, generator: torch.Generator | None
) -> Float[Tensor, "draws n ..."]:
    """Outputs drawn from their normal; a covariance of less than full rank is no trouble to its eigenvectors."""
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp_min(0).sqrt()[..., None, :]
    flat = mean.reshape(len(mean), -1)
    where = mean.device if generator is None else generator.device
    z = torch.randn(samples, *flat.shape, 1, dtype=torch.float64, device=where, generator=generator).to(mean.device)
    return (flat + (root @ z).squeeze(-1).to(flat.dtype)).view(samples, *mean.shape)
