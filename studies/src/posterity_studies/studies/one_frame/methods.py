"""Sums of Kronecker products and a floor, and approximations of them, without ever writing the sum out where it is large.

In the frame (U, V) of an approximation the exact sum D is close to its own diagonal v, so M = v^(−½) UᵀDV v^(−½) is close to the
identity: log det D = Σ log v + tr log M, by Lanczos quadrature on random signs, and D⁻¹g takes a few conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import JointEigen, Kronecker, RotatedMatrix

DENSE = 2500
"""Up to this side the exact sum is written out, and its log det is exact."""
PROBES, STEPS = 16, 20
"""Random sign vectors and Lanczos steps beyond that."""
ROUNDS = 60
"""Steps of the search for the best frame."""


@dataclass(frozen=True, eq=False)
class ExactSum:
    """Σ L ⊗ R + floor · identity."""

    terms: Sequence[Kronecker]
    floor: float

    def times(self, x: Float[Tensor, "*b out inp"]) -> Float[Tensor, "*b out inp"]:
        return torch.stack([t.left @ x @ t.right for t in self.terms]).sum(0) + self.floor * x


@dataclass(frozen=True, eq=False)
class FrameMatrix:
    """U diag(values) Vᵀ, values over (out, inp): pairs, pairs with a floor, and frames with values are all of this form.

    Some directions may be turned among themselves.
    """

    left: Float[Tensor, "out out"]
    right: Float[Tensor, "inp inp"]
    values: Float[Tensor, "out inp"]
    turn: RotatedMatrix | None = None

    @classmethod
    def of_pair(cls, pair: Kronecker, floor: float = 0.0) -> FrameMatrix:
        (a, left), (b, right) = (torch.linalg.eigh(side.double()) for side in (pair.left, pair.right))
        tiny = torch.finfo(torch.float64).tiny
        return cls(left, right, (a.clamp_min(0)[:, None] * b.clamp_min(0) + floor).clamp_min(tiny))

    @classmethod
    def of_frame(cls, frame: JointEigen | RotatedMatrix, floor: float) -> FrameMatrix:
        turn = frame if isinstance(frame, RotatedMatrix) else None
        bases = frame.frame_of if isinstance(frame, RotatedMatrix) else frame
        return cls(bases.left.matrix, bases.right.matrix, frame.values + floor, turn)

    @property
    def logdet(self) -> float:
        return float(self.values.log().sum())

    def turned(self, x: Tensor) -> Tensor:
        return self.left.mT @ x @ self.right if self.turn is None else self.turn.into(x)

    def back(self, x: Tensor) -> Tensor:
        return self.left @ x @ self.right.mT if self.turn is None else self.turn.back(x)

    def diagonal_of(self, exact: ExactSum) -> Float[Tensor, "out inp"]:
        """The exact sum's own diagonal in this frame."""
        if self.turn is not None:
            return torch.stack([self.turn.along(t) for t in exact.terms]).sum(0) + exact.floor
        parts = [
            ((self.left.mT @ t.left) * self.left.mT).sum(1)[:, None]
            * ((self.right.mT @ t.right) * self.right.mT).sum(1)
            for t in exact.terms
        ]
        return torch.stack(parts).sum(0) + exact.floor


def best_frame(exact: ExactSum, start: FrameMatrix) -> FrameMatrix:
    """The frame of least KL that a search finds from here: what any one frame must lose.

    With the sum's own diagonal as values KL is ½ (Σ log values − log det of the sum), so that Σ log values is all there is
    to lower. Rotations are exponentials of skew matrices, which start at zero.
    """
    turns = [torch.zeros(side.shape, dtype=side.dtype, requires_grad=True) for side in (start.left, start.right)]

    def turned() -> FrameMatrix:
        left, right = (
            side @ torch.matrix_exp(x - x.mT) for side, x in zip((start.left, start.right), turns, strict=True)
        )
        return FrameMatrix(left, right, start.values)

    def loss() -> Tensor:
        search.zero_grad()
        found = turned().diagonal_of(exact).log().sum()
        found.backward()
        return found

    search = torch.optim.LBFGS(turns, max_iter=ROUNDS, history_size=20, line_search_fn="strong_wolfe")
    search.step(loss)
    with torch.no_grad():
        found = turned()
        return FrameMatrix(found.left, found.right, found.diagonal_of(exact))


def log_det(exact: ExactSum, frame: FrameMatrix, generator: torch.Generator) -> tuple[float, float]:
    """log det of the sum, and its standard error: zero where the sum is small enough to be written out."""
    v = frame.diagonal_of(exact)
    if v.numel() <= DENSE:
        dense = torch.stack([torch.kron(t.left.contiguous(), t.right.contiguous()) for t in exact.terms]).sum(0)
        dense.diagonal().add_(exact.floor)
        return 2 * float(torch.linalg.cholesky(dense).diagonal().log().sum()), 0.0
    root = v.rsqrt()

    def whitened(x: Tensor) -> Tensor:
        return root * frame.turned(exact.times(frame.back(root * x)))

    signs = torch.randint(2, (PROBES, *v.shape), generator=generator).double() * 2 - 1
    found = v.numel() * _trace_log(whitened, signs)
    return float(v.log().sum() + found.mean()), float(found.std() / PROBES**0.5)


def _trace_log(times: Callable[[Tensor], Tensor], start: Float[Tensor, "p out inp"]) -> Float[Tensor, " p"]:
    """xᵀ log(A) x / xᵀx by Lanczos quadrature, for every probe x, with full reorthogonalisation."""
    basis = [start / start.flatten(1).norm(dim=1)[:, None, None]]
    alpha, beta = [], []
    for k in range(STEPS):
        w = times(basis[k])
        alpha.append((w * basis[k]).sum((1, 2)))
        for q in basis:
            w = w - (w * q).sum((1, 2))[:, None, None] * q
        size = w.flatten(1).norm(dim=1)
        beta.append(size)
        basis.append(w / size.clamp_min(1e-300)[:, None, None])
    tridiagonal = torch.diag_embed(torch.stack(alpha, 1))
    off = torch.diag_embed(torch.stack(beta[:-1], 1), offset=1)
    values, vectors = torch.linalg.eigh(tridiagonal + off + off.mT)
    return (vectors[:, 0].square() * values.clamp_min(1e-12).log()).sum(1)


def kl(approximate: FrameMatrix, exact: ExactSum, exact_log_det: float) -> float:
    """KL(approximate ‖ exact) in nats, of Gaussians with these precisions and one mean."""
    trace = float((approximate.diagonal_of(exact) / approximate.values).sum())
    return 0.5 * (trace - approximate.values.numel() + approximate.logdet - exact_log_det)


def variances(exact: ExactSum, frame: FrameMatrix, g: Float[Tensor, "n out inp"]) -> Float[Tensor, " n"]:
    """gᵀD⁻¹g by conjugate gradients, the frame's values as preconditioner."""
    v = frame.diagonal_of(exact)

    def precondition(x: Tensor) -> Tensor:
        return frame.back(frame.turned(x) / v)

    x, r = torch.zeros_like(g), g.clone()
    z = precondition(r)
    p, rz = z, (r * z).sum((1, 2))
    first = rz.clone()
    for _ in range(200):
        d = exact.times(p)
        step = rz / (p * d).sum((1, 2)).clamp_min(1e-300)
        x, r = x + step[:, None, None] * p, r - step[:, None, None] * d
        z = precondition(r)
        new = (r * z).sum((1, 2))
        if bool((new <= 1e-16 * first).all()):
            break
        p, rz = z + (new / rz.clamp_min(1e-300))[:, None, None] * p, new
    return (g * x).sum((1, 2))


def least_ratio(approximate: FrameMatrix, prior: ExactSum, generator: torch.Generator) -> float:
    """The least eigenvalue of prior^(−½) · approximate · prior^(−½): below 1 some direction is wider than in the prior."""
    root = approximate.values.rsqrt()

    def times(x: Tensor) -> Tensor:
        return root * approximate.turned(prior.times(approximate.back(root * x)))

    x = torch.randn(root.shape, generator=generator, dtype=torch.float64)
    basis = [x / x.norm()]
    alpha, beta = [], []
    for k in range(min(40, root.numel())):
        w = times(basis[k])
        alpha.append(float((w * basis[k]).sum()))
        for q in (*basis, *basis):  # twice: once leaves what rounding left
            w = w - (w * q).sum() * q
        beta.append(float(w.norm()))
        if beta[-1] < 1e-8 * max(alpha):
            break
        basis.append(w / beta[-1])
    tridiagonal = torch.diag(torch.tensor(alpha, dtype=torch.float64))
    off = torch.diag(torch.tensor(beta[: len(alpha) - 1], dtype=torch.float64), 1)
    return 1 / float(torch.linalg.eigvalsh(tridiagonal + off + off.mT)[-1])
