"""Plain training, and the rivals that are nothing but training: fine-tuning, L2-SP, temperature scaling, dropout."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair = tuple[Tensor, Tensor]
Penalty = Callable[[nn.Module], Tensor]
"""Added to the mean loss."""
Loss = Callable[[Tensor, Tensor], Tensor]

BATCH = 128
PULLS = (0.001, 0.01, 0.1, 1.0)
"""Strengths of L2-SP's pull to the start, beside a mean loss; its authors search the same decades."""
NEW_HEAD = 0.01
"""L2-SP's decay of a new head, as its authors fix it."""
RATES = (0.1, 0.3, 0.5)
DRAWS = 30


@dataclass(frozen=True)
class Budget:
    """What every network may spend on a task: steps of Adam, and the peak of their one-cycle rate."""

    steps: int
    lr: float


@dataclass(frozen=True, eq=False)
class Parts:
    """Four fifths to train with and a fifth to choose by, for those who need one."""

    kept: Pair
    held: Pair

    @classmethod
    def of(cls, data: Pair, seed: int) -> Parts:
        """Every fifth example of the shuffled classes, so that all classes stay among those kept."""
        x, y = data
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        if not y.is_floating_point():
            order = order[y[order].argsort(stable=True)]
        held = torch.zeros(len(y), dtype=torch.bool)
        held[order[2::5]] = True
        return cls((x[~held], y[~held]), (x[held], y[held]))


def trained(
    model: nn.Module,
    data: Pair,
    budget: Budget,
    seed: int,
    penalty: Penalty | None = None,
    decay: float = 0.0,
    loss: Loss = F.cross_entropy,
) -> nn.Module:
    """A copy of the network after so many steps of Adam; the global randomness stays as it was."""
    twin = copy.deepcopy(model).train()
    x, y = data
    draw = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(twin.parameters(), budget.lr, weight_decay=decay)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, budget.lr, total_steps=budget.steps)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for _ in range(budget.steps):
            some = torch.randint(len(x), (BATCH,), generator=draw) if len(x) > BATCH else slice(None)
            value = loss(twin(x[some]), y[some])
            if penalty is not None:
                value = value + penalty(twin)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            cycle.step()
    return twin.eval()


@torch.no_grad()
def probabilities(model: nn.Module, x: Tensor, temperature: float = 1.0) -> Tensor:
    return (outputs(model, x) / temperature).softmax(-1)


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part) for part in x.split(500)])


def nll(probs: Tensor, y: Tensor) -> float:
    return float(F.nll_loss(probs.clamp_min(1e-30).log(), y))


def temperature(logits: Tensor, y: Tensor) -> float:
    """The temperature of least NLL on held-out logits (Guo et al. 2017), between 1/20 and 20."""
    candidates = torch.logspace(-1.3, 1.3, 261)
    losses = torch.stack([F.cross_entropy(logits / t, y) for t in candidates])
    return float(candidates[losses.argmin()])


def towards_start(start: nn.Module, pull: float, new_head: bool) -> Penalty:
    """L2-SP (Li et al. 2018): a spring from every weight to where it started; a new head's to zero."""
    anchors = [p.detach().clone() for p in start.parameters()]

    def penalty(model: nn.Module) -> Tensor:
        parameters = list(model.parameters())
        body = len(parameters) - (2 if new_head else 0)
        total = sum((p - a).square().sum() for p, a in zip(parameters[:body], anchors[:body], strict=True))
        head = sum((p.square().sum() for p in parameters[body:]), torch.zeros(()))
        return pull / 2 * torch.as_tensor(total) + NEW_HEAD / 2 * head

    return penalty


def with_dropout(model: nn.Sequential, rate: float) -> nn.Sequential:
    """A copy with dropout before every linear layer (Gal and Ghahramani 2016)."""
    layers: list[nn.Module] = []
    for layer in copy.deepcopy(model):
        if isinstance(layer, nn.Linear):
            layers.append(nn.Dropout(rate))
        layers.append(layer)
    return nn.Sequential(*layers)


@torch.no_grad()
def dropped(model: nn.Module, x: Tensor, draws: int = DRAWS) -> Tensor:
    """Outputs [draws, n, …] with dropout left on: the same draws whenever it is asked."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.train()
        found = torch.stack([model(x) for _ in range(draws)])
        model.eval()
    return found


def least(options: Sequence[float], of: Callable[[float], float]) -> float:
    """The option of least held-out loss; what is not a number loses."""
    scores = {option: of(option) for option in options}
    return min(scores, key=lambda option: math.inf if math.isnan(scores[option]) else scores[option])
