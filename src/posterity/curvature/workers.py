"""Many processes, one result: the little that estimators need of `torch.distributed`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Workers:
    """This process and its fellows. Alone, every method is the identity."""

    rank: int = 0
    size: int = 1

    @classmethod
    def here(cls) -> Workers:
        """Those started by `torchrun` and joined by `init_process_group`, or just this one."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def sum(self, x: Tensor) -> Tensor:
        if self.size > 1:
            there = x.to(_meeting_place(x), copy=True).contiguous()
            dist.all_reduce(there)
            x = there.to(x.device)
        return x

    def total(self, x: float) -> float:
        return float(self.sum(torch.tensor(x, dtype=torch.float64)))

    def first(self, x: int) -> int:
        """The first worker's number, on all."""
        return int(self.gather(torch.tensor(x, dtype=torch.int64))[0])

    def gather(self, x: Tensor) -> list[Tensor]:
        """Every worker's tensor (all of one shape), in the order of ranks."""
        if self.size == 1:
            return [x]
        there = x.to(_meeting_place(x)).contiguous()
        parts = [torch.empty_like(there) for _ in range(self.size)]
        dist.all_gather(parts, there)
        return [part.to(x.device) for part in parts]


def _meeting_place(x: Tensor) -> torch.device:
    """NCCL only moves what is on a GPU, and a worker without a batch has nothing there."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else x.device
