"""Predictives by draws of the weights: of the network itself, or of the network made linear around their mean.

A linear draw is f + J(θ_s − θ̂): one forward-mode derivative, whatever the number of classes.
"""

from __future__ import annotations

import math
from threading import Lock

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, run_with, write_blocks
from posterity.curvature import GaussianNoise, Likelihood
from posterity.data.batches import Batch
from posterity.gaussian import Gaussian
from posterity.kernel import Calibration
from posterity.predictive.prediction import Prediction, from_outputs

DRAWS_AT_ONCE = 1 << 25
"""Weights (128 MB in float32) drawn in one go."""


def sampled(
    model: nn.Module,
    gaussian: Gaussian,
    inputs: list[Batch],
    likelihood: Likelihood,
    samples: int,
    generator: torch.Generator | None,
    keep: bool,
) -> Prediction:
    """Outputs of `samples` networks drawn from the Gaussian: as many forward passes, and a few products for the draws.

    Draws are taken many at a time (one product a block) and run one after the other: on a processor a batch of images
    through one set of weights keeps the convolutions fast, which a vmap over weights does not.
    """
    blocks = find_blocks(model, named(gaussian.mean))
    like = next(model.parameters())
    # Of the network's own, only what it may write into: its parameters serve as they are where nothing is drawn.
    buffers = {f"model.{n}": b.detach().clone() for n, b in model.named_buffers()}
    network = _BatchedNetwork(model, inputs)
    chunk = max(1, min(samples, DRAWS_AT_ONCE // gaussian.size))
    spreads = {name: gaussian.spread(name, like.dtype) for name in gaussian.blocks}
    outputs: list[Tensor] = []
    for start in range(0, samples, chunk):
        many = min(chunk, samples - start)
        draws = {name: spread.draw(many, generator).to(like) for name, spread in spreads.items()}
        weights = write_blocks(blocks, draws)
        for i in range(many):
            outputs.append(run_with(network, buffers | {f"model.{name}": value[i] for name, value in weights.items()}))
    together = torch.stack(outputs)
    return from_outputs(together, likelihood, together.mean(0), keep)


class _BatchedNetwork(nn.Module):
    """A network on all its inputs, batch by batch: weights are put in place once for all of them."""

    def __init__(self, model: nn.Module, inputs: list[Batch]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self) -> Tensor:
        return torch.cat([batch.outputs(self.model) for batch in self.inputs])


ONE_AT_A_TIME = Lock()
"""torch has one level of forward-mode derivatives for all threads: who leaves it first takes it from the others."""


def by_derivatives(
    model: nn.Module,
    gaussian: Gaussian,
    inputs: list[Batch],
    likelihood: Likelihood,
    calibration: Calibration,
    samples: int,
    generator: torch.Generator | None,
    keep: bool,
) -> Prediction:
    """Outputs of `samples` networks that are linear in their weights around the mean.

    A draw and its mirror image, θ̂ − (θ_s − θ̂), are as likely and share one derivative, so that `samples` of them take half as
    many. A derivative costs about three forward passes. Nothing is formed by class: J has neither to be written out nor to
    be multiplied by itself.
    """
    mean, shifts = linear_draws(model, gaussian, inputs, (samples + 1) // 2, generator)
    both = torch.stack((shifts, -shifts), 1).flatten(0, 1)[:samples]
    tau, soft = calibration.tau, calibration.temperature
    # The temperature divides logits; a regression has none.
    scaled = (
        mean + math.sqrt(tau) * both if isinstance(likelihood, GaussianNoise) else (mean + math.sqrt(tau) * both) / soft
    )
    return from_outputs(scaled, likelihood, mean, keep)


def linear_draws(
    model: nn.Module, gaussian: Gaussian, inputs: list[Batch], draws: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """The outputs at the mean of the weights, and J(θ_s − θ̂) for draws θ_s, [draws, examples, ...]: exact derivatives."""
    blocks = find_blocks(model, named(gaussian.mean))
    like = next(model.parameters())
    buffers = {name: b.detach().clone() for name, b in model.named_buffers()}
    centre = {name: mean.to(like) for name, mean in gaussian.mean.items()}
    weights = write_blocks(blocks, centre)
    spreads = {name: gaussian.spread(name, like.dtype) for name in gaussian.blocks}
    mean: Tensor | None = None
    shifts = []
    for _ in range(draws):
        # One at a time: a draw of all weights of a large network is as large as the network.
        drawn = {name: spread.draw(1, generator)[0].to(like) - centre[name] for name, spread in spreads.items()}
        tangents = write_blocks(blocks, drawn)
        parts = [_derivative(model, buffers, weights, tangents, batch) for batch in inputs]
        mean = torch.cat([output for output, _ in parts]) if mean is None else mean
        shifts.append(torch.cat([shift for _, shift in parts]))
    assert mean is not None
    return mean, torch.stack(shifts)


def _derivative(
    model: nn.Module, buffers: dict[str, Tensor], weights: dict[str, Tensor], tangents: dict[str, Tensor], batch: Batch
) -> tuple[Tensor, Tensor]:
    def outputs(parameters: dict[str, Tensor]) -> Tensor:
        return batch.outputs(model, buffers | parameters)

    with ONE_AT_A_TIME:
        found = torch.func.jvp(outputs, (weights,), (tangents,))
    return found[0].detach(), found[1].detach()
