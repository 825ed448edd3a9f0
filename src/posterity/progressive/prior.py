"""The prior of a new column: the learned prior for its own layers, posteriors of earlier columns for its laterals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from posterity.algebra import Matrix, scaled_identity
from posterity.blocks import find_blocks, named
from posterity.data.provenance import together
from posterity.errors import BlockMismatch
from posterity.gaussian import Card, Gaussian
from posterity.laplace.prior import mismatch
from posterity.progressive.column import Architecture, Column


def column_prior(
    learned: Gaussian,
    architecture: Architecture,
    column: Column,
    posteriors: Sequence[Gaussian],
    head_precision: float = 1.0,
) -> Gaussian:
    """π of the new blocks: learned prior for the column, posterior of layer l in column i, scales included, for (i → t).

    A head of another size, or one that the learned prior does not have, gets an isotropic prior around zero. Every other
    block must be in the prior: what has none could not be accounted for in a bound.
    """
    t = len(posteriors)
    mean: dict[str, torch.Tensor] = {}
    precision: dict[str, Matrix] = {}
    blocks = find_blocks(column.module)
    for name, block in blocks.items():
        known = learned.precision[name].shape if name in learned.mean else None
        if known == block.shape:
            mean[own_block(t, name)], precision[own_block(t, name)] = learned.mean[name], learned.precision[name]
        elif name == architecture.head and (known is None or known[1] == block.shape[1]):
            like = next(column.module.parameters())
            mean[own_block(t, name)] = torch.zeros(block.shape, dtype=like.dtype, device=like.device)
            precision[own_block(t, name)] = scaled_identity(head_precision, block.shape)
        else:
            raise BlockMismatch(
                f"{mismatch(name, block, known)} A layer that is to stay as it is can be frozen instead."
            )
    if extra := [name for name in learned.blocks if name not in blocks]:
        raise BlockMismatch(
            f"the prior has blocks {extra} that a column has not (its blocks are {list(blocks)}): "
            f"drop them with prior.without({', '.join(map(repr, extra))})."
        )
    for i, posterior in enumerate(posteriors):
        sources = [own_block(i, path) for path in architecture.laterals]
        if not sources:
            continue
        # One pair a block: what the scales are tuned in, and what the certificate's KL is taken against.
        handed_down = posterior.restricted(sources).compress()
        for k, source in enumerate(sources):
            mean[lateral_block(t, i, k)] = handed_down.mean[source]
            precision[lateral_block(t, i, k)] = handed_down.precision[source]
    seen = together([learned.provenance, *(posterior.provenance for posterior in posteriors)])
    return Gaussian(mean, precision, replace(learned.card, scales={}, compression={})).with_provenance(seen)


def own_block(t: int, name: str) -> str:
    """The name of a layer of column t in a network of columns."""
    return f"columns.{t}.{name}"


def lateral_block(t: int, i: int, k: int) -> str:
    """The name of what leads from column i into column t at the k-th lateral layer."""
    return f"laterals.{t}.{i}.{k}"


def joined(parts: Sequence[Gaussian], card: Card | None = None) -> Gaussian:
    """Independent Gaussians over different blocks as one, which has seen what any has. The matrices are the parts' own."""
    mean = {name: value for part in parts for name, value in part.mean.items()}
    precision = {name: value for part in parts for name, value in part.precision.items()}
    seen = together(part.provenance for part in parts)
    return Gaussian(mean, precision, card or parts[-1].card).with_provenance(seen)


@torch.no_grad()
def start_at(network: nn.Module, prior: Gaussian) -> None:
    """The network's weights at the prior's mean. Where that is all zeros, which no gradient leaves, they stay as they are."""
    parameters = dict(network.named_parameters(remove_duplicate=False))
    for name, block in find_blocks(network, named(prior.mean)).items():
        if prior.mean[name].any():
            for role, value in block.layer.write(prior.mean[name]).items():
                parameter = parameters[block.parameters[role]]
                parameter.copy_(value.reshape(parameter.shape))
