"""From a sum of Kronecker products to the nearest single one, in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra.diagonal import JointEigen
from posterity.algebra.kronecker import Kronecker, KroneckerSum
from posterity.errors import SizeMismatch


def nearest(total: KroneckerSum | JointEigen) -> Kronecker:
    """The Kronecker product nearest to a sum of them, in Frobenius norm.

    The paper's rank-one problem (eq. for L̂, R̂; Lemmas 1 and 2) lives in the span of the K terms: with Gram
    matrices G_L and G_R of the factors, the squared singular values are the eigenvalues of G_L G_R, and the leading
    eigenvector says how to mix the factors. One pass, O(K²(out² + inp²)), deterministic, differentiable, and
    without memory beyond the result. (The published power iteration ends at the same pair.)

    The mixing weights of positive semidefinite terms are non-negative (Perron–Frobenius), so the result is
    positive semidefinite by construction. Both factors get the same Frobenius norm. A single term is itself.

    A `JointEigen` is the sum of its eigendirections: there the mixing weights are found by iteration, O(out² + inp²) each.
    """
    if isinstance(total, JointEigen):
        return _nearest_in_basis(total)
    if len(total.terms) == 1:
        return total.terms[0]
    lefts, rights = [t.left for t in total.terms], [t.right for t in total.terms]
    left_norm, right_norm = _norms(lefts), _norms(rights)
    # Factors of norm one and one weight a term: scales that differ by 1e10 within a pair never meet in a Gram.
    scale = (left_norm * right_norm).sqrt()
    weight = scale[..., :, None] * scale[..., None, :]
    c, d = mixing_weights(weight * _gram(lefts, left_norm), weight * _gram(rights, right_norm))
    left = _mix(lefts, _unless_zero(c * scale, left_norm))
    right = _mix(rights, _unless_zero(d * scale, right_norm))
    return Kronecker.unchecked(left, right)


def _nearest_in_basis(total: JointEigen, steps: int = 1000, tol: float = 1e-12) -> Kronecker:
    """L = A diag(x) Aᵀ and R = B diag(y) Bᵀ: the power method on the weights x and y, in the metric of the bases."""
    a, b, values = total.left.matrix.double(), total.right.matrix.double(), total.values.double()
    left, right = (a.mT @ a).square(), (b.mT @ b).square()
    y = torch.ones(*values.shape[:-2], values.shape[-1], 1, dtype=torch.float64, device=values.device)
    x = torch.zeros_like(values[..., :1])
    for _ in range(steps):
        new = _unit_in(left, values @ (right @ y))
        moved = torch.linalg.vector_norm(new - x, dim=(-2, -1)) / torch.linalg.vector_norm(new, dim=(-2, -1))
        x, y = new, _unit_in(right, values.mT @ (left @ new))
        if bool((moved < tol).all()):
            break
    y = values.mT @ (left @ x)
    share = _unless_zero(torch.ones_like(y[..., :1, :]), (y.mT @ right @ y).clamp_min(0).sqrt()).sqrt()
    x, y = _unless_zero(x, share), y * share
    return Kronecker.unchecked(_congruent(a, x), _congruent(b, y))


def _unit_in(metric: Tensor, x: Tensor) -> Tensor:
    return _unless_zero(x, (x.mT @ metric @ x).clamp_min(0).sqrt())


def _congruent(basis: Tensor, weights: Tensor) -> Tensor:
    full = (basis * weights.mT) @ basis.mT
    return (full + full.mT) / 2


def relative_error(total: KroneckerSum | JointEigen, pair: Kronecker) -> Float[Tensor, "*batch"]:
    """‖total − pair‖ / ‖total‖ in Frobenius norm, with no dense matrix: O(K²(out² + inp²)).

    By Lemma 1 the norm is that of Σ vec(L_k) vec(R_k)ᵀ. Thin QR on both sides leaves a K×K problem without the
    cancellation of ‖t‖² − 2<t,p> + ‖p‖², so errors down to 1e-15 differ from zero.
    """
    if total.shape != pair.shape:
        raise SizeMismatch(f"the sum is over {total.shape} and the pair over {pair.shape}: they must agree.")
    if isinstance(total, JointEigen):
        return _error_in_basis(total, pair)
    terms = [*total.terms, pair]
    left_norm, right_norm = _norms([t.left for t in terms]), _norms([t.right for t in terms])
    scale = (left_norm * right_norm).sqrt()
    sides = []
    for factors, norms in (([t.left for t in terms], left_norm), ([t.right for t in terms], right_norm)):
        ratio = _unless_zero(scale, norms)
        shape = torch.broadcast_shapes(*(x.shape for x in factors))
        columns = [(x.double().expand(shape) * ratio[..., k, None, None]).flatten(-2) for k, x in enumerate(factors)]
        sides.append(torch.linalg.qr(torch.stack(columns, -1), mode="r").R)
    left, right = sides
    signs = torch.ones(len(terms), dtype=left.dtype, device=left.device)
    signs[-1] = -1
    residual = torch.linalg.matrix_norm((left * signs) @ right.mT)
    whole = torch.linalg.matrix_norm(left[..., :-1] @ right[..., :-1].mT)
    return torch.where(residual == 0, 0.0, residual / whole)


def _error_in_basis(total: JointEigen, pair: Kronecker) -> Float[Tensor, "*batch"]:
    """The same for eigendirections, by ‖t‖² − 2<t,p> + ‖p‖²: accurate to 1e-8."""
    a, b, values = total.left.matrix.double(), total.right.matrix.double(), total.values.double()
    own = (values * ((a.mT @ a).square() @ values @ (b.mT @ b).square())).sum((-2, -1))
    cross = (values * pair.to(dtype=torch.float64).diagonal_in(a.mT, b.mT)).sum((-2, -1))
    other = (torch.linalg.matrix_norm(pair.left.double()) * torch.linalg.matrix_norm(pair.right.double())) ** 2
    return _unless_zero((own - 2 * cross + other).clamp_min(0), own).sqrt()


def _norms(factors: Sequence[Float[Tensor, "..."]]) -> Float[Tensor, "*batch terms"]:
    norms = [torch.linalg.vector_norm(x, dim=(-2, -1), dtype=torch.float64) for x in factors]
    return torch.stack(torch.broadcast_tensors(*norms), -1)


def _gram(
    factors: Sequence[Float[Tensor, "..."]], norms: Float[Tensor, "*batch terms"]
) -> Float[Tensor, "*batch terms terms"]:
    """Inner products of the factors, each brought to norm one."""
    rows = []
    for x in factors:
        own = x.double().flatten(-2)
        # One conversion at a time: terms in single precision are never all held in double as well.
        rows.append([torch.linalg.vecdot(own, y.double().flatten(-2)) for y in factors])
    entries = torch.broadcast_tensors(*(entry for row in rows for entry in row))
    gram = torch.stack(entries, -1).unflatten(-1, (len(rows), len(rows)))
    return _unless_zero(_unless_zero(gram, norms[..., :, None]), norms[..., None, :])


def mixing_weights(
    left: Float[Tensor, "*batch terms terms"], right: Float[Tensor, "*batch terms terms"]
) -> tuple[Float[Tensor, "*batch terms"], Float[Tensor, "*batch terms"]]:
    """How to mix the factors, c for the left and d for the right, from their Gram matrices.

    With G_L = S Sᵀ the eigenproblem is symmetric, Sᵀ G_R S w = σ² w, and d = S w, c = G_R d need no inverse,
    so repeated and rank-deficient terms are no special case.
    """
    values, vectors = torch.linalg.eigh(left)
    root = vectors * values.clamp_min(0).sqrt()[..., None, :]
    spectrum, w = torch.linalg.eigh(root.mT @ right @ root)
    d = (root @ w[..., -1:]).squeeze(-1)
    # Non-negative Grams have a non-negative leading eigenvector: the absolute value only removes rounding and the
    # free sign. Otherwise (indefinite terms) there is just a sign to settle.
    non_negative = ((left >= 0) & (right >= 0)).all(-1).all(-1)[..., None]
    d = torch.where(non_negative, d.abs(), d * torch.where(d.sum(-1, keepdim=True) < 0, -1.0, 1.0))
    c = (right @ d[..., None]).squeeze(-1)
    # Here ‖Σ d R‖ = σ and ‖Σ c L‖ = σ²; the pair is to have norm σ in all, shared evenly.
    sigma = spectrum[..., -1:].clamp_min(0).sqrt()
    return _unless_zero(c, sigma**1.5), _unless_zero(d, sigma.sqrt())


def _mix(factors: Sequence[Float[Tensor, "..."]], weights: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Σ w_k X_k in float64, summed into one buffer."""
    shape = torch.broadcast_shapes(*(x.shape for x in factors), (*weights.shape[:-1], 1, 1))
    result = torch.zeros(shape, dtype=torch.float64, device=weights.device)
    for k, x in enumerate(factors):
        result.addcmul_(x.double(), weights[..., k, None, None])
    return result


def _unless_zero(x: Float[Tensor, "..."], y: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x / y, and zero where y is: a vanishing term has no direction to contribute."""
    return torch.where(y == 0, 0.0, x / torch.where(y == 0, 1.0, y))
