"""Bayes' rule for structured Gaussians: prior and curvature become the posterior, each counted by its scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posterity.algebra import (
    FlooredMatrix,
    JointEigen,
    Kronecker,
    KroneckerSum,
    Matrix,
    RotatedMatrix,
    ScaledIdentity,
    as_floored,
    frame_error,
    in_one_frame,
    in_turned_frame,
    is_large,
    nearest,
    relative_error,
)
from posterity.blocks import find_blocks, named, read_blocks
from posterity.brief import brief
from posterity.curvature import Curvature
from posterity.data.provenance import Provenance, matrices_digest, past_of, together
from posterity.deprecated import was
from posterity.errors import BlockMismatch, NoBlocks
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import with_frozen
from posterity.version import __version__

PerBlock = float | Mapping[str, float]


@dataclass(frozen=True)
class Scales:
    """The posterior precision is (β · curvature + α · prior) / τ. One number for all blocks, or one for each.

    (cα, cβ, cτ) gives the same posterior for every c: with α = τ = 1 nothing is lost.
    """

    __repr__ = brief

    alpha: PerBlock = 1.0
    beta: PerBlock = 1.0
    temperature: PerBlock = 1.0
    provenance: Provenance = field(default_factory=Provenance.none, repr=False, compare=False)
    """What they were tuned with; nothing, if they were given."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "temperature"):
            value = getattr(self, name)
            for number in value.values() if isinstance(value, Mapping) else (value,):
                lowest = 0 if name == "beta" else math.nextafter(0, 1)
                if not (lowest <= number < math.inf):
                    raise ValueError(
                        f"{name} must be {'non-negative' if name == 'beta' else 'positive'} and finite, not {number}"
                    )

    def of(self, block: str) -> tuple[float, float, float]:
        """(α, β, τ) of one block."""
        return tuple(self._one(name, block) for name in ("alpha", "beta", "temperature"))  # type: ignore[return-value]

    def _one(self, name: str, block: str) -> float:
        value: PerBlock = getattr(self, name)
        if not isinstance(value, Mapping):
            return value
        if block not in value:
            raise BlockMismatch(f'{name} is given per block and not for "{block}": it has {sorted(value)}.')
        return value[block]


Join = Literal["frame", "turned", "sum"]
JOINS = get_args(Join)


@was("prior", "model", "curvature")
def update(
    model: nn.Module | Mapping[str, Tensor],
    curvature: Curvature,
    prior: Gaussian,
    scales: Scales | None = None,
    *,
    join: Join = "frame",
) -> Gaussian:
    """The Laplace posterior: mean at the model's weights, precision (β · curvature + α · prior)/τ.

    "frame" keeps the form of a learned prior, share · curvature + floor · identity, with the curvatures of prior and data in
    one eigenframe: exact after an isotropic prior, close after others, never below the floor, and closed under updates. The
    posterior's card says what was given up, as a relative error in Frobenius norm. "turned" keeps the sum within a few nats of
    the exact one, for up to seven times the numbers and some seconds a layer: for log dets that must hold over many updates.
    Blocks with a side of 1,024 or more are in a plain frame either way. "sum" is the paper's way: the sum
    of two terms stays a sum, and where a third comes, two become the nearest Kronecker pair, which can lose the floor.

    Args:
        model: the trained network, or its blocks' matrices.
        curvature: of the data, from `estimate`.
        prior: what was believed before the data.
        scales: α, β and τ; all 1 is Bayes' rule.
        join: how a sum of more terms than one structure holds becomes one.

    Returns:
        The posterior, a `Gaussian` that can be the next prior.

    Raises:
        BlockMismatch: where prior, network and curvature speak of different layers.

    Example:
        >>> curvature = pt.estimate(model, data, pt.EKFAC())
        >>> posterior = pt.update(model, curvature, prior)
    """
    if join not in JOINS:
        raise ValueError(f"join is one of {', '.join(map(repr, JOINS))}, not {join!r}")
    scales = scales or Scales()
    mean = block_means(prior, model)
    precision: dict[str, Matrix] = {}
    errors: dict[str, float | None] = {}
    for name in prior.blocks:
        alpha, beta, temperature = scales.of(name)
        old, new = prior.precision[name], block_curvature(curvature, prior, name)
        # Large blocks stay in the precision that their curvature was estimated in.
        new = new if join != "sum" and is_large(*new.shape) else new.to(dtype=torch.float64)
        old, new = _times(old, alpha / temperature), _times(new, beta / temperature)
        if join != "sum":
            precision[name], errors[name] = _one_frame(old, new if beta else None, join == "turned")
        else:
            precision[name], errors[name] = _two_terms(old, new) if beta else (old, None)
    card = replace(
        prior.card,
        count=prior.card.count + curvature.count,
        likelihood=repr(curvature.likelihood),
        estimator=repr(curvature.estimator),
        compression=dict(prior.card.compression) | {name: e for name, e in errors.items() if e is not None},
        scales={name: scales.of(name) for name in prior.blocks},
        versions={"posterity": __version__, "torch": str(torch.__version__)},
        provenance=depends_on(prior, model, curvature).joined(scales.provenance),
    )
    found = replace(prior, mean=mean, precision=precision, card=card).with_provenance(card.provenance)
    # The posterior speaks of the network as it is now. Its card still has the prior's fingerprint: what training did to norm
    # statistics since is nothing that a certificate could rely on.
    return with_frozen(found, model, signed=False) if isinstance(model, nn.Module) else found


def depends_on(
    prior: Gaussian, model: nn.Module | Mapping[str, Tensor], curvature: Curvature | None = None
) -> Provenance:
    """What a Gaussian made of these has seen: the prior's data, the curvature's, and whatever the weights were trained on."""
    parts = [prior.provenance, *([] if curvature is None else [curvature.provenance])]
    matrices = block_means(prior, model)
    if curvature is not None and curvature.at == matrices_digest(matrices):
        return together(parts)  # the weights' past is part of the curvature's
    if all(torch.equal(matrices[name], prior.mean[name].to(matrices[name])) for name in prior.blocks):
        return together(parts)
    if isinstance(model, nn.Module):
        return together([*parts, past_of(model, prior.mean, prior.provenance)])
    return together([*parts, Provenance.unknown("its mean was given as matrices")])


def _one_frame(old: Matrix, new: Matrix | None, turned: bool) -> tuple[Matrix, float | None]:
    """Floor apart, curvatures in one eigenframe; and the relative error of that where there are two of them."""
    family = as_floored(old)
    if new is None:
        return family, None
    if isinstance(new, JointEigen) and new.shares_bases(family.kept):
        # Estimated in the prior's own eigenvectors: the sum stays in them, and is exact.
        return FlooredMatrix(family.kept * family.share + new, 1.0, family.floor), None
    before = family.curvature * family.share
    empty = family.share == 0 or (isinstance(before, ScaledIdentity) and not float(before.scale))
    as_it_is = isinstance(new, Kronecker) or (isinstance(new, JointEigen) and new.is_orthogonal)
    if empty and is_large(*new.shape) and as_it_is:
        # As it is: half the size of its eigenframe, which is made where something needs it.
        return FlooredMatrix(new, 1.0, family.floor), None
    terms = [new] if empty else [before, new]
    joined = in_turned_frame(terms, family.floor) if turned else in_one_frame(terms)
    exact = empty or not isinstance(joined, JointEigen | RotatedMatrix)
    error = None if exact else frame_error([before, new], joined)
    return FlooredMatrix(joined, 1.0, family.floor), error


def _times(matrix: Matrix, factor: float) -> Matrix:
    return matrix if factor == 1 else matrix * factor


def _two_terms(old: Matrix, new: Matrix) -> tuple[Matrix, float | None]:
    """old + new with at most two terms, and the relative error of joining if there was any."""
    old = old.total if isinstance(old, FlooredMatrix) else old
    if isinstance(old, JointEigen):
        pair = nearest(old)
        return pair + new, float(relative_error(old, pair))
    if not isinstance(old, KroneckerSum) or len(old.terms) < 2 or not isinstance(new, Kronecker):
        return old + new, None
    kept = [term for term in old.terms if term.is_scaled_identity]
    pairs = [term for term in old.terms if not term.is_scaled_identity]
    joined = KroneckerSum([*pairs, new] if kept else pairs)
    pair = nearest(joined)
    return KroneckerSum([*kept, pair] if kept else [pair, new]), float(relative_error(joined, pair))


def block_means(prior: Gaussian, model: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The present weights of the prior's blocks, from the network or from matrices that must fit."""
    if isinstance(model, nn.Module):
        try:
            matrices = read_blocks(model, find_blocks(model, named(prior.mean)))
        except NoBlocks as error:
            raise BlockMismatch(
                f"the network has none of the Gaussian's blocks {list(prior.blocks)}: {error}"
            ) from error
    else:
        matrices = dict(model)
    prior.check_point(matrices)
    return {name: matrices[name].detach() for name in prior.blocks}


def block_curvature(curvature: Curvature, prior: Gaussian, name: str) -> Matrix:
    """A block's curvature, which must be there and fit the prior's."""
    if name not in curvature.blocks:
        raise BlockMismatch(
            f'the prior has a block "{name}" and the curvature has not (it has {list(curvature.blocks)}): '
            f'estimate it too, or drop the block with prior.without("{name}").'
        )
    (out, inp), (rows, columns) = prior.precision[name].shape, curvature[name].shape
    if (out, inp) != (rows, columns):
        raise BlockMismatch(
            f'block "{name}" is {out}×{inp} in the prior and {rows}×{columns} in the curvature: estimate it on the network '
            f'that the prior is for, or drop the block with prior.without("{name}").'
        )
    return curvature[name]
