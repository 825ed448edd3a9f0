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
    FlooredMatrix,
    JointEigen,
    Kronecker,
    KroneckerSum,
    Matrix,
    RotatedMatrix,
    ScaledIdentity,
    finite,
    positive,
)
from posterity.algebra.floored import FLOORED
from posterity.errors import DamagedFile, NotStorable

LOOSE = 0.01
"""What a basis may be off from its inverse and its determinant, however ill-conditioned it is."""
KINDS = (
    "dense",
    "diagonal",
    "identity",
    "joint eigen",
    "kronecker",
    "kronecker sum",
    "turned",
    *(FLOORED + kind for kind in ("dense", "diagonal", "identity", "joint eigen", "kronecker", "turned")),
)


def take_apart(matrix: Matrix) -> tuple[str, dict[str, Tensor]]:
    """The kind of structure and its tensors by role, if a file has a place for them."""
    if matrix.batch:
        raise NotStorable(
            f"the precision is a batch of {'×'.join(map(str, matrix.batch))} matrices: a file holds one for each block."
        )
    kind, tensors = matrix.tensors()
    if kind not in KINDS:
        raise NotStorable(f"the precision is a {type(matrix).__name__}: the file format knows {', '.join(KINDS)}.")
    return kind, tensors


def count(kind: str, tensors: Mapping[str, Tensor]) -> int:
    """How many terms a sum has, or how many directions of a frame are turned; 1 for all others."""
    if kind == "kronecker sum":
        return len(tensors) // 2
    return len(tensors["turned.index"]) if kind.endswith("turned") else 1


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
    return sides if kind != "turned" else sides | {"turned.index": (terms,), "turned.vectors": (terms, terms)}


def put_together(kind: str, over: tuple[int, int], terms: int, tensors: Mapping[str, Tensor]) -> Matrix:
    """The structure again, from tensors of the right shapes. What a constructor does not check is checked here.

    Of a curvature with share and floor only the sum has to be definite. That a pair has no negative eigenvalue shows where it is
    diagonalised, not here.
    """
    alone = _without_floor(kind.removeprefix(FLOORED), over, terms, tensors)
    if not kind.startswith(FLOORED):
        return _definite(alone)
    share, floor = float(tensors["share"]), float(tensors["floor"])
    if not (0 <= share < math.inf and 0 <= floor < math.inf):
        raise DamagedFile(f"a share of {share:g} and a floor of {floor:g}: both must be at least 0 and finite.")
    if isinstance(alone, Kronecker):
        lowest = min(float(factor.diagonal().min()) for factor in (alone.left, alone.right))
    else:
        values = _values(alone)
        lowest = 0.0 if values is None else float(values.min())
    if lowest < 0:
        raise DamagedFile(f"a curvature with {lowest:.2e} for an eigenvalue or on a diagonal: none may be negative.")
    matrix = FlooredMatrix(alone, share, floor)
    if not isinstance(alone, Kronecker):
        _definite(matrix.total)
    return matrix


def _without_floor(kind: str, over: tuple[int, int], terms: int, tensors: Mapping[str, Tensor]) -> Matrix:
    match kind:
        case "dense":
            return DenseMatrix(tensors["values"], over)
        case "diagonal":
            return DiagonalMatrix(tensors["values"])
        case "identity":
            return ScaledIdentity(tensors["scale"], over)
        case "kronecker":
            return Kronecker(tensors["left.0"], tensors["right.0"])
        case "kronecker sum":
            return KroneckerSum([Kronecker(tensors[f"left.{k}"], tensors[f"right.{k}"]) for k in range(terms)])
    frame = JointEigen(_basis(tensors, "left"), _basis(tensors, "right"), tensors["values"])
    if kind != "turned":
        return frame
    index, vectors = tensors["turned.index"], tensors["turned.vectors"]
    if not torch.equal(index, index.long().to(index)):
        raise DamagedFile("the directions that are turned are no whole numbers.")
    finite(vectors, "the turned directions")
    _consistent(Basis.orthogonal(vectors), "turned")
    return RotatedMatrix(frame, index.long(), vectors)


def _values(matrix: Matrix) -> Tensor | None:
    """What says by its signs whether the matrix is definite, where that is seen without a decomposition."""
    match matrix:
        case ScaledIdentity():
            return matrix.scale
        case DiagonalMatrix() | JointEigen() | RotatedMatrix():
            return matrix.values
    return None


def _definite(matrix: Matrix) -> Matrix:
    if (values := _values(matrix)) is not None:
        positive(values, "the precision")
    return matrix


def _basis(tensors: Mapping[str, Tensor], side: str) -> Basis:
    if f"{side}.orthogonal" in tensors:
        basis = Basis.orthogonal(tensors[f"{side}.orthogonal"])
        finite(basis.matrix, f"the {side} basis")
    else:
        basis = Basis(tensors[f"{side}.matrix"], tensors[f"{side}.inverse"], tensors[f"{side}.logabsdet"])
        for x in (basis.matrix, basis.inverse, basis.logabsdet):
            finite(x, f"the {side} basis")
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
    # A few directions that no one can foresee find any difference, at n² instead of n³.
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
