"""L ⊗ R, a precision with one factor for the outputs and one for the inputs of a layer, and exact sums of such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import torch
from jaxtyping import Float, Int
from torch import Tensor

from posterity.algebra.base import FactorisedSum, Matrix, is_large, per_matrix
from posterity.algebra.dense import DenseMatrix, cholesky, plus_identity, symmetric
from posterity.algebra.diagonal import Basis, JointEigen, ScaledIdentity, eigenvectors
from posterity.algebra.frame import Frame
from posterity.errors import EmptySum, NotPositiveDefinite, SizeMismatch, TooLarge

DENSE_LIMIT = 4096
"""The largest side for which a sum without a cheaper exact form is factorised densely (128 MB in float64)."""


@dataclass(frozen=True, eq=False)
class Kronecker(Matrix):
    """left ⊗ right over the row-major vec of an out × inp block: `(L⊗R) vec(W) = vec(L W R)`.

    Products cost two matmuls; solve, log det and draws one inverse Cholesky factor a side, made once and kept.
    """

    left: Tensor  # *batch out out
    right: Tensor  # *batch inp inp

    def __post_init__(self) -> None:
        symmetric(self.left, "Kronecker.left")
        symmetric(self.right, "Kronecker.right")
        if self.left.device != self.right.device:
            raise SizeMismatch(
                f"Kronecker.left is on {self.left.device} and .right on {self.right.device}: move both to one device."
            )
        _broadcast(self.left.shape[:-2], self.right.shape[:-2])

    @classmethod
    def unchecked(cls, left: Tensor, right: Tensor) -> Kronecker:
        """A Kronecker pair whose factors are not checked: for factors that are symmetric and finite by construction."""
        pair: Kronecker = object.__new__(cls)
        object.__setattr__(pair, "left", left)
        object.__setattr__(pair, "right", right)
        return pair

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[-1], self.right.shape[-1]

    @property
    def batch(self) -> torch.Size:
        return _broadcast(self.left.shape[:-2], self.right.shape[:-2])

    @property
    def dtype(self) -> torch.dtype:
        return torch.promote_types(self.left.dtype, self.right.dtype)

    @property
    def device(self) -> torch.device:
        return self.left.device

    @property
    def is_scaled_identity(self) -> bool:
        """Whether both factors are multiples of the identity, as in an isotropic prior."""
        return all(
            bool((x == x[..., :1, :1] * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)).all())
            for x in (self.left, self.right)
        )

    def in_eigenframe(self) -> JointEigen:
        """The same (positive semidefinite) pair by the eigenvectors of its factors: O(out³ + inp³). Computed once and kept.

        Large pairs in float32 have their bases in float32: see `eigenvectors`.
        """
        kept: JointEigen | None = self.__dict__.get("_eigenframe")
        if kept is None:
            with torch.inference_mode(False), torch.no_grad():
                single = self.dtype == torch.float32 and is_large(*self.shape)
                left, right = (eigenvectors(x.detach(), single=single) for x in (self.left, self.right))
                kept = self.with_eigenframe(left, right)
        return kept

    def with_eigenframe(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> JointEigen:
        """Keep eigenvalues and eigenvectors that were computed before, and give the pair in them."""
        values = (left[0][:, None] * right[0][None, :]).to(left[1].dtype)
        made = JointEigen(Basis.orthogonal(left[1]), Basis.orthogonal(right[1]), values)
        self.__dict__["_eigenframe"] = made
        self.__dict__["_eigenvalues"] = left[0], right[0]
        return made

    def joint(self, other: Kronecker) -> JointEigen:
        """`other` in the basis where this (positive definite) matrix is the identity: O(out³ + inp³), once.

        `prior.joint(curvature).combine(alpha, beta)` is then β·curvature + α·prior, exactly.
        """
        self._same_shape(other)
        left, lam = _joint(self.left, other.left, "left")
        right, mu = _joint(self.right, other.right, "right")
        return JointEigen(left, right, lam[..., :, None] * mu[..., None, :])

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        v = self._fits(v)
        return self.left.to(v.dtype) @ v @ self.right.to(v.dtype)

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        return "kronecker", {"left.0": self.left, "right.0": self.right}

    def logdet(self) -> Float[Tensor, "*batch"]:
        out, inp = self.shape
        frame = self.frame()
        left, right = (2 * f.diagonal(dim1=-2, dim2=-1).log().sum(-1) for f in (frame.left, frame.right))
        return frame.values.log().sum((-2, -1)) - inp * left - out * right

    def trace(self) -> Float[Tensor, "*batch"]:
        left, right = (x.diagonal(dim1=-2, dim2=-1).double().sum(-1) for x in (self.left, self.right))
        return left * right

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return torch.einsum("...ij,...kl->...ikjl", self.left, self.right).flatten(-4, -3).flatten(-2)

    def _factorise(self) -> Frame:
        inverses = []
        for name, factor in (("left", self.left), ("right", self.right)):
            lower = cholesky(factor, f"Kronecker.{name}")
            eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
            inverses.append(torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False))
        one = torch.ones((), dtype=torch.float64, device=self.device)
        return Frame(one.expand(*self.batch, *self.shape), (inverses[0], inverses[1]))

    def diagonal_in(self, left: Tensor, right: Tensor) -> Float[Tensor, "*batch out inp"]:
        rows = ((left @ self.left.to(left.dtype)) * left).sum(-1)
        columns = ((right @ self.right.to(right.dtype)) * right).sum(-1)
        return rows[..., :, None] * columns[..., None, :]

    def among(self, left: Tensor, right: Tensor, index: Int[Tensor, " some"]) -> Float[Tensor, "some some"]:
        rows, columns = index // right.shape[-2], index % right.shape[-2]
        outputs, inputs = left @ self.left.to(left) @ left.mT, right @ self.right.to(right) @ right.mT
        return outputs[rows[:, None], rows] * inputs[columns[:, None], columns]

    def jittered(self, relative: float) -> Kronecker:
        return Kronecker(plus_identity(self.left, relative), plus_identity(self.right, relative))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Kronecker:
        return Kronecker.unchecked(*(x.to(device=device, dtype=dtype) for x in (self.left, self.right)))

    def _plus(self, other: Matrix) -> KroneckerSum | None:
        return KroneckerSum((self,))._plus(other)

    def __mul__(self, scalar: float | Tensor) -> Kronecker:
        # The scale goes to the smaller factor: fewer entries to touch, the same product.
        if self.left.numel() <= self.right.numel():
            product = Kronecker.unchecked(self.left * per_matrix(scalar), self.right)
        else:
            product = Kronecker.unchecked(self.left, self.right * per_matrix(scalar))
        if "_frame" in self.__dict__ and isinstance(scalar, float | int) and scalar > 0:
            product.__dict__["_frame"] = self.__dict__["_frame"].scaled(float(scalar))
        return product


@dataclass(frozen=True, eq=False)
class KroneckerSum(FactorisedSum):
    """A sum of Kronecker products, as `a + b` makes it.

    Products and traces cost what the terms cost. Solve, log det and draws are exact too: one term by its own
    factors, two through `JointEigen`, more (or two that are both singular) through the dense form up to
    `DENSE_LIMIT`, beyond which `TooLarge` says what to do instead.
    """

    terms: Sequence[Kronecker]

    def __post_init__(self) -> None:
        if not self.terms:
            raise EmptySum("KroneckerSum needs at least one term: an empty sum has no shape.")
        object.__setattr__(self, "terms", tuple(self.terms))
        for term in self.terms[1:]:
            self.terms[0]._same_shape(term)

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms[0].shape

    @property
    def batch(self) -> torch.Size:
        return torch.broadcast_shapes(*(term.batch for term in self.terms))

    @property
    def dtype(self) -> torch.dtype:
        return reduce(torch.promote_types, (term.dtype for term in self.terms))

    @property
    def device(self) -> torch.device:
        return self.terms[0].device

    @cached_property
    def total(self) -> Kronecker | JointEigen | DenseMatrix:
        if len(self.terms) == 1:
            return self.terms[0]
        if len(self.terms) == 2:
            for reference, other in (self.terms, self.terms[::-1]):
                if _definite(reference):
                    return reference.joint(other).combine()
        if self.size > DENSE_LIMIT:
            raise TooLarge(
                f"a sum of {len(self.terms)} Kronecker products over {self.shape[0]}×{self.shape[1]} has no exact "
                f"factorisation short of a dense {self.size}×{self.size} matrix (limit {DENSE_LIMIT}): use "
                "nearest(total), which is approximate, or join all but one term with nearest and keep two."
            )
        return DenseMatrix(self.dense().double(), self.shape)

    def matmul(self, v: Float[Tensor, "*v out inp"]) -> Float[Tensor, "*r out inp"]:
        v = self._fits(v)
        return reduce(add, (term.matmul(v) for term in self.terms))

    def tensors(self) -> tuple[str, dict[str, Tensor]]:
        """By its terms: the sum stays exact."""
        sides = {f"left.{k}": term.left for k, term in enumerate(self.terms)}
        return "kronecker sum", sides | {f"right.{k}": term.right for k, term in enumerate(self.terms)}

    def trace(self) -> Float[Tensor, "*batch"]:
        return reduce(add, (term.trace() for term in self.terms))

    def dense(self) -> Float[Tensor, "*batch size size"]:
        return reduce(add, (term.dense() for term in self.terms))

    def diagonal_in(self, left: Tensor, right: Tensor) -> Float[Tensor, "*batch out inp"]:
        return reduce(add, (term.diagonal_in(left, right) for term in self.terms))

    def jittered(self, relative: float) -> KroneckerSum:
        return KroneckerSum([term.jittered(relative) for term in self.terms])

    def _plus(self, other: Matrix) -> KroneckerSum | None:
        match other:
            case Kronecker():
                return KroneckerSum((*self.terms, other))
            case KroneckerSum():
                return KroneckerSum((*self.terms, *other.terms))
            case ScaledIdentity():
                return KroneckerSum((Kronecker.unchecked(*other.factors()), *self.terms))
        return None

    def __mul__(self, scalar: float | Tensor) -> KroneckerSum:
        product = KroneckerSum([term * scalar for term in self.terms])
        if "total" in self.__dict__ and isinstance(scalar, float | int) and scalar > 0:
            product.__dict__["total"] = self.total * scalar
        return product


def _definite(term: Kronecker) -> bool:
    """Whether both factors have a Cholesky factor that is more than rounding."""
    for factor in (term.left.double(), term.right.double()):
        lower, info = torch.linalg.cholesky_ex(factor)
        pivots = lower.diagonal(dim1=-2, dim2=-1).square()
        floor = factor.shape[-1] * torch.finfo(torch.float64).eps * factor.diagonal(dim1=-2, dim2=-1).amax(-1)
        if bool((info != 0).any()) or not bool((pivots.amin(-1) > floor).all()):
            return False
    return True


def _broadcast(left: torch.Size, right: torch.Size) -> torch.Size:
    try:
        return torch.broadcast_shapes(left, right)
    except RuntimeError as error:
        raise SizeMismatch(
            f"Kronecker factors have batch dimensions {tuple(left)} and {tuple(right)}: they must broadcast."
        ) from error


def _joint(
    reference: Float[Tensor, "*b n n"], other: Float[Tensor, "*b n n"], side: str
) -> tuple[Basis, Float[Tensor, "*b n"]]:
    """A and λ with reference = A Aᵀ and other = A diag(λ) Aᵀ. One Cholesky, one eigh: O(n³)."""
    factor = cholesky(reference, f"the {side} factor of the reference term")
    half = torch.linalg.solve_triangular(factor, other.double(), upper=False)
    white = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = torch.linalg.eigh((white + white.mT) / 2)
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    # Curvatures are summed from products in single precision, whatever they are stored in, and whitening amplifies
    # that rounding: negative eigenvalues of its size are zeros.
    noise = other.shape[-1] * torch.finfo(torch.float32).eps
    allowed = noise * torch.linalg.matrix_norm(other.double()) * torch.linalg.matrix_norm(inverse) ** 2
    if bool((values[..., 0] < -allowed).any()):
        raise NotPositiveDefinite(
            f"the {side} factor of the second term is indefinite: relative to the first it has the eigenvalue "
            f"{float(values[..., 0].min()):.2e}. Curvatures and precisions are positive semidefinite."
        )
    logabsdet = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return Basis(factor @ vectors, vectors.mT @ inverse, logabsdet), values.clamp_min(0)
