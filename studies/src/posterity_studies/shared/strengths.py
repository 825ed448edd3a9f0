"""How strong a prior should be, layer by layer: learned together with the posterior, taken from a finite grid, and paid for.

A union over every combination of strengths costs their logarithm: some twenty nats for LeNet-5, where the divergence is a
thousand and more. What a layer that hardly moves saves is far more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from posterity.algebra import FlooredMatrix, JointEigen, Matrix, as_floored, scaled_identity
from posterity.blocks import find_blocks, named
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.data.provenance import Provenance
from posterity.errors import NotExact
from posterity.gaussian import Gaussian
from posterity.pacbayes.optimise import Descent, FreeBlock, moved

FACTORS = tuple(4.0**k for k in range(-4, 5))
"""What a layer's share and floor may be multiplied by: the grid of a certificate that was declared in advance."""
SETTLED = 0.5
"""After which part of the epochs the strengths are rounded to the grid and stay."""


@dataclass(frozen=True, eq=False)
class OptimisedPosterior:
    """A posterior of small bound, and the prior that it is certified with."""

    posterior: Gaussian
    prior: Gaussian
    """The prior at the strengths that were chosen. Its provenance says from how many: a certificate pays for them."""
    factors: dict[str, tuple[float, float]]
    """By block: what the share of the source and the floor were multiplied by."""


def optimise_strengths(
    model: nn.Module,
    posterior: Gaussian,
    prior: Gaussian,
    data: Data,
    likelihood: Likelihood | None = None,
    *,
    factors: Sequence[float] = FACTORS,
    confidence: float = 0.95,
    epochs: int = 20,
    lr: float = 1e-3,
    lr_scales: float = 0.02,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool = True,
) -> OptimisedPosterior:
    """The posterior and each layer's strength of the prior, both for the least klinv bound.

    A layer's prior is share · curvature + floor · identity. Both numbers are learned with the posterior for half of the epochs,
    rounded to the nearest of the `factors`, and then stay while the posterior goes on. The factors must be fixed before the data
    is looked at. With F of them and B layers a certificate pays for F²ᴮ priors, by itself.

    Args:
        model: the network's architecture; its own weights do not matter.
        posterior: where to start.
        prior: at the strengths to start from. It must not have seen the data.
        data: to train on, and to certify with.
        likelihood: of the outputs; `Categorical()` by default.
        factors: what shares and floors may be multiplied by.
        confidence: of the bound that is made small.
        epochs: over the data, two or more.
        lr: Adam's learning rate for the means.
        lr_scales: the same for the logarithms of variances and strengths.
        batch_size: of a step.
        generator: of the order of the examples and of the draws.
        progress: whether to show a bar.
    Returns:
        An `OptimisedPosterior`: posterior, prior, and the factors of every block.
    Raises:
        NotExact: if the prior of a block is not a curvature in an orthogonal eigenframe plus a floor.

    Example:
        >>> found = optimise_strengths(model, prior, prior, data)
        >>> pt.certify(model, found.posterior, found.prior, data).bound
    """
    grid = sorted(set(factors))
    if not grid or grid[0] <= 0:
        raise ValueError(f"factors are positive, and at least one, not {tuple(factors)}")
    if epochs < 2:
        raise ValueError(f"the strengths settle after half of the epochs: at least 2, not {epochs}")
    like = next(model.parameters())
    blocks = find_blocks(model, named(posterior.mean))
    free = {name: _Adjustable(posterior, prior, name, like) for name in blocks}
    descent = Descent(likelihood or Categorical(), confidence, epochs, lr, lr_scales, batch_size, generator, progress)
    settled = int(SETTLED * epochs)

    def settle(epoch: int) -> None:
        if epoch == settled:
            for block in free.values():
                block.settle(grid)

    descent.run(model, blocks, free, data, settle)
    seen = Provenance.of(data)
    chosen = {name: block.chosen for name, block in free.items()}
    precision = {name: block.at(*chosen[name]) for name, block in free.items()}
    past = prior.provenance.chose("each layer's strength", options=len(grid) ** (2 * len(free)), by=seen)
    after = replace(prior, precision=precision, card=replace(prior.card, provenance=past))
    return OptimisedPosterior(moved(posterior, free, prior.provenance.joined(seen)), after, chosen)


class _Adjustable(FreeBlock):
    """One block with a prior of two free numbers."""

    def __init__(self, posterior: Gaussian, prior: Gaussian, name: str, like: Tensor) -> None:
        super().__init__(posterior, prior, name, like)
        self.family = as_floored(prior.precision[name])
        curvature = self.family.diagonalised * self.family.share
        if not isinstance(curvature, JointEigen):
            raise NotExact(
                f"the prior of block {name!r} is a {type(curvature).__name__} and not a curvature in one eigenframe plus a "
                "floor: learn it with pt.learn, or optimise the posterior alone (`optimise_posterior`)."
            )
        floor = scaled_identity(self.family.floor, curvature.shape)
        left, right = self.frame.left, self.frame.right
        self.diagonals = curvature.diagonal_in(left, right), floor.diagonal_in(left, right)
        self.values = curvature.values.double()
        self.constant += float(prior.precision[name].logdet())
        self.curvature = curvature.to(like.device, like.dtype)
        self.chosen = 1.0, 1.0
        self.logs = torch.zeros(2, dtype=torch.float64, requires_grad=True)

    def scales(self) -> list[Tensor]:
        return [self.log_variance, self.logs]

    def kl(self) -> Tensor:
        share, floor = self.logs.exp()
        shift = self.mean - self.prior_mean
        diagonal = share * self.diagonals[0] + floor * self.diagonals[1]
        logdet = (share * self.values + floor * self.family.floor).log().sum()
        spread = (diagonal * self.log_variance.exp()).sum() - self.log_variance.sum() + self.constant - logdet
        quadratic = share * self.curvature.quadratic(shift) + floor * self.family.floor * shift.square().sum()
        return 0.5 * (spread + quadratic)

    def settle(self, grid: list[float]) -> None:
        """The nearest factors of the grid, from now on."""
        places = torch.tensor(grid, dtype=torch.float64).log()
        nearest = (self.logs.detach()[:, None] - places).abs().argmin(1).tolist()
        self.chosen = grid[nearest[0]], grid[nearest[1]]
        # Adam leaves alone what has no gradient.
        self.logs.requires_grad_(False).copy_(places[nearest])
        self.logs.grad = None

    def at(self, share: float, floor: float) -> Matrix:
        return FlooredMatrix(self.family.diagonalised, self.family.share * share, self.family.floor * floor)
