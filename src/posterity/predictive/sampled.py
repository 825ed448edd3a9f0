"""The mean over draws of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, write_blocks
from posterity.curvature import Likelihood
from posterity.curvature.batches import Batch
from posterity.gaussian import Gaussian
from posterity.predictive.prediction import Prediction, from_outputs

Inputs = Tensor | Mapping[str, Any]

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
    blocks = find_blocks(model, lambda name, module: name in gaussian.mean)
    like = next(model.parameters())
    constants: dict[str, Tensor] = {n: p.detach() for n, p in model.named_parameters()}
    constants |= {n: b.detach().clone() for n, b in model.named_buffers()}
    chunk = max(1, min(samples, DRAWS_AT_ONCE // gaussian.size))
    outputs: list[list[Tensor]] = [[] for _ in inputs]
    for start in range(0, samples, chunk):
        draws = gaussian.sample(min(chunk, samples - start), generator=generator)
        weights = write_blocks(blocks, {name: draw.to(like) for name, draw in draws.items()})
        for i in range(len(next(iter(draws.values())))):
            drawn = constants | {name: value[i] for name, value in weights.items()}
            for slot, batch in zip(outputs, inputs, strict=True):
                slot.append(batch.outputs(model, drawn))
    together = torch.cat([torch.stack(slot) for slot in outputs], 1)
    return from_outputs(together, likelihood, together.mean(0), keep)
