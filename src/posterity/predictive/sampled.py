"""The mean over draws of the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, run_with, write_blocks
from posterity.curvature import Likelihood
from posterity.data.batches import Batch
from posterity.gaussian import Gaussian
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
