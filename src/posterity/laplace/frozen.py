"""What a network computes with beside its blocks, as a fingerprint: certificates hold only if the data did not change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from posterity.blocks import Block, find_blocks, named
from posterity.curvature.hashes import fingerprint
from posterity.gaussian import Gaussian
from posterity.gaussian.frozen import FrozenState, beside


def frozen_fingerprint(model: nn.Module, blocks: Mapping[str, Block]) -> str:
    """16 hexadecimal digits for all tensors outside the blocks, plain attributes of modules included; empty if there are none."""
    parts: list[str | Tensor] = []
    for name, tensor in beside(model, blocks):
        parts += [f"{name} {tuple(tensor.shape)} {tensor.dtype}", tensor]
    return fingerprint(parts, digits=16) if parts else ""


def with_frozen(gaussian: Gaussian, model: nn.Module, *, signed: bool = True) -> Gaussian:
    """The Gaussian with the network's present frozen state; `signed` puts its fingerprint into the card, for certificates."""
    blocks = find_blocks(model, named(gaussian.mean))
    card = replace(gaussian.card, frozen=frozen_fingerprint(model, blocks)) if signed else gaussian.card
    return replace(gaussian, frozen=FrozenState.of(model, blocks), card=card)


def check_frozen(gaussian: Gaussian, model: nn.Module) -> None:
    """`FrozenMismatch` if the network computes with anything else beside its blocks than when the Gaussian was made."""
    if gaussian.frozen.tensors or gaussian.frozen.digests:
        gaussian.frozen.check(model, find_blocks(model, named(gaussian.mean)))
