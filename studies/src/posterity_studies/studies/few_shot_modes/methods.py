"""Posteriors around a trained mode, drawn without decomposing anything large: few pictures have curvature of low rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

import posterity as pt
from posterity.algebra import FlooredMatrix, JointEigen, Kronecker, Matrix, ScaledIdentity
from posterity.blocks import find_blocks, named, read_blocks
from posterity.curvature import estimate
from posterity.pacbayes import Landscape, one_number
from posterity_studies.shared.published import DELTA
from posterity_studies.shared.rivals.training import Pair, nll
from posterity_studies.shared.tempering import tempered_probabilities

SCALES = ("none", "mcallester", "catoni")
"""Where the weight β of the data's curvature comes from: one, or the bound that it makes least."""
TAUS = tuple(10.0 ** (-2 * k) for k in range(11))
AT_ONCE = 10
"""Pictures a batch of the curvature's estimate."""
RANK, MISSED = 512, 1e-4
"""Of a factor of the data's curvature: directions to begin with, and the share of its trace that may lie outside of them."""


@dataclass(frozen=True, eq=False)
class LowRank:
    """Eigenvectors of a factor and their values; all other values are zero."""

    vectors: Float[Tensor, "n r"]
    values: Float[Tensor, " r"]

    @classmethod
    def of(cls, factor: Float[Tensor, "n n"]) -> LowRank:
        """Through a random sketch of its range, which is all of it where the factor's rank is no larger."""
        rank, n = RANK, len(factor)
        while rank < n:
            sketch = factor @ torch.randn(n, rank, generator=torch.Generator().manual_seed(0)).to(factor)
            basis = torch.linalg.qr(sketch).Q
            core = basis.mT @ factor @ basis
            if float(factor.trace() - core.trace()) <= MISSED * float(factor.trace()):
                values, turn = torch.linalg.eigh(core.double())
                return cls(basis @ turn.to(basis), values.clamp_min(0))
            rank *= 2
        values, vectors = torch.linalg.eigh(factor.double())
        return cls(vectors.to(factor), values.clamp_min(0))

    def along(self, frame: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
        """The factor's diagonal in another frame."""
        return (self.vectors.mT @ frame).double().square().mul_(self.values[:, None]).sum(0)


@dataclass(frozen=True, eq=False)
class Isotropic:
    """β · data + γ · identity of one block, exactly: the data's own eigenvectors, and γ beside them."""

    gamma: float
    left: Tensor
    right: Tensor
    data: Tensor

    def spectrum(self) -> Tensor:
        """Of the data relative to the prior; zeros, which change no bound, are left out."""
        return (self.data / self.gamma).flatten()

    def spread(self, beta: float) -> Tensor:
        """By how much draws are narrower than the prior's along the data's eigenvectors."""
        return ((self.gamma / (beta * self.data + self.gamma)).sqrt() - 1).float()

    def noise(self, spread: Tensor, generator: torch.Generator) -> Tensor:
        """One draw around zero."""
        drawn = torch.randn(len(self.left), len(self.right), generator=generator)
        inside = (self.left.mT @ drawn @ self.right) * spread
        return torch.addmm(drawn, self.left @ inside, self.right.mT).div_(math.sqrt(self.gamma))


@dataclass(frozen=True, eq=False)
class LearnedBlock:
    """β · data + prior of one block in the prior's eigenframe, where the prior is exact and the data by its diagonal."""

    left: Tensor
    right: Tensor
    prior: Tensor
    data: Tensor

    def spectrum(self) -> Tensor:
        return (self.data / self.prior).flatten()

    def spread(self, beta: float) -> Tensor:
        """Standard deviations in the prior's eigenframe."""
        return (beta * self.data + self.prior).rsqrt().float()

    def noise(self, spread: Tensor, generator: torch.Generator) -> Tensor:
        drawn = torch.randn(self.prior.shape, generator=generator)
        return self.left @ drawn.mul_(spread) @ self.right.mT


Block = Isotropic | LearnedBlock


def posterior_block(prior: Matrix, data: tuple[LowRank, LowRank]) -> Block:
    """One block's posterior precision, for any weight of the data."""
    left, right = data
    if isinstance(prior, ScaledIdentity):
        gamma = float(prior.trace()) / (prior.shape[0] * prior.shape[1])
        return Isotropic(gamma, left.vectors, right.vectors, torch.outer(left.values, right.values))
    assert isinstance(prior, FlooredMatrix)
    frame = prior.diagonalised
    assert isinstance(frame, JointEigen)
    bases = [basis.matrix.float() for basis in (frame.left, frame.right)]
    values = prior.share * frame.values.double() + prior.floor
    return LearnedBlock(bases[0], bases[1], values, torch.outer(left.along(bases[0]), right.along(bases[1])))


@dataclass(frozen=True, eq=False)
class Mode:
    """A trained network and K-FOC of its training pictures: made once, for posteriors under several priors."""

    model: nn.Module
    weights: Mapping[str, Tensor]
    data: Mapping[str, tuple[LowRank, LowRank]]
    nll: float
    count: int

    @classmethod
    def of(cls, model: nn.Module, names: Sequence[str], train: Pair) -> Mode:
        """One pass over the training pictures."""
        found = find_blocks(model, named(names))
        curvature = estimate(
            model, train, pt.KFOC(), blocks=list(found), batch_size=AT_ONCE,
            generator=torch.Generator().manual_seed(0), progress=False,
        )  # fmt: skip
        data = {}
        for name in found:
            pair = curvature[name]
            assert isinstance(pair, Kronecker)
            data[name] = LowRank.of(pair.left.float()), LowRank.of(pair.right.float())
        return cls(model, read_blocks(model, found), data, curvature.nll, curvature.count)


@dataclass(frozen=True, eq=False)
class Posterior:
    """The Laplace approximation around a trained network: K-FOC of the training pictures, and the prior."""

    model: nn.Module
    blocks: Mapping[str, Block]
    landscape: Landscape

    @classmethod
    def at_mode(cls, mode: Mode, prior: pt.Gaussian) -> Posterior:
        """Under a prior around any weights."""
        blocks = {name: posterior_block(prior.precision[name], data) for name, data in mode.data.items()}
        shifts = {name: mode.weights[name].detach() - prior.mean[name] for name in blocks}
        quadratics = {name: float(prior.precision[name].quadratic(shifts[name])) for name in blocks}
        spectra = {name: block.spectrum() for name, block in blocks.items()}
        return cls(mode.model, blocks, Landscape(spectra, quadratics, mode.nll, mode.count))

    def beta(self, scales: str) -> float:
        """The weight of the data's curvature: the optimum of a bound over all scales is this one number."""
        if scales == "none":
            return 1.0
        found = one_number(self.landscape, "catoni" if scales == "catoni" else "mcallester", DELTA).scales.beta
        assert isinstance(found, float)
        return found

    def predict(self, x: Tensor, beta: float, taus: Sequence[float], draws: int) -> dict[float, Tensor]:
        """Mean probabilities over draws, for each temperature with the same noise. An overflow counts as a guess."""
        generator = torch.Generator().manual_seed(0)
        spreads = {name: block.spread(beta) for name, block in self.blocks.items()}
        total: dict[float, Tensor] = {}
        for _ in range(draws):
            noise = {name: block.noise(spreads[name], generator)[None] for name, block in self.blocks.items()}
            for tau, probs in tempered_probabilities(self.model, noise, x, taus).items():
                probs = probs.nan_to_num(1 / probs.shape[-1])
                total[tau] = total[tau] + probs / draws if tau in total else probs / draws
        return total


@dataclass(frozen=True)
class ModeChoice:
    """What validation chose around a mode: where β comes from, β, τ, and the NLL there."""

    scales: str
    beta: float
    tau: float
    held: float


def chosen(posterior: Posterior, held: Pair, scales: Sequence[str], draws: int) -> ModeChoice:
    """Scales and temperature of least validation NLL."""
    return min(_choices(posterior, held, scales, draws), key=lambda choice: choice.held)


def _choices(posterior: Posterior, held: Pair, scales: Sequence[str], draws: int) -> Iterator[ModeChoice]:
    for name in scales:
        beta = posterior.beta(name)
        for tau, probs in posterior.predict(held[0], beta, TAUS, draws).items():
            yield ModeChoice(name, beta, tau, nll(probs, held[1]))
