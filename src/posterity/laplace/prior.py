"""The prior of a network: the same precision for every weight, a learned one fitted to its blocks, and its pull in training."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.algebra import (
    FlooredMatrix,
    JointEigen,
    Kronecker,
    LeadingDirections,
    Matrix,
    ScaledIdentity,
    leading,
    scaled_identity,
)
from posterity.blocks import Block, Selection, find_blocks, named, read_blocks
from posterity.data.hashes import fingerprint
from posterity.data.provenance import Provenance, past_of
from posterity.errors import BlockMismatch, NoBlocks
from posterity.gaussian import Card, Gaussian
from posterity.gaussian.gaussian import with_frozen

log = logging.getLogger("posterity")
CHEAP = 1 << 31
"""Multiplications of all blocks' products (a twentieth of a second) up to which every step takes them again."""
TURNS = 8
"""Steps over which the products of a larger network are spread."""


def isotropic(
    model: nn.Module,
    precision: float = 1.0,
    mean: Literal["zero", "model"] | Mapping[str, Tensor] = "zero",
    *,
    blocks: Selection = None,
    vouched: str | None = None,
) -> Gaussian:
    """N(mean, I/precision) over a network's blocks.

    Weights and matrices have an unknown past, unless `pt.train` left them: a certificate would refuse such a prior. The same
    goes for frozen layers that were trained.

    Args:
        model: the network; it is only looked at.
        precision: multiplies ½‖θ − mean‖² next to the *summed* negative log-likelihood. A PyTorch weight decay λ on a mean
            loss over N examples is precision = λ·N.
        mean: "zero" (and zero means zero), "model" for its present weights, or a matrix for each block.
        blocks: which layers, by name, type or predicate; all of them by default.
        vouched: where weights or matrices of unknown past come from ("initialised at random"); certificates repeat it.
    Returns:
        A `Gaussian` over the network's blocks.
    Raises:
        UnsupportedLayer: if a trainable layer has no matrix form and `blocks` does not leave it out.

    Example:
        >>> prior = pt.isotropic(model, precision=10.0)
        >>> pt.train(model, data, prior)
    """
    if not precision > 0:
        raise ValueError(f"a prior precision is positive, not {precision}")
    found = find_blocks(model, blocks)
    present = read_blocks(model, found)
    match mean:
        case "zero":
            centre = {name: torch.zeros_like(matrix) for name, matrix in present.items()}
        case "model":
            centre = present
        case _:
            if isinstance(mean, str):
                raise ValueError(f'mean is "zero", "model" or a mapping of matrices, not "{mean}"')
            if missing := set(present) - set(mean):
                raise BlockMismatch(f"the mean has no matrix for the blocks {sorted(missing)}.")
            centre = {name: mean[name].detach().clone() for name in present}
    identities = {name: scaled_identity(precision, block.shape) for name, block in found.items()}
    provenance = past_of(model, centre, beside=True)
    if mean == "model":
        provenance = past_of(model, strict=True)
    elif not isinstance(mean, str) and any(bool(matrix.any()) for matrix in centre.values()):
        provenance = provenance.joined(Provenance.unknown("the matrices given as its mean come from somewhere"))
    names_and_shapes = ";".join(f"{name}:{block.shape[0]}x{block.shape[1]}" for name, block in found.items())
    card = Card(
        precision=precision,
        architecture=fingerprint([names_and_shapes], digits=16),
        provenance=provenance if vouched is None else provenance.vouched(vouched),
    )
    return with_frozen(Gaussian(centre, identities, card).with_provenance(card.provenance), model)


def fitted(prior: Gaussian, model: nn.Module, head_precision: float = 1.0, *, new_head: bool | None = None) -> Gaussian:
    """The prior as this network needs it: blocks in the network's order, and a new head where the head has another size.

    The last block may differ in its number of outputs: it has no counterpart in the prior and gets an isotropic one around
    zero, which is said in the log. `new_head=True` gives it that in any case, `False` never. Any other difference is a
    `BlockMismatch`.
    """
    names = {name for name, _ in model.named_modules()}
    head = head_name(model)
    known_names = [name for name in prior.blocks if name in names or name.rpartition(".")[0] in names]
    try:
        found = find_blocks(model, named([*known_names, *([head] if head else [])]))
    except NoBlocks:
        found = {}
    mean, precision = {}, {}
    for name, block in found.items():
        known = prior.precision[name].shape if name in prior.mean else None
        if known == block.shape and not (new_head and name == head):
            mean[name], precision[name] = prior.mean[name], prior.precision[name]
        elif name == head and new_head is not False and (known is None or known[1] == block.shape[1]):
            log.info('block "%s" is a new head: isotropic prior around zero, precision %g', name, head_precision)
            mean[name] = torch.zeros(block.shape, dtype=next(model.parameters()).dtype)
            precision[name] = scaled_identity(head_precision, block.shape)
        else:
            raise BlockMismatch(mismatch(name, block, known))
    if extra := [name for name in prior.blocks if name not in found]:
        raise BlockMismatch(
            f"the prior has blocks {extra} that the model has not (its blocks are {list(found)}): "
            f"drop them with prior.without({', '.join(map(repr, extra))})."
        )
    return replace(prior, mean=mean, precision=precision).with_provenance(prior.provenance)


def head_name(model: nn.Module) -> str | None:
    """The last linear layer: what a new task replaces."""
    linear = [
        name for name, module in model.named_modules() if type(module) is nn.Linear and module.weight.requires_grad
    ]
    return linear[-1] if linear else None


def mismatch(name: str, block: Block, known: tuple[int, int] | None) -> str:
    """How a model's block differs from the prior's, and what to do about it: the text of an error."""
    if known is None:
        return f'block "{name}" of the model has no counterpart in the prior: refit the prior on this architecture.'
    text = f'block "{name}" is {known[0]}×{known[1]} in the prior and {block.shape[0]}×{block.shape[1]} in the model'
    if known[0] == block.shape[0] and known[1] == block.shape[1] + 1:
        text += ": the model's layer has no bias"
    return f'{text}. Refit the prior, or drop the block with prior.without("{name}").'


class PriorPenalty:
    """½(θ−θ₀)ᵀP(θ−θ₀) of a network's weights, with its gradient, at the price of one product a block.

    For a training loop of your own. It belongs beside the *summed* negative log-likelihood: divide it by the number of examples
    beside a mean loss. It may be called on the network's present weights, or on others by name, as `torch.func` has them.

    `train` uses `forces`. With `every` above 1, each step takes the product with P for a part of the blocks, all of them once in
    so many steps. The others use what they had last, moved along by an approximation A of P: P(θ_k−θ₀) + A(θ−θ_k). That is P in
    its leading eigenvectors where they are known, else its diagonal, with which training may run away from the mode. The gradient
    is exact where the weights stand still, so the mode is the same; on the way it lags by fewer than `every` steps. No noise
    comes in, so nothing is to be kept out of an optimiser's second moments.

    Args:
        prior: a Gaussian over blocks of the network; other weights are left free.
        model: the network.
        every: in how many steps `forces` takes each block's product once; None chooses by the size of the network.

    Example:
        >>> penalty = pt.laplace.PriorPenalty(prior, model)
        >>> loss = cross_entropy(model(x), y) + penalty() / examples
    """

    def __init__(self, prior: Gaussian, model: nn.Module, every: int | None = 1) -> None:
        like = next(model.parameters())
        self.prior = prior.to(like.device, like.dtype)
        self.blocks = find_blocks(model, named(prior.mean))
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        costs = {name: _cost(matrix) for name, matrix in self.prior.precision.items()}
        self.every = every or refresh(prior)
        self.turn = _turns(costs, self.every)
        self.nearby: dict[str, Tensor | LeadingDirections] = {}
        if self.every > 1:
            self.nearby = {
                name: leading(prior.precision[name], like) or diagonal(self.prior.precision[name]).to(like)
                for name, cost in costs.items()
                if cost
            }
        self.step = 0
        self.rest: dict[str, Tensor] = {}
        """P(θ_k−θ₀) − A(θ_k−θ₀) of each block, at the step k when its turn was."""

    def __call__(self, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """The penalty in nats, of these weights by name, or of the network's own."""
        found = self.parameters if parameters is None else self.parameters | dict(parameters)
        terms = []
        for name, shift in self._shifts(found):
            # The gradient of ½<D, PD> is PD: hand it over instead of letting autograd go through P again.
            force = self.prior.precision[name].matmul(shift.detach())
            terms.append((shift * force).sum() - 0.5 * (shift.detach() * force).sum())
        return torch.stack(terms).sum()

    @torch.no_grad()
    def forces(self, exact: bool = False) -> tuple[dict[str, Tensor], float]:
        """P(θ−θ₀) by block, and ½(θ−θ₀)ᵀP(θ−θ₀). Each call is a step, unless all are to be `exact`."""
        found: dict[str, Tensor] = {}
        halves = []
        for name, shift in self._shifts(self.parameters):
            halves.append(torch.dot(shift.flatten(), self._force(name, shift, exact, found).flatten()).double())
        self.step += not exact
        return found, 0.5 * float(torch.stack(halves).sum())

    def _shifts(self, parameters: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """θ−θ₀ of each block."""
        for name, block in self.blocks.items():
            own = {role: parameters[full] for role, full in block.parameters.items()}
            yield name, block.layer.read(own) - self.prior.mean[name]

    def _force(self, name: str, shift: Tensor, exact: bool, found: dict[str, Tensor]) -> Tensor:
        precision = self.prior.precision[name]
        if exact or self.every == 1 or isinstance(precision, ScaledIdentity):
            found[name] = precision.matmul(shift)
        elif name not in self.rest or self.turn[name] == self.step % self.every:
            found[name] = precision.matmul(shift)
            self.rest[name] = _plus(found[name], self.nearby[name], shift, -1)
        else:
            found[name] = _plus(self.rest[name], self.nearby[name], shift)
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


def _plus(start: Tensor, nearby: Tensor | LeadingDirections, shift: Tensor, sign: int = 1) -> Tensor:
    """start ± A·shift."""
    if isinstance(nearby, LeadingDirections):
        return start.add(nearby.power(1.0, 0.0, shift), alpha=sign)
    return torch.addcmul(start, nearby, shift, value=sign)


def refresh(prior: Gaussian) -> int:
    """In how many steps each block's product with its precision is taken once: 1, or more where all of them are dear."""
    return 1 if sum(map(_cost, prior.precision.values())) <= CHEAP else TURNS


def _cost(precision: Matrix) -> int:
    """Multiplications of a product with a precision."""
    out, inp = precision.shape
    precision = precision.curvature if isinstance(precision, FlooredMatrix) else precision
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


def diagonal(precision: Matrix) -> Tensor:
    """The diagonal of a precision, as a matrix."""
    curvature = precision.curvature if isinstance(precision, FlooredMatrix) else precision
    share, floor = (precision.share, precision.floor) if isinstance(precision, FlooredMatrix) else (1.0, 0.0)
    if isinstance(curvature, Kronecker):
        return torch.outer(share * curvature.left.diagonal(), curvature.right.diagonal()).add_(floor)
    if isinstance(curvature, JointEigen):
        left, right = curvature.left.matrix.square(), curvature.right.matrix.square()
        return (left @ curvature.values.to(left) @ right.mT.to(left)).mul_(share).add_(floor)
    eye = [torch.eye(n, dtype=precision.dtype, device=precision.device) for n in precision.shape]
    return precision.diagonal_in(eye[0], eye[1])
