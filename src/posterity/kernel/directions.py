"""Posteriors that have let go of their examples: what is left of them are directions in weight space.

Predictions of few examples are computed from their gradients. For people who may not ship examples, nor what is computed from
one of them alone, sums over all of them do the same. A kernel over all outputs has I + BᵀKB = LLᵀ and BᵀKB = U D Uᵀ: the mean
moves along Gᵀw, and the prior's covariance falls by Σᵢ (g · qᵢ)² with qᵢ = P⁻¹GᵀB uᵢ / √(1 + dᵢ). Directions of small dᵢ can
be left out: the covariance is then slightly too wide, never too narrow. A kernel that outputs share is turned, which is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.errors import NotStorable
from posterity.kernel.gradients import Gradients, Positions, Rows
from posterity.kernel.jacobian import Jacobian
from posterity.kernel.kernels import SharedKernel
from posterity.kernel.last_layer import WeightsLatent
from posterity.kernel.latent import CoupledLatent, Latent, SharedLatent, symmetric
from posterity.kernel.linearised import FunctionPosterior, LinearisedNetwork, NetworkCentred

NO_EFFECT = 1e-12
"""A direction is left out if the data reduces less than this part of its prior variance."""


@dataclass(frozen=True, eq=False)
class Directions:
    """A block's directions: sums of gradients over examples, in the place of the gradients of examples."""

    d: Float[Tensor, "r outputs out inp"]

    def gram(
        self, other: Rows | Gradients | Positions, weights: Float[Tensor, "out inp"] | None
    ) -> Float[Tensor, "r one m outputs"]:
        """Inner products with gradients; directions of a kernel over all outputs have one output."""
        d = self._scaled(other, weights).flatten(0, 1)
        match other:
            case Rows():
                found = torch.einsum("rmo,mco->rmc", (d @ other.a.mT).mT, other.s)
            case Gradients():
                found = (d.flatten(1) @ other.g.flatten(2).flatten(0, 1).mT).unflatten(1, other.g.shape[:2])
            case Positions():
                found = torch.stack([other.along(one) for one in d])
        return found.double()[:, None]

    def shared_gram(
        self, other: Rows | Gradients | Positions, weights: Float[Tensor, "out inp"] | None
    ) -> Float[Tensor, "r m"]:
        """The mean over outputs of inner products between equal outputs."""
        d = self._scaled(other, weights)
        match other:
            case Rows():
                found = torch.einsum("rcom,mco->rm", d @ other.a.mT, other.s)
            case Gradients():
                found = d.flatten(1) @ other.g.flatten(1).mT
            case Positions():
                found = torch.stack([torch.einsum("ncto,nti,coi->n", other.s, other.a, one) for one in d])
        return found.double() / d.shape[1]

    def _scaled(self, other: Rows | Gradients | Positions, weights: Tensor | None) -> Tensor:
        d = self.d.to(other.tensors[0])
        return d if weights is None else d * weights.to(d)


@dataclass(frozen=True, eq=False)
class DirectionJacobian(Jacobian):
    """Directions in the place of examples."""

    blocks: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class DirectionsLatent(Latent):
    """The first direction moves the mean, the others reduce the prior's covariance."""

    def mean(self, cross: Float[Tensor, "r one m outputs"]) -> Float[Tensor, "m outputs"]:
        return cross[0, 0]

    def covariance(
        self, cross: Float[Tensor, "r one m outputs"], prior: Float[Tensor, "m outputs outputs"]
    ) -> Float[Tensor, "m outputs outputs"]:
        along = cross[1:, 0].transpose(0, 1)
        return symmetric(prior - along.mT @ along)

    def blocks(self, groups: Int[Tensor, "groups size"]) -> Float[Tensor, "groups side side"]:
        raise NotStorable("the fit was saved without its training examples: nothing can be said of them.")


def holds_examples(posterior: FunctionPosterior) -> bool:
    """Whether something of single examples is in it."""
    return not isinstance(posterior.of.train, DirectionJacobian)


def without_examples(
    posteriors: Sequence[FunctionPosterior], limit: int, dtype: torch.dtype
) -> list[FunctionPosterior]:
    """The same posteriors from sums over examples: in directions of this precision, `limit` numbers at most.

    Raises:
        NotStorable: if one has no such form, or not within the limit.
    """
    turned: dict[int, tuple[Tensor, LinearisedNetwork]] = {}
    found = []
    for posterior in posteriors:
        of, latent = posterior.of, posterior.latent
        match latent:
            case WeightsLatent():
                blocks: dict[str, Any] = {name: block.some(slice(0)) for name, block in of.train.blocks.items()}
                new: Latent = latent
                of = _emptied(of, blocks)
            case SharedLatent():
                if id(of) not in turned:
                    turned[id(of)] = _turned(of, limit, dtype)
                turn, of = turned[id(of)]
                new = _turned_latent(latent, turn)
            case CoupledLatent() if not getattr(latent, "shared", False):
                coefficients = _coefficients(latent, limit // len(posteriors), of.train)
                blocks = {n: Directions(_combined(b, coefficients).to(dtype)) for n, b in of.train.blocks.items()}
                new, of = DirectionsLatent(*(getattr(latent, f.name) for f in fields(Latent))), _emptied(of, blocks)
            case _:
                raise NotStorable(
                    f"a {type(latent).__name__} of a new head is computed from the training examples: save the fit with them, "
                    "learn by Laplace (inference=None), or hand down fit.posterior alone."
                )
        nothing = torch.zeros_like(latent.outputs)[: len(latent.outputs) if isinstance(new, SharedLatent) else 0]
        weights = new.weights if isinstance(new, SharedLatent) else nothing
        new = replace(new, gram=nothing[:0, :0], start=nothing, outputs=nothing, weights=weights)
        kind = NetworkCentred if isinstance(posterior, NetworkCentred) else FunctionPosterior
        found.append(kind(of, posterior.strength, new))
    return found


def _emptied(of: LinearisedNetwork, blocks: Mapping[str, Any]) -> LinearisedNetwork:
    """With nothing of single examples left."""
    return replace(of, train=DirectionJacobian(of.train.outputs[:0], blocks), targets=of.targets[:0])


def _coefficients(latent: CoupledLatent, limit: int, train: Jacobian) -> Float[Tensor, "n outputs r"]:
    """Of gradients: in the mean's direction, and in those that reduce the covariance most."""
    values, vectors = torch.linalg.eigh(latent.lower @ latent.lower.mT)
    known = (values - 1) / values
    size = sum(_size(block) for block in train.blocks.values())
    most = limit // size - 1
    if most < 1:
        raise NotStorable(
            f"{size:,} weights leave no room for directions within {limit:,} numbers: save with examples."
        )
    kept = known.argsort(descending=True)[: min(most, int((known > NO_EFFECT).sum()))]
    n, _, rank = latent.root.shape
    turned = (vectors[:, kept] / values[kept].sqrt()).view(n, rank, -1)
    return torch.cat([latent.weights[..., None], latent.root @ turned], -1)


def _combined(block: Any, coefficients: Float[Tensor, "n outputs r"]) -> Float[Tensor, "r one out inp"]:
    return torch.stack([block.combined(c) for c in coefficients.unbind(-1)])[:, None]


def _turned(of: LinearisedNetwork, limit: int, dtype: torch.dtype) -> tuple[Float[Tensor, "n n"], LinearisedNetwork]:
    """Examples mixed by the eigenvectors of their kernel: all that predicts stays the same, and no row is an example's."""
    assert isinstance(of.kernel, SharedKernel)
    body = {name: block for name, block in of.train.blocks.items() if name != of.kernel.head}
    n, size = of.train.count, sum(_size(b) * b.tensors[-1].shape[1] for b in body.values())
    if n * size > limit:
        raise NotStorable(
            f"without its {n} examples the fit would hold {n * size:,} numbers, beyond the limit of {limit:,}: save it with "
            "them, or hand down fit.posterior alone."
        )
    turn = torch.linalg.eigh(of.kernel.own(of.train, None)).eigenvectors
    blocks: dict[str, Any] = {}
    for name, block in of.train.blocks.items():
        if name in body:
            blocks[name] = Directions(torch.stack([block.mixed(c).to(dtype) for c in turn.mT]))
        else:
            assert isinstance(block, Rows)
            blocks[name] = Rows(turn.mT @ block.a, block.a.new_zeros(n, 1, 1))
    return turn, _emptied(of, blocks)


def _turned_latent(latent: SharedLatent, turn: Float[Tensor, "n n"]) -> SharedLatent:
    coupling = None
    if latent.coupling is not None:
        coupling = torch.linalg.cholesky(symmetric(turn.mT @ (latent.coupling @ latent.coupling.mT) @ turn))
    inner = symmetric(turn.mT @ latent.inner @ turn)
    return replace(latent, weights=turn.mT @ latent.weights, inner=inner, coupling=coupling)


def _size(block: Rows | Gradients | Positions) -> int:
    """Numbers of one output's gradient."""
    return block.g[0, 0].numel() if isinstance(block, Gradients) else block.a.shape[-1] * block.s.shape[-1]
