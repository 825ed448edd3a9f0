"""The paper's own recipe over the last stage and the head, with a smaller budget.

A mode trained by frequentist projection, a Laplace approximation around it, scales from nothing or from a PAC-Bayes bound, draws
of the weights, and a temperature by validation. The paper draws a hundred times and has three γ; here are `DRAWS` and one. The
curvatures of prior and data are both taken in the prior's eigenframe, where the prior's is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.algebra import Kronecker, Matrix
from posterity.blocks import find_blocks, named, read_blocks
from posterity.curvature import Curvature, estimate
from posterity.kernel import BlockFrame
from posterity.pacbayes import Landscape, one_number
from posterity_studies.shared.projection import Catoni, McAllester
from posterity_studies.shared.published import DELTA
from posterity_studies.shared.rivals.training import Pair, nll
from posterity_studies.shared.tempering import tempered_probabilities

GAMMA = 1e-8
"""The middle one of the paper's 1e-6, 1e-8 and 1e-10."""
DRAWS = 20
TAUS = tuple(10.0 ** (-2 * k) for k in range(11))
AT_ONCE = 10
"""Pictures a batch of the curvature's estimate."""

Objective = Callable[[Tensor, Tensor, int], Tensor]
"""Of the mean NLL, half the quadratic to the prior's mean, and the number of examples."""


def posterior_mode(loss: Tensor, half: Tensor, count: int) -> Tensor:
    """Training to the mode of the posterior: no projection."""
    return loss + half / count


OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "none": lambda: posterior_mode,
    "mcallester": lambda: McAllester(DELTA),
    "catoni": lambda: Catoni(DELTA),
}
"""What the mode is trained to, by the name of the bound that its posterior's scales come from."""


@dataclass(frozen=True, eq=False)
class Spread:
    """A block's posterior in one eigenframe: what prior and data say of each direction."""

    left: Tensor
    right: Tensor
    prior: Tensor
    data: Tensor

    @classmethod
    def of(cls, prior: Matrix, data: Matrix) -> Spread:
        """In the prior's frame, or in the data's where the prior has none."""
        assert isinstance(data, Kronecker)
        frame = BlockFrame.of(prior)
        sides = [data.left.float(), data.right.float()]
        bases = [frame.left, frame.right]
        if frame.source is None or frame.left is None or frame.right is None:
            bases = [torch.linalg.eigh(side).eigenvectors for side in sides]
        before = torch.zeros(frame.shape) if frame.source is None else frame.share * frame.source
        left, right = (basis.float() for basis in bases if basis is not None)
        out, inp = ((side @ q * q).sum(0).clamp_min(0) for side, q in zip(sides, (left, right), strict=True))
        return cls(left, right, (before + frame.floor).double(), torch.outer(out, inp).double())

    def quadratic(self, shift: Tensor) -> float:
        """How far a shift from the prior's mean is, in the prior's measure."""
        return float(((self.left.mT @ shift.float() @ self.right).double().square() * self.prior).sum())

    def noise(self, beta: float, draws: int, generator: torch.Generator) -> Tensor:
        """Draws around zero."""
        width = (beta * self.data + self.prior).rsqrt().float()
        drawn = torch.randn(draws, *width.shape, generator=generator)
        return torch.stack([self.left @ (one * width) @ self.right.mT for one in drawn])


@dataclass(frozen=True, eq=False)
class TemperedNetwork:
    """A network with draws around it, and the temperature that validation chose."""

    model: nn.Module
    noise: Mapping[str, Tensor]
    scales: str
    beta: float
    tau: float
    held: float

    def predict(self, x: Tensor) -> Tensor:
        """Mean probabilities over draws."""
        return tempered_probabilities(self.model, self.noise, x, [self.tau])[self.tau]


def tempered(model: nn.Module, prior: pt.Gaussian, scales: str, train: Pair, held: Pair) -> TemperedNetwork:
    """The Laplace approximation around a trained network, its scale by a bound, its temperature by the validation set."""
    generator = torch.Generator().manual_seed(0)
    blocks = find_blocks(model, named(prior.mean))
    curvature = estimate(
        model, train, pt.KFAC(), blocks=list(blocks), batch_size=AT_ONCE, generator=generator, progress=False
    )
    spreads = {name: Spread.of(prior.precision[name], curvature[name]) for name in blocks}
    beta = 1.0 if scales == "none" else _beta(model, prior, curvature, spreads, scales)
    noise = {name: spread.noise(beta, DRAWS, generator) for name, spread in spreads.items()}
    found = tempered_probabilities(model, noise, held[0], TAUS)
    losses = {tau: nll(probs, held[1]) for tau, probs in found.items()}
    tau = min(losses, key=lambda t: losses[t])
    return TemperedNetwork(model, noise, scales, beta, tau, losses[tau])


def _beta(
    model: nn.Module, prior: pt.Gaussian, curvature: Curvature, spreads: Mapping[str, Spread], bound: str
) -> float:
    """The weight of the data's curvature of least bound: the optimum over all scales is this one number."""
    weights = read_blocks(model, find_blocks(model, named(prior.mean)))
    quadratics = {name: spreads[name].quadratic(weights[name].detach() - prior.mean[name]) for name in spreads}
    spectra = {name: (spread.data / spread.prior).flatten() for name, spread in spreads.items()}
    landscape = Landscape(spectra, quadratics, curvature.nll, curvature.count)
    beta = one_number(landscape, "catoni" if bound == "catoni" else "mcallester", DELTA).scales.beta
    assert isinstance(beta, float)
    return beta
