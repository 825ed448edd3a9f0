"""How strong the prior should be, by the marginal likelihood: no validation data needed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from posterity.algebra import (
    DenseMatrix,
    DiagonalMatrix,
    FlooredMatrix,
    JointEigen,
    Kronecker,
    KroneckerSum,
    Matrix,
    RotatedMatrix,
    ScaledIdentity,
    in_one_frame,
)
from posterity.algebra.dense import cholesky
from posterity.curvature import Curvature
from posterity.deprecated import was
from posterity.errors import NotExact
from posterity.gaussian import Gaussian
from posterity.laplace.update import Scales, block_curvature, block_means, depends_on

log = logging.getLogger("posterity")

BORDER = 20.0
"""Where the search for a strength ends: |ln α|."""


def relative_spectrum(prior: Matrix, curvature: Matrix) -> Tensor:
    """The eigenvalues E of curvature relative to the prior (out × inp): all that α, β and τ can act on.

    log det(βF + αP) − log det P = Σ ln(βE + α), tr P(βF + αP)⁻¹ = Σ 1/(βE + α), and so on.
    """
    prior, curvature = _single(prior), _single(curvature)
    if isinstance(prior, JointEigen | RotatedMatrix) and not isinstance(curvature, DenseMatrix):
        # No basis serves both: in the frame of their sum each keeps its exact diagonal.
        frame = in_one_frame([prior, curvature])
        assert isinstance(frame, JointEigen)
        bases = frame.left.matrix.mT, frame.right.matrix.mT
        return curvature.diagonal_in(*bases).double() / prior.diagonal_in(*bases).double()
    match prior, curvature:
        case Kronecker(), Kronecker():
            return prior.to(dtype=torch.float64).joint(curvature).values
        case ScaledIdentity(), Kronecker():
            left, right = (torch.linalg.eigvalsh(x.double()).clamp_min(0) for x in (curvature.left, curvature.right))
            return left[:, None] * right[None, :] / prior.scale.double()
        case ScaledIdentity(), JointEigen() if curvature.is_orthogonal:
            return curvature.values.double() / prior.scale.double()
        case ((ScaledIdentity() | DiagonalMatrix()), DiagonalMatrix()):
            scale = prior.values if isinstance(prior, DiagonalMatrix) else prior.scale
            return curvature.values.double() / scale.double()
        case (DenseMatrix(), _) | (_, DenseMatrix()):
            factor = cholesky(prior.dense(), "the prior's precision")
            half = torch.linalg.solve_triangular(factor, curvature.dense().double(), upper=False)
            white = torch.linalg.solve_triangular(factor, half.mT, upper=False)
            return torch.linalg.eigvalsh((white + white.mT) / 2).clamp_min(0).unflatten(-1, prior.shape)
    raise NotExact(
        f"a prior of {type(prior).__name__} and a curvature of {type(curvature).__name__} share no eigenbasis: "
        "compress the prior, or estimate the curvature by KFOC() or KFAC()."
    )


def _single(matrix: Matrix) -> Matrix:
    """A sum of one term is that term, and a curvature with its floor one matrix."""
    if isinstance(matrix, FlooredMatrix):
        return matrix.total
    return matrix.terms[0] if isinstance(matrix, KroneckerSum) and len(matrix.terms) == 1 else matrix


@was("prior", "model", "curvature")
def log_evidence(
    model: nn.Module | Mapping[str, Tensor], curvature: Curvature, prior: Gaussian, scales: Scales | None = None
) -> float:
    """The Laplace approximation of ln p(data) in nats, with the prior's precision scaled by α.

    −NLL − ½ α <D, P D> + ½ Σ [ln α − ln(βE + α)], E the curvature's eigenvalues relative to the prior. Exact for a linear model
    with Gaussian noise and exact curvature. A prior that is a learned curvature with a floor meets the new curvature in one plain
    eigenframe, whatever frame it is kept in: that can be off by several nats a layer.

    Args:
        model: the trained network, or its blocks' matrices.
        curvature: at these weights.
        prior: whose precision is one pair, diagonal or identity a block: `prior.compress()` makes it so.
        scales: α and β; one each by default.
    Returns:
        Nats. Differences between priors or networks on the same data are what counts.

    Example:
        >>> curvature = pt.estimate(model, data)
        >>> pt.laplace.log_evidence(model, curvature, pt.isotropic(model, 1.0))
    """
    scales = scales or Scales()
    mean = block_means(prior, model)
    total = -curvature.nll
    for name in prior.blocks:
        alpha, beta, _ = scales.of(name)
        values = relative_spectrum(prior.precision[name], block_curvature(curvature, prior, name))
        shift = mean[name].double() - prior.mean[name].double()
        quadratic = float(prior.precision[name].quadratic(shift))
        total += 0.5 * (
            values.numel() * math.log(alpha) - float((beta * values + alpha).log().sum()) - alpha * quadratic
        )
    return total


@was("prior", "model", "curvature")
def tune_strength(model: nn.Module | Mapping[str, Tensor], curvature: Curvature, prior: Gaussian) -> Scales:
    """The strength α of the prior, shared by all blocks, that maximises the evidence. No validation data is needed.

    A search over one number in the joint eigenbasis: each trial costs one pass over the eigenvalues.

    Args:
        model: the trained network, or its blocks' matrices.
        curvature: at these weights.
        prior: as for `log_evidence`.
    Returns:
        `Scales` with that α, and β = τ = 1.

    Example:
        >>> scales = pt.laplace.tune_strength(model, curvature, prior)
        >>> posterior = pt.update(model, curvature, prior, scales)
    """
    mean = block_means(prior, model)
    spectra, quadratic = [], 0.0
    for name in prior.blocks:
        spectra.append(relative_spectrum(prior.precision[name], block_curvature(curvature, prior, name)).flatten())
        quadratic += float(prior.precision[name].quadratic(mean[name].double() - prior.mean[name].double()))
    values = torch.cat(spectra)

    def loss(log_alpha: float) -> float:
        alpha = math.exp(log_alpha)
        return 0.5 * (float((values / alpha).log1p().sum()) + alpha * quadratic)

    best = minimise(loss, -BORDER, BORDER)
    if abs(best) > BORDER - 0.01:
        log.warning(
            "the evidence keeps growing as the prior becomes %s: the search stopped at its border, α = %.1e. The mean, or "
            "its structure, does not fit these weights; give scales of your own.",
            "stronger" if best > 0 else "weaker",
            math.exp(best),
        )
    return Scales(alpha=math.exp(best), provenance=depends_on(prior, model, curvature))


def minimise(f: Callable[[float], float], low: float, high: float, tol: float = 1e-6) -> float:
    """The minimum of a function of one number by a coarse grid and golden sections: no derivative, always the same steps."""
    grid = [low + (high - low) * i / 40 for i in range(41)]
    best = min(range(41), key=lambda i: f(grid[i]))
    a, b = grid[max(0, best - 1)], grid[min(40, best + 1)]
    ratio = (math.sqrt(5) - 1) / 2
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    fc, fd = f(c), f(d)
    while b - a > tol:
        if fc < fd:
            b, d, fd = d, c, fc
            c = b - ratio * (b - a)
            fc = f(c)
        else:
            a, c, fc = c, d, fd
            d = a + ratio * (b - a)
            fd = f(d)
    return (a + b) / 2
