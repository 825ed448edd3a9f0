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
            x = x.contiguous().clone()
            dist.all_reduce(x)
        return x

    def total(self, x: float) -> float:
        return float(self.sum(torch.tensor(x, dtype=torch.float64)))

    def gather(self, x: Tensor) -> list[Tensor]:
        """Every worker's tensor (all of one shape), in the order of ranks."""
        if self.size == 1:
            return [x]
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous())
        return parts
