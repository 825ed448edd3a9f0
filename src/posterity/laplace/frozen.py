"""What a network computes with beside its blocks, as a fingerprint: certificates hold only if the data did not change it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from torch import nn

from posterity.blocks import Block


def frozen_fingerprint(model: nn.Module, blocks: Mapping[str, Block]) -> str:
    """16 hexadecimal digits for all parameters and buffers outside the blocks, empty if there are none.

    Counters of batches are left out: no output depends on them in evaluation mode.
    """
    inside = {full for block in blocks.values() for full in block.parameters.values()}
    shared = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if name in inside}
    found = hashlib.sha256()
    empty = True
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if id(tensor) in shared or name.endswith("num_batches_tracked"):
            continue
        empty = False
        values = tensor.detach().cpu().contiguous()
        found.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        found.update(values.flatten().double().numpy().tobytes())
    return "" if empty else found.hexdigest()[:16]
