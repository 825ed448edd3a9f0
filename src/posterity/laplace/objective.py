"""What training minimises: the mean NLL, and ½(θ−θ₀)ᵀP(θ−θ₀) of the prior with its gradient, cheap also for large networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posterity.algebra import Floored, Kronecker, Matrix, ScaledIdentity
from posterity.blocks import evaluating, find_blocks, named
from posterity.curvature import Likelihood
from posterity.curvature.batches import Batch, Workers
from posterity.curvature.hashes import fingerprint
from posterity.curvature.likelihoods import IGNORED
from posterity.errors import NoData, NotFinite
from posterity.gaussian import Gaussian
from posterity.laplace.source import Source

Objective = Callable[[Tensor, Tensor, int], Tensor]
"""(mean NLL, ½ quadratic of the prior, N) → what is minimised."""

CHEAP = 1 << 31
"""Multiplications of all blocks' products (a twentieth of a second) up to which every step takes them anew."""
TURNS = 8
"""Steps over which the products of a larger network are spread."""


class PriorPenalty:
    """½(θ−θ₀)ᵀP(θ−θ₀) of a network's weights, with its gradient, at the price of one product a block.

    For a training loop of your own. It belongs beside the *summed* negative log-likelihood: divide it by the number of examples
    beside a mean loss. It may be called on the network's present weights, or on others by name, as `torch.func` has them.

    `train` uses `forces`. With `every` above 1, each step takes the product with P for a part of the blocks, all of them once in
    so many steps. The others use what they had last, moved along by the diagonal of P: P(θ_k−θ₀) + diag(P)·(θ−θ_k). The gradient
    is exact where the weights stand still, so the mode is the same; on the way it lags by fewer than `every` steps. No noise
    comes in, so nothing is to be kept out of an optimiser's second moments.

    Args:
        prior: a Gaussian over blocks of the network; other weights are left free.
        model: the network.
        every: in how many steps `forces` takes each block's product once; None chooses by the size of the network.

    Example:
        >>> penalty = pt.PriorPenalty(prior, model)
        >>> loss = cross_entropy(model(x), y) + penalty() / examples
    """

    def __init__(self, prior: Gaussian, model: nn.Module, every: int | None = 1) -> None:
        like = next(model.parameters())
        self.prior = prior.to(like.device, like.dtype)
        self.blocks = find_blocks(model, named(prior.mean))
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        costs = {name: _cost(matrix) for name, matrix in self.prior.precision.items()}
        self.every = every or (1 if sum(costs.values()) <= CHEAP else TURNS)
        self.turn = _turns(costs, self.every)
        self.diagonal: dict[str, Tensor] = {}
        if self.every > 1:
            self.diagonal = {
                name: _diagonal(self.prior.precision[name]).to(like) for name, cost in costs.items() if cost
            }
        self.step = 0
        self.rest: dict[str, Tensor] = {}
        """P(θ_k−θ₀) − diag(P)·(θ_k−θ₀) of each block, at the step k when its turn was."""

    def __call__(self, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """The penalty in nats, of these weights by name, or of the network's own."""
        found = self.parameters if parameters is None else self.parameters | dict(parameters)
        terms = []
        for name, block in self.blocks.items():
            own = {role: found[full] for role, full in block.parameters.items()}
            shift = block.layer.read(own) - self.prior.mean[name]
            # The gradient of ½<D, PD> is PD: hand it over instead of letting autograd go through P again.
            force = self.prior.precision[name].matmul(shift.detach())
            terms.append((shift * force).sum() - 0.5 * (shift.detach() * force).sum())
        return torch.stack(terms).sum()

    @torch.no_grad()
    def forces(self, exact: bool = False) -> tuple[dict[str, Tensor], float]:
        """P(θ−θ₀) by block, and ½(θ−θ₀)ᵀP(θ−θ₀). Each call is a step, unless all are to be `exact`."""
        found: dict[str, Tensor] = {}
        halves = []
        for name, block in self.blocks.items():
            own = {role: self.parameters[full].detach() for role, full in block.parameters.items()}
            shift = block.layer.read(own) - self.prior.mean[name]
            halves.append(torch.dot(shift.flatten(), self._force(name, shift, exact, found).flatten()).double())
        self.step += not exact
        return found, 0.5 * float(torch.stack(halves).sum())

    def _force(self, name: str, shift: Tensor, exact: bool, found: dict[str, Tensor]) -> Tensor:
        precision = self.prior.precision[name]
        if exact or self.every == 1 or isinstance(precision, ScaledIdentity):
            found[name] = precision.matmul(shift)
        elif name not in self.rest or self.turn[name] == self.step % self.every:
            found[name] = precision.matmul(shift)
            self.rest[name] = torch.addcmul(found[name], self.diagonal[name], shift, value=-1)
        else:
            found[name] = torch.addcmul(self.rest[name], self.diagonal[name], shift)
        return found[name]

    @torch.no_grad()
    def pull(self, forces: dict[str, Tensor], strength: float) -> None:
        """Add `strength` times the forces to the gradients of the network's parameters."""
        for name, force in forces.items():
            block = self.blocks[name]
            for role, part in block.layer.write(force).items():
                p = self.parameters[block.parameters[role]]
                part = part.reshape(p.shape).to(p.dtype)
                if p.grad is None:
                    p.grad = part * strength
                else:
                    p.grad.add_(part, alpha=strength)

    def fingerprint(self) -> str:
        """A few letters that tell one prior from another."""
        parts: list[str | Tensor] = []
        for name, mean in self.prior.mean.items():
            precision = self.prior.precision[name]
            parts += [f"{name} {type(precision).__name__} {float(precision.trace()):.5g}", mean.float()]
        return fingerprint(parts, digits=12)

    def state(self) -> dict[str, Any]:
        """What the next step depends on."""
        return {"step": self.step, "rest": {name: x.clone() for name, x in self.rest.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        rest = {name: x for name, x in state["rest"].items() if name in self.blocks}
        if any(tuple(x.shape) != self.blocks[name].shape for name, x in rest.items()):
            raise ValueError("the prior's forces have another shape")
        like = next(iter(self.parameters.values()))
        self.step, self.rest = int(state["step"]), {name: x.to(like) for name, x in rest.items()}


def map_objective(nll: Tensor, half_quadratic: Tensor, count: int) -> Tensor:
    """−ln posterior, divided by N: the prior counts once per data set, not once per batch."""
    return nll + half_quadratic / count


class Goal:
    """The objective of a batch over all workers, with its gradient: what an optimiser calls, once or as often as it likes."""

    def __init__(
        self,
        model: nn.Module,
        parameters: list[nn.Parameter],
        likelihood: Likelihood,
        penalty: PriorPenalty | None,
        objective: Objective,
        source: Source,
        workers: Workers,
        clip: float | None,
    ) -> None:
        self.model, self.parameters, self.likelihood, self.penalty = model, parameters, likelihood, penalty
        self.objective, self.source, self.workers, self.clip = objective, source, workers, clip
        self.exact = False
        """Whether every call takes the prior's force anew for all blocks, as a line search needs it."""

    def take(self, batch: Batch, device: torch.device) -> None:
        """The coming batch, of which this worker sees its part."""
        if self.source.number == 0 and (problem := batch.not_finite()):
            raise NotFinite(problem)
        if self.source.dealt:
            self.count, self.batch = int(self.workers.total(batch.count)), batch.to(device)
        else:
            self.count, self.batch = batch.count, batch.part(self.workers.rank, self.workers.size).to(device)
        self.seen: list[tuple[float, float, float]] = []
        """(objective, mean NLL, accuracy) each time the optimiser asked: first of all before its step."""

    def __call__(self) -> float:
        for p in self.parameters:
            p.grad = None
        outputs, targets = self.likelihood.check(self.batch.outputs(self.model), self.batch.targets)
        self.outputs = outputs.numel() // max(1, len(outputs))
        nll = self.likelihood.nll(outputs, targets) / self.count
        forces, value = ({}, 0.0) if self.penalty is None else self.penalty.forces(self.exact)
        # The objective tells how much the prior counts; its gradient is at hand and need not be found by autograd.
        half = torch.full_like(nll, value, requires_grad=self.penalty is not None)
        right = _right(outputs, targets)
        size = self.workers.size
        if size > 1:
            # Values of the whole batch, everywhere; gradients of this worker's part, which add up below.
            both = torch.stack((nll.detach().double(), torch.as_tensor(right, device=nll.device).double()))
            total = self.workers.sum(both)
            nll, right = nll + (total[0].to(nll) - nll).detach(), float(total[1])
        loss = self.objective(nll, half, self.source.count)
        found = loss.item()
        if not math.isfinite(found):
            problem = self.batch.not_finite()
            raise NotFinite(
                problem
                or f"the loss of batch {self.batch.index} in epoch {self.source.number} is {found}: lower lr, or clip."
            )
        loss.backward()
        if size > 1:
            for p in self.parameters:
                if p.grad is not None:
                    p.grad = self.workers.sum(p.grad)
        if self.penalty is not None and half.grad is not None:
            self.penalty.pull(forces, half.grad.item())
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.seen.append((found, nll.item(), right / self.count))
        return found


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], likelihood: Likelihood) -> tuple[float, float]:
    """Mean NLL and accuracy (NaN for regression) in evaluation mode."""
    sums = Sums()
    device = next(model.parameters()).device
    with evaluating(model):
        for batch in batches:
            outputs, targets = likelihood.check(batch.to(device).outputs(model), batch.targets.to(device))
            nll = float(likelihood.nll(outputs, targets)) / batch.count
            sums.add(batch.count, nll, nll, _right(outputs, targets) / batch.count)
    if not sums.count:
        raise NoData("the validation data held no example.")
    return sums.nll, sums.accuracy


class Sums:
    """Means over an epoch, each batch by its size."""

    def __init__(self) -> None:
        self.count, self.totals = 0, [0.0, 0.0, 0.0]

    def add(self, count: int, *means: float) -> None:
        self.count += count
        self.totals = [total + count * mean for total, mean in zip(self.totals, means, strict=True)]

    @property
    def objective(self) -> float:
        return self.totals[0] / self.count

    @property
    def nll(self) -> float:
        return self.totals[1] / self.count

    @property
    def accuracy(self) -> float:
        return self.totals[2] / self.count


def _right(outputs: Tensor, targets: Tensor) -> float:
    """How many examples are right, where targets are classes; of an example with many targets, the share of those that count."""
    if targets.is_floating_point():
        return math.nan
    counted = (targets != IGNORED).flatten(1) if targets.ndim > 1 else torch.ones_like(targets, dtype=torch.bool)
    right = (outputs.argmax(-1) == targets).view_as(counted) & counted
    if targets.ndim == 1:
        return float(right.sum())
    return float((right.sum(1) / counted.sum(1).clamp_min(1)).sum())


def _cost(precision: Matrix) -> int:
    """Multiplications of a product with a precision."""
    out, inp = precision.shape
    precision = precision.curvature if isinstance(precision, Floored) else precision
    if isinstance(precision, ScaledIdentity):
        return 0
    return out * inp * (out + inp) * (1 if isinstance(precision, Kronecker) else 2)


def _turns(costs: dict[str, int], every: int) -> dict[str, int]:
    """At which of `every` steps each block has its turn: the dearest first, each to the step that has least so far."""
    loads = [0] * every
    turn = {}
    for name in sorted(costs, key=lambda n: -costs[n]):
        turn[name] = min(range(every), key=lambda i: loads[i])
        loads[turn[name]] += costs[name]
    return turn


def _diagonal(precision: Matrix) -> Tensor:
    """The diagonal of a precision, as a matrix."""
    curvature = precision.curvature if isinstance(precision, Floored) else precision
    if isinstance(curvature, Kronecker):
        share, floor = (precision.share, precision.floor) if isinstance(precision, Floored) else (1.0, 0.0)
        return torch.outer(share * curvature.left.diagonal(), curvature.right.diagonal()).add_(floor)
    eye = [torch.eye(n, dtype=precision.dtype, device=precision.device) for n in precision.shape]
    return precision.diagonal_in(eye[0], eye[1])
