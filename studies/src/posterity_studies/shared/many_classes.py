"""A head for many classes: its exact mode, and a posterior of one structure for all examples.

The exact posterior factorises a matrix of n rows for each class. With a hundred classes that is beyond a study, so the Hessian of
an example's NLL, diag(p) − ppᵀ, is replaced by h·M: a number for each example, its trace, times one matrix for all, the mean of
their Hessians at trace one. The sum over examples is kept. With two classes this is exact. Variances follow from two
eigendecompositions. Leaving an example out in closed form is off by a tenth of a nat with such a Hessian, so the outputs of what
is left out come from refits without each of five folds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from posterity.kernel.choose import TAUS, TEMPERATURES
from posterity.kernel.latent import PROBIT
from posterity_studies.shared.softmax_regression import Refits, Span, descend, fit

LOW, HIGH = -6, 10
"""Precisions of the prior are 10^(k/2), k between these."""
FOLDS = 5


@dataclass(frozen=True, eq=False)
class StructuredHead:
    """A head with its posterior, and the (τ, T) of its predictive."""

    span: Span
    weights: Tensor
    precision: float
    pulled: Tensor
    """From coordinates to the directions in which examples have been seen."""
    seen: Tensor
    """How much of each such direction has been seen."""
    classes: Tensor
    """Directions of the classes, in columns, without the common one."""
    curvature: Tensor
    """Of the classes' directions."""
    height: Tensor
    """Of each example's Hessian: its trace."""
    tau: float = 1.0
    temperature: float = 1.0
    nll: float = float("nan")
    """Of examples left out."""

    def predict(self, x: Tensor, tempered: bool = True) -> Tensor:
        """Probabilities of classes: calibrated, or as the covariance has them, for scores of unknown inputs."""
        mean = self.span.coordinates(x) @ self.weights
        size = self.span.coordinates(x).square().sum(-1) + self.span.beyond(x).square()
        variance = self._variances(self.span.coordinates(x), size) @ self.classes.mT.square()
        return _probit(mean, variance, *((self.tau, self.temperature) if tempered else (1.0, 1.0)))

    def _variances(self, coordinates: Tensor, size: Tensor) -> Tensor:
        """Of the outputs along the classes' directions: the prior's, less what was learned."""
        along = (coordinates @ self.pulled).square()
        learned = along @ (self.curvature / (1 + self.seen[:, None] * self.curvature))
        return (size[:, None] / self.precision - learned).clamp_min(0)


def structured_head(x: Tensor, y: Tensor, refits: Refits | None = None, start: int = 2) -> StructuredHead:
    """The head whose precision, width and softness predict best what is left out, fold by fold."""
    refits = refits or Refits(Span.of(x), y, FOLDS)
    made: dict[int, StructuredHead] = {}

    def score(k: int) -> float:
        near = min(made, key=lambda other: abs(other - k), default=None)
        head = _fitted(refits.span, y, refits.classes, 10 ** (k / 2), None if near is None else made[near].weights)
        made[k] = _calibrated(head, refits.outputs(k), y)
        return made[k].nll

    return made[descend(score, start, LOW, HIGH)]


def at_edge(head: StructuredHead) -> bool:
    """Whether the precision is the first or last of its grid."""
    return head.precision in (10 ** (LOW / 2), 10 ** (HIGH / 2))


def _fitted(span: Span, y: Tensor, classes: int, precision: float, start: Tensor | None) -> StructuredHead:
    weights = fit(span.rows, span.lengths, y, classes, precision, start=start)
    p = (span.rows @ weights).softmax(-1)
    height = (p * (1 - p)).sum(-1).clamp_min(1e-12)
    total = torch.diag(p.sum(0)) - p.mT @ p
    curvature, directions = torch.linalg.eigh(total / height.sum())
    # The first is common to all classes, which the softmax cannot see.
    curvature, directions = curvature[1:].clamp_min(0), directions[:, 1:]
    root = height.sqrt()[:, None] * span.rows
    values, vectors = torch.linalg.eigh(root.mT @ root / precision)
    values = values.clamp_min(0)
    pulled = vectors * (values / precision).sqrt()
    return StructuredHead(span, weights, precision, pulled, values, directions, curvature, height)


def _calibrated(made: StructuredHead, left_out: Tensor, y: Tensor) -> StructuredHead:
    """The (τ, T) of least NLL of what was left out; an example's variance without itself is S(I − hMS)⁻¹."""
    own = made._variances(made.span.rows, made.span.rows.square().sum(-1))
    without = own / (1 - made.height[:, None] * made.curvature * own).clamp_min(1e-9)
    variance = without @ made.classes.mT.square()
    options = [(tau, t) for tau in TAUS for t in TEMPERATURES]
    scores = [_nll(_probit(left_out, variance, tau, t), y) for tau, t in options]
    best = min(range(len(options)), key=scores.__getitem__)
    return replace(made, tau=options[best][0], temperature=options[best][1], nll=scores[best])


def _probit(mean: Tensor, variance: Tensor, tau: float, t: float) -> Tensor:
    centred = (mean - mean.mean(-1, keepdim=True)) / t
    return (centred / (1 + PROBIT * tau / t**2 * variance).sqrt()).softmax(-1)


def _nll(probs: Tensor, y: Tensor) -> float:
    return float(-probs.gather(-1, y[:, None]).clamp_min(1e-300).log().mean())
