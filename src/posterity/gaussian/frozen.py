"""What a network computes with beside its blocks: norm statistics, frozen weights, other tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from posterity.blocks import Block
from posterity.data.hashes import fingerprint
from posterity.data.weights import attributes
from posterity.errors import FrozenMismatch

CARRIED = 64 * 2**20
"""Bytes of frozen tensors that a Gaussian, and its file, carries. Buffers (norm statistics) come first: frozen weights are
carried only if all of them fit beside the buffers."""


@dataclass(frozen=True, eq=False)
class FrozenState:
    """The tensors of a network outside its blocks, as they were when a Gaussian was made. Empty where that is not known.

    The same blocks in a network with other norm statistics are another function. So a Gaussian carries the rest as well: as
    tensors while they are small, else as digests, which can be compared and not restored.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """On the CPU, by name."""
    digests: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """(dtype, digest) of those that were too large to carry."""

    @classmethod
    @torch.no_grad()
    def of(cls, model: nn.Module, blocks: Mapping[str, Block]) -> FrozenState:
        """The present state of a network."""
        weights = {id(p) for p in model.parameters()}
        found = list(beside(model, blocks))
        tensors: dict[str, Tensor] = {}
        digests: dict[str, tuple[str, str]] = {}
        left = CARRIED
        for frozen_weights in (False, True):
            group = [(name, x) for name, x in found if (id(x) in weights) is frozen_weights]
            size = sum(x.nbytes for _, x in group)
            if size <= left:
                left -= size
                tensors |= {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in group}
            else:
                digests |= {name: (dtype_name(x), digest_of(x)) for name, x in group}
        return cls(tensors, digests)

    @torch.no_grad()
    def check(self, model: nn.Module, blocks: Mapping[str, Block]) -> None:
        """`FrozenMismatch` if the network computes with anything else than this Gaussian was made with.

        Precision counts no further than what was kept.
        """
        present = dict(beside(model, blocks))
        inside = _inside(model, blocks)

        def same(name: str) -> bool:
            if (now := present.get(name)) is None:
                return False
            if name in self.tensors:
                return now.shape == self.tensors[name].shape and _equal(now, self.tensors[name])
            dtype, digest = self.digests[name]
            return digest_of(now.to(getattr(torch, dtype))) == digest

        odd = [name for name in (*self.tensors, *self.digests) if name not in inside and not same(name)]
        if not odd:
            return
        what = f'"{odd[0]}"' + (f" and {len(odd) - 1} others" if len(odd) > 1 else "")
        if all(name in self.tensors for name in odd):
            remedy = "Write the prior into the network first, prior.write_to(model): it restores them, and sets the weights too."
        else:
            limit = f"{CARRIED // 2**20} MiB"
            remedy = f"It was too large to carry (limit {limit}): load the network's own weights from where they came."
        raise FrozenMismatch(
            f"{what} of the network (norm statistics, frozen weights or other tensors beside the blocks) is not what the "
            f"Gaussian was made with: the same blocks would compute something else. {remedy}"
        )

    @torch.no_grad()
    def write_to(self, model: nn.Module, blocks: Mapping[str, Block]) -> None:
        """Set what is carried, in place. What belongs to a block of the network stays."""
        present, inside = dict(beside(model, blocks)), _inside(model, blocks)
        wanted = {name: value for name, value in self.tensors.items() if name not in inside}
        for name, value in wanted.items():
            if name not in present or present[name].shape != value.shape:
                raise FrozenMismatch(
                    f'the Gaussian carries "{name}" of shape {tuple(value.shape)}, and the network has nothing of that name and '
                    "shape: build the network that it was made with."
                )
        for name, value in wanted.items():
            present[name].copy_(value)


def beside(model: nn.Module, blocks: Mapping[str, Block]) -> Iterator[tuple[str, Tensor]]:
    """All tensors outside the blocks, plain attributes of modules included.

    Counters of batches are left out: no output depends on them in evaluation mode.
    """
    inside = _inside(model, blocks)
    shared = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if name in inside}
    for name, tensor in (*model.named_parameters(), *model.named_buffers(), *attributes(model)):
        if id(tensor) not in shared and not name.endswith("num_batches_tracked"):
            yield name, tensor


def frozen_fingerprint(model: nn.Module, blocks: Mapping[str, Block]) -> str:
    """16 hexadecimal digits for all tensors outside the blocks, plain attributes of modules included; empty if there are none."""
    parts: list[str | Tensor] = []
    for name, tensor in beside(model, blocks):
        parts += [f"{name} {tuple(tensor.shape)} {tensor.dtype}", tensor]
    return fingerprint(parts, digits=16) if parts else ""


def dtype_name(x: Tensor) -> str:
    """float32 for torch.float32."""
    return str(x.dtype).removeprefix("torch.")


def digest_of(x: Tensor) -> str:
    """A tensor's shape and numbers as 32 digits."""
    return fingerprint([str(tuple(x.shape)), x])


def _inside(model: nn.Module, blocks: Mapping[str, Block]) -> set[str]:
    return {full for block in blocks.values() for full in block.parameters.values()}


def _equal(now: Tensor, kept: Tensor) -> bool:
    """Whether both are the same, in the coarser of their two precisions; NaN is as good as itself."""
    coarse = min((now.dtype, kept.dtype), key=lambda dtype: dtype.itemsize)
    a, b = (x.detach().cpu().to(coarse) for x in (now, kept))
    return bool(torch.equal(a, b) or ((a == b) | ((a != a) & (b != b))).all())
