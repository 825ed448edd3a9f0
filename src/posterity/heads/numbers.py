"""A head for numbers: Bayesian linear regression in closed form, strengths and views averaged by left-out examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.errors import BadTargets, NoData, SizeMismatch
from posterity.heads.belief import Belief
from posterity.heads.checks import checked_features
from posterity.heads.views import KINDS, Axes, Kind, View
from posterity.kernel.stacking import LEAST, stacked

STRENGTHS = tuple(10.0**k for k in range(-5, 4))
"""Precisions of the weights' prior over that of the noise, for inputs with a mean squared length of 1."""
COUNT = 0.1
"""The pseudo-count of every candidate."""


@dataclass(frozen=True, eq=False)
class NumberMember:
    """Weights of one strength in one view, with the variance of the noise."""

    view: Kind
    strength: float
    weight: float
    noise: float
    rows: Float[Tensor, " d"]


@dataclass(frozen=True, eq=False)
class NumberHead:
    """Means and variances of numbers from features."""

    views: dict[Kind, View]
    axes: dict[Kind, Axes]
    middle: dict[Kind, Float[Tensor, " d"]]
    """The mean of the training rows in each view: where the weights start from."""
    members: tuple[NumberMember, ...]
    mean: float
    count: int

    @property
    def width(self) -> int:
        """The number of columns of the features."""
        return len(next(iter(self.views.values())).centre)

    @property
    def noise(self) -> float:
        """The variance that no example takes away."""
        return sum(m.weight * m.noise for m in self.members)

    def moments(self, features: Tensor) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """The mean and the variance, noise included, of the number at each row."""
        return self.moments_of(checked_features(features, self.width))

    def moments_of(self, x: Float[Tensor, "m d"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Means and variances of checked rows."""
        total, square = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        for m in self.members:
            about = self.about(m)
            rows = about.inputs(x)
            mean = self.mean + rows @ m.rows
            total = total + m.weight * mean
            square = square + m.weight * (mean.square() + m.noise * (1 + 1 / self.count) + about.variance(rows))
        return total, square - total.square()

    def about(self, m: NumberMember) -> Belief:
        """What a member knows of its weights."""
        return Belief(self.views[m.view], self.middle[m.view], self.axes[m.view], m.noise / m.strength, 1 / m.noise)

    @property
    def belief(self) -> Belief:
        """The belief of the member with the largest weight."""
        return self.about(max(self.members, key=lambda m: m.weight))

    def curvatures(self, rows: Float[Tensor, "m d"]) -> Float[Tensor, "m 1"]:
        """The second derivative of a number's NLL by its mean."""
        return rows.new_full((len(rows), 1), 1 / self.noise)


@dataclass(frozen=True, eq=False)
class NumberFit:
    """A head, and what it says of examples that were left out."""

    head: NumberHead
    features: Float[Tensor, "n d"]
    targets: Float[Tensor, " n"]
    judged: Int[Tensor, " m"]
    means: Float[Tensor, " m"]
    variances: Float[Tensor, " m"]
    log_densities: Float[Tensor, " m"]


def regress(
    features: Any,
    targets: Tensor,
    folds: Int[Tensor, " n"],
    *,
    strengths: Sequence[float] = STRENGTHS,
    kinds: Sequence[Kind] = KINDS,
) -> NumberFit:
    """Fit a head to features and numbers: y = b + w·x + noise, w with a normal prior, b with a flat one.

    Leaving a fold out is exact and needs no refit: with H the matrix that turns targets into fitted values, residuals of a
    left-out fold are (I − H_kk)⁻¹ times those of the whole, and their variances 1 + diag(H_kk (I − H_kk)⁻¹) times the noise.

    Args:
        folds: which examples are left out together; -1 is never left out.
        strengths: precisions of the weights' prior.
        kinds: views of the features.
    """
    x = checked_features(features)
    y = targets.detach().cpu().double()
    if y.ndim != 1 or len(y) != len(x) or len(folds) != len(x):
        raise SizeMismatch(
            f"there are {len(x)} rows of features, {tuple(y.shape)} targets and {tuple(folds.shape)} folds."
        )
    if len(y) < 2:
        raise NoData(f"there are {len(y)} labelled examples: a regression needs at least two.")
    if not bool(y.isfinite().all()):
        raise BadTargets("a target is NaN or infinite: leave its row out.")
    folds = folds.detach().cpu().long()
    judged = (folds >= 0).nonzero().flatten()
    mean, scale = float(y.mean()), max(float(y.var()), 1e-300)
    views = {kind: View.of(kind, x) for kind in kinds}
    middle = {kind: view(x).mean(0) for kind, view in views.items()}
    axes, members, found = {}, [], []
    for kind in kinds:
        rows = views[kind](x) - middle[kind]
        axes[kind] = Axes.of(rows)
        z = rows @ axes[kind].vectors
        for strength in strengths:
            shrunk = 1 / (axes[kind].values + strength)
            coefficients = shrunk * (z.mT @ (y - mean))
            residual = y - mean - z @ coefficients
            noise, left = _left_out(z, shrunk, residual, y, folds, scale)
            found.append(left)
            members.append((kind, strength, noise, axes[kind].vectors @ coefficients))
    scores = torch.stack([_log_density(y[judged], m, v) for m, v in found])
    weights = stacked(scores, torch.full((len(members),), COUNT, dtype=torch.float64))
    kept = [i for i in range(len(members)) if float(weights[i]) > LEAST]
    shares = weights[kept] / weights[kept].sum()
    made = tuple(
        NumberMember(kind, strength, float(w), noise, rows)
        for w, (kind, strength, noise, rows) in zip(shares, [members[i] for i in kept], strict=True)
    )
    head = NumberHead(views, axes, middle, made, mean, len(y))
    means, variances = (torch.stack([found[i][j] for i in kept]) for j in (0, 1))
    total = shares @ means
    spread = shares @ (variances + means.square()) - total.square()
    density = (scores[kept] + shares.log()[:, None]).logsumexp(0)
    return NumberFit(head, x, y, judged, total, spread, density)


def _left_out(
    z: Tensor, shrunk: Tensor, residual: Tensor, y: Tensor, folds: Tensor, scale: float
) -> tuple[float, tuple[Tensor, Tensor]]:
    """The noise, and means and variances of the left-out examples in their order."""
    n = len(y)
    means, factors = torch.full_like(y, torch.nan), torch.full_like(y, torch.nan)
    for k in range(int(folds.max()) + 1):
        of = (folds == k).nonzero().flatten()
        if len(of) == 0:
            continue
        hat = (z[of] * shrunk) @ z[of].mT + 1 / n
        rest = torch.eye(len(of), dtype=y.dtype) - hat
        means[of] = y[of] - torch.linalg.solve(rest, residual[of])
        factors[of] = 1 + torch.linalg.solve(rest, hat).diagonal()
    judged = folds >= 0
    if bool(judged.any()):
        squares = (y - means)[judged].square() / factors[judged]
        noise = (float(squares.sum()) + 1e-3 * scale) / int(judged.sum())
    else:
        # The evidence's own maximum: yᵀ(I − H)y over the degrees of freedom.
        noise = (float((residual * (y - y.mean())).sum()) + 1e-3 * scale) / max(1, n - 1)
    noise = max(noise, 1e-12 * scale)
    return noise, (means[judged], noise * factors[judged])


def _log_density(y: Tensor, mean: Tensor, variance: Tensor) -> Float[Tensor, " m"]:
    return -0.5 * ((y - mean).square() / variance + variance.log() + math.log(2 * math.pi))
