"""One set of draws from a posterior, at many temperatures: the noise is the same, its scale is √τ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from posterity.blocks import find_blocks, read_blocks, run_with, write_blocks


@torch.no_grad()
def tempered_probabilities(
    model: nn.Module,
    noise: Mapping[str, Tensor],
    x: Tensor,
    temperatures: Sequence[float],
) -> dict[float, Tensor]:
    """The sampled predictive at each temperature: the mean softmax over the same draws of noise around the network's weights.

    Nothing but the spread differs between temperatures, so a curve over τ is smooth where the draws are few.
    """
    blocks = find_blocks(model, lambda name, module: name in noise)
    mean = read_blocks(model, blocks)
    network = _OnBatches(model.eval(), x)
    draws = len(next(iter(noise.values())))
    totals = {tau: torch.zeros(()) for tau in temperatures}
    for i in range(draws):
        draw = {name: noise[name][i].to(mean[name]) for name in blocks}
        for tau in temperatures:
            weights = write_blocks(blocks, {name: mean[name] + math.sqrt(tau) * draw[name] for name in blocks})
            totals[tau] = totals[tau] + run_with(network, _prefixed(weights)).softmax(-1)
    return {tau: total / draws for tau, total in totals.items()}


@torch.no_grad()
def drawn_outputs(model: nn.Module, noise: Mapping[str, Tensor], x: Tensor) -> Iterator[Tensor]:
    """The outputs of one drawn network after the other."""
    blocks = find_blocks(model, lambda name, module: name in noise)
    mean = read_blocks(model, blocks)
    network = _OnBatches(model.eval(), x)
    for i in range(len(next(iter(noise.values())))):
        weights = write_blocks(blocks, {name: mean[name] + noise[name][i].to(mean[name]) for name in blocks})
        yield run_with(network, _prefixed(weights))


def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """In per cent, rounded to what it is worth."""
    return round(100 * float((probabilities.argmax(-1) == labels).double().mean()), 3)


def _prefixed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"model.{name}": value for name, value in weights.items()}


class _OnBatches(nn.Module):
    """A network on its inputs a few at a time: activations stay in the processor's cache."""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.model, self.x = model, x

    def forward(self) -> Tensor:
        return torch.cat([self.model(part) for part in self.x.split(125)])
