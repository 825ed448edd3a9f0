"""A structured matrix as named tensors, and back: what a file holds of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from posterity.algebra import (
    Basis,
    DenseMatrix,
    DiagonalMatrix,
    Floored,
    JointEigen,
    Kronecker,
    KroneckerSum,
    Matrix,
    ScaledIdentity,
    checks,
)
from posterity.errors import DamagedFile, NotStorable

LOOSE = 0.01
"""What a basis may be off from its inverse and its determinant, however ill-conditioned it is."""
FLOORED = "floored "
"""In front of the kind of a curvature that comes with a share and a floor."""
KINDS = (
    "dense",
    "diagonal",
    "identity",
    "joint eigen",
    "kronecker",
    "kronecker sum",
    *(FLOORED + kind for kind in ("dense", "diagonal", "identity", "joint eigen", "kronecker")),
)


def take_apart(matrix: Matrix) -> tuple[str, dict[str, Tensor]]:
    """The kind of structure and its tensors by role. Exact sums go by their terms."""
    if matrix.batch:
        raise NotStorable(
            f"the precision is a batch of {'×'.join(map(str, matrix.batch))} matrices: a file holds one for each block."
        )
    match matrix:
        case Floored():
            kind, tensors = take_apart(matrix.curvature)
            numbers = {role: torch.tensor(getattr(matrix, role), dtype=torch.float64) for role in ("share", "floor")}
            return FLOORED + kind, tensors | numbers
        case Kronecker():
            return "kronecker", {"left.0": matrix.left, "right.0": matrix.right}
        case KroneckerSum():
            sides = {f"left.{k}": term.left for k, term in enumerate(matrix.terms)}
            return "kronecker sum", sides | {f"right.{k}": term.right for k, term in enumerate(matrix.terms)}
        case JointEigen():
            return "joint eigen", {
                **_basis_apart(matrix.left, "left"),
                **_basis_apart(matrix.right, "right"),
                "values": matrix.values,
            }
        case DiagonalMatrix():
            return "diagonal", {"values": matrix.values}
        case DenseMatrix():
            return "dense", {"values": matrix.values}
        case ScaledIdentity():
            return "identity", {"scale": matrix.scale}
    raise NotStorable(f"the precision is a {type(matrix).__name__}: the file format knows {', '.join(KINDS)}.")


def _basis_apart(basis: Basis, side: str) -> dict[str, Tensor]:
    if basis.is_orthogonal:
        return {f"{side}.orthogonal": basis.matrix}
    # The inverse and the determinant are kept, not recomputed: only so are draws after loading the same to the last bit.
    return {f"{side}.matrix": basis.matrix, f"{side}.inverse": basis.inverse, f"{side}.logabsdet": basis.logabsdet}


def shapes(kind: str, over: tuple[int, int], terms: int, roles: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Which tensors a structure over an out × inp block has, and of what shape.

    The roles found matter for a joint eigenbasis alone, where each side is either orthogonal or comes with its inverse.
    """
    out, inp = over
    if kind.startswith(FLOORED):
        return shapes(kind.removeprefix(FLOORED), over, terms, roles) | {"share": (), "floor": ()}
    match kind:
        case "dense":
            return {"values": (out * inp, out * inp)}
        case "diagonal":
            return {"values": (out, inp)}
        case "identity":
            return {"scale": ()}
        case "kronecker" | "kronecker sum":
            sides: dict[str, tuple[int, ...]] = {f"left.{k}": (out, out) for k in range(terms)}
            return sides | {f"right.{k}": (inp, inp) for k in range(terms)}
    found = set(roles)
    sides = {"values": (out, inp)}
    for side, n in (("left", out), ("right", inp)):
        if f"{side}.orthogonal" in found:
            sides[f"{side}.orthogonal"] = (n, n)
        else:
            sides |= {f"{side}.matrix": (n, n), f"{side}.inverse": (n, n), f"{side}.logabsdet": ()}
    return sides


def put_together(kind: str, over: tuple[int, int], terms: int, tensors: Mapping[str, Tensor]) -> Matrix:
    """The structure again, from tensors of the right shapes. What a constructor does not check is checked here."""
    if kind.startswith(FLOORED):
        return _floored(kind.removeprefix(FLOORED), over, tensors)
    match kind:
        case "dense":
            return DenseMatrix(tensors["values"], over)
        case "diagonal":
            checks.positive(tensors["values"], "the diagonal")
            return DiagonalMatrix(tensors["values"])
        case "identity":
            checks.positive(tensors["scale"], "the identity's scale")
            return ScaledIdentity(tensors["scale"], over)
        case "kronecker":
            return Kronecker(tensors["left.0"], tensors["right.0"])
        case "kronecker sum":
            return KroneckerSum([Kronecker(tensors[f"left.{k}"], tensors[f"right.{k}"]) for k in range(terms)])
    checks.positive(tensors["values"], "the joint eigenbasis")
    return JointEigen(_basis(tensors, "left"), _basis(tensors, "right"), tensors["values"])


def _floored(kind: str, over: tuple[int, int], tensors: Mapping[str, Tensor]) -> Floored:
    """A curvature, which may be singular, with its share and floor, whose sum may not."""
    share, floor = float(tensors["share"]), float(tensors["floor"])
    if not (0 <= share < math.inf and 0 <= floor < math.inf):
        raise DamagedFile(f"a share of {share:g} and a floor of {floor:g}: both must be at least 0 and finite.")
    curvature: Matrix
    match kind:
        case "dense":
            curvature = DenseMatrix(tensors["values"], over)
        case "diagonal":
            curvature = DiagonalMatrix(tensors["values"])
        case "identity":
            curvature = ScaledIdentity(tensors["scale"], over)
        case "kronecker":
            return _floored_pair(tensors, share, floor)
        case _:
            curvature = JointEigen(_basis(tensors, "left"), _basis(tensors, "right"), tensors["values"])
    matrix = Floored(curvature, share, floor)
    match matrix.total:
        case ScaledIdentity() as total:
            checks.positive(total.scale, "the identity's scale")
        case DiagonalMatrix() | JointEigen() as total:
            checks.positive(total.values, "the precision")
    if kind != "dense":
        lowest = tensors["scale" if kind == "identity" else "values"].min()
        if float(lowest) < 0:
            raise DamagedFile(f"a curvature with the eigenvalue {float(lowest):.2e}: none may be negative.")
    return matrix


def _floored_pair(tensors: Mapping[str, Tensor], share: float, floor: float) -> Floored:
    """A pair with its share and floor. That it has no negative eigenvalue shows where it is diagonalised, not here."""
    for role in ("left.0", "right.0"):
        if float(tensors[role].diagonal().min()) < 0:
            raise DamagedFile("a factor of the curvature has a negative entry on its diagonal: none may be.")
    return Floored(Kronecker(tensors["left.0"], tensors["right.0"]), share, floor)


def _basis(tensors: Mapping[str, Tensor], side: str) -> Basis:
    if f"{side}.orthogonal" in tensors:
        basis = Basis.orthogonal(tensors[f"{side}.orthogonal"])
        checks.finite(basis.matrix, f"the {side} basis")
    else:
        basis = Basis(tensors[f"{side}.matrix"], tensors[f"{side}.inverse"], tensors[f"{side}.logabsdet"])
        for x in (basis.matrix, basis.inverse, basis.logabsdet):
            checks.finite(x, f"the {side} basis")
    _consistent(basis, side)
    return basis


def _consistent(basis: Basis, side: str) -> None:
    """A basis, its inverse and its determinant tell one story.

    Draws come from the inverse and a KL from the determinant: a file in which they disagree could certify one
    distribution and sample another.
    """
    matrix, inverse = basis.matrix.double(), basis.inverse.double()
    n = matrix.shape[-1]
    # Every direction at length one: a stretched column must not make the condition, and with it the tolerance, large.
    length = matrix.norm(dim=0)
    if not bool((length > 0).all()):
        raise DamagedFile(f"the {side} basis has a column of zeros.")
    matrix, inverse = matrix / length, inverse * length[:, None]
    # An inverse amplifies the rounding of its matrix by the condition number, of which this is an upper bound.
    condition = float(torch.linalg.matrix_norm(matrix) * torch.linalg.matrix_norm(inverse))
    rounding = 30 * max(_rounded_to(x) for x in (basis.matrix, basis.inverse, basis.logabsdet))
    # A few directions that nobody can foresee find any difference, at n² instead of n³.
    entropy = torch.Generator()
    entropy.seed()
    probes = torch.randn(n, 4, dtype=torch.float64, generator=entropy)
    off = float((matrix @ (inverse @ probes) - probes).abs().max())
    if not off <= (rounding * math.sqrt(n) if basis.is_orthogonal else min(rounding * condition, LOOSE)):
        raise DamagedFile(f"the {side} basis times its inverse misses the identity by {off:.1e}.")
    if basis.is_orthogonal:
        return
    found, true = float(basis.logabsdet), float(torch.linalg.slogdet(matrix).logabsdet + length.log().sum())
    if not abs(found - true) <= min(rounding * condition, LOOSE) + rounding * abs(true):
        raise DamagedFile(f"the {side} basis has log |det| {true:.6g}, and {found:.6g} is written for it.")


def _rounded_to(x: Tensor) -> float:
    """How coarsely the entries are rounded: those that were in float32 once stay so in float64."""
    once_single = x.dtype == torch.float64 and torch.equal(x.float().double(), x)
    return torch.finfo(torch.float32 if once_single else x.dtype).eps
