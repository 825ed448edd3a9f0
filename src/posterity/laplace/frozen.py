"""What a network computes with beside its blocks, as a fingerprint: certificates hold only if the data did not change it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from posterity.blocks import Block
from posterity.curvature.past import attributes
from posterity.fingerprint import fingerprint


def frozen_fingerprint(model: nn.Module, blocks: Mapping[str, Block]) -> str:
    """16 hexadecimal digits for all tensors outside the blocks, plain attributes of modules included; empty if there are none.

    Counters of batches are left out: no output depends on them in evaluation mode.
    """
    inside = {full for block in blocks.values() for full in block.parameters.values()}
    shared = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if name in inside}
    parts: list[str | Tensor] = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers(), *attributes(model)):
        if id(tensor) in shared or name.endswith("num_batches_tracked"):
            continue
        parts += [f"{name} {tuple(tensor.shape)} {tensor.dtype}", tensor]
    return fingerprint(parts, digits=16) if parts else ""
