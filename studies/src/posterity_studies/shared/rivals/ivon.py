"""IVON (Shen et al. 2024), variational inference at the price of Adam: the library ivon-opt."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posterity_studies.shared.rivals.absent import library
from posterity_studies.shared.rivals.training import BATCH, DRAWS, Budget, Pair

OPTIONS = ((0.1, 1e3), (0.1, 1e4), (0.01, 1e3), (0.01, 1e4))
"""Learning rates, and precisions of the weights to start from (examples · hess_init), of which held-out examples choose."""


def outputs(
    model: nn.Module, data: Pair, budget: Budget, option: int, seed: int, asked: Sequence[Tensor]
) -> list[Tensor]:
    """Outputs [draws, n, classes] at the inputs asked for, after as many steps as the others take.

    Raises:
        Absent: without ivon-opt.
    """
    ivon = library("ivon", "ivon-opt")
    lr, precision = OPTIONS[option]
    twin = copy.deepcopy(model).train()
    x, y = data
    draw = torch.Generator().manual_seed(seed)
    optimiser = ivon.IVON(twin.parameters(), lr=lr, ess=len(x), hess_init=precision / len(x))
    cycle = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, budget.steps)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for _ in range(budget.steps):
            some = torch.randint(len(x), (BATCH,), generator=draw) if len(x) > BATCH else slice(None)
            with optimiser.sampled_params(train=True):
                optimiser.zero_grad()
                F.cross_entropy(twin(x[some]), y[some]).backward()
            optimiser.step()
            cycle.step()
        twin.eval()
        found: list[list[Tensor]] = [[] for _ in asked]
        with torch.no_grad():
            for _ in range(DRAWS):
                with optimiser.sampled_params():
                    for kept, z in zip(found, asked, strict=True):
                        kept.append(twin(z))
    return [torch.stack(draws) for draws in found]
