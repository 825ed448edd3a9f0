"""Sums of structured matrices brought to one eigenframe, and to the form of a learned prior's precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import add

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra.base import Matrix, is_large
from posterity.algebra.dense import DenseMatrix
from posterity.algebra.diagonal import (
    Basis,
    DiagonalMatrix,
    JointEigen,
    ScaledIdentity,
    eigenvectors,
    scaled_identity,
)
from posterity.algebra.floored import FlooredMatrix
from posterity.algebra.kronecker import Kronecker, KroneckerSum
from posterity.algebra.nearest import nearest
from posterity.algebra.turned import RotatedMatrix
from posterity.errors import EmptySum

NATS, WRITTEN, SIGNS = 0.5, 6, 16
"""Of a turned frame: what it may lose, how many numbers among its directions for each of the frame's own, random signs."""


def eigenframe(matrix: Matrix) -> JointEigen | None:
    """The orthogonal bases of a matrix with their values, floor left out; None where there are none but the identity.

    Of a Kronecker pair they are its kept eigenvectors, computed at first need.
    """
    found = matrix.diagonalised if isinstance(matrix, FlooredMatrix) else matrix
    if isinstance(found, Kronecker) and not found.batch:
        found = found.in_eigenframe()
    if isinstance(found, JointEigen) and found.is_orthogonal:
        return found
    return None


def as_floored(matrix: Matrix) -> FlooredMatrix:
    """A precision as a curvature plus a floor, the form that a prior is handed down in.

    Identities become the floor and everything else the curvature. Exact but for sums of several Kronecker products and for
    eigenbases that are not orthogonal, which are brought to one frame.
    """
    match matrix:
        case FlooredMatrix():
            return matrix
        case RotatedMatrix():
            return FlooredMatrix(matrix, 1.0, 0.0)
        case ScaledIdentity():
            return FlooredMatrix(scaled_identity(0.0, matrix.over).to(matrix.device), 1.0, float(matrix.scale))
        case Kronecker() if is_large(*matrix.shape) and not matrix.batch:
            return FlooredMatrix(matrix, 1.0, 0.0)
        case KroneckerSum():
            floors = [term for term in matrix.terms if term.is_scaled_identity]
            rest = [term for term in matrix.terms if not term.is_scaled_identity]
            floor = sum(float(term.left[0, 0] * term.right[0, 0]) for term in floors)
            if not rest:
                return FlooredMatrix(scaled_identity(0.0, matrix.shape).to(matrix.device), 1.0, floor)
            return FlooredMatrix(in_one_frame(rest), 1.0, floor)
    return FlooredMatrix(in_one_frame([matrix]), 1.0, 0.0)


def in_one_frame(terms: Sequence[Matrix]) -> Matrix:
    """A sum of positive semidefinite matrices in one eigenframe, with the sum's exact diagonal in it as values.

    The nearest Kronecker pair to the sum only finds the directions. (As the sum itself it would lose floors and small
    eigenvalues: its log det can be off by nats a weight.) Trace and every multiple of the identity are exact, no value is below
    the least eigenvalue of the sum, and log dets are close (`posterity_studies` measures how close). A single pair, and a pair
    with identities, are exact. Diagonal terms alone stay diagonal, and a dense term makes the sum dense: both exact.
    O(out³ + inp³).
    """
    if not terms:
        raise EmptySum("a sum of no terms has no shape: give at least one.")
    parts = _pieces(terms)
    if any(isinstance(part, DenseMatrix) for part in parts):
        return DenseMatrix(reduce(add, (part.to(dtype=torch.float64).dense() for part in parts)), terms[0].shape)
    if all(isinstance(part, ScaledIdentity | DiagonalMatrix) for part in parts):
        return reduce(add, parts)
    left, right = _directions(parts)
    values = torch.stack([part.diagonal_in(left.mT, right.mT).double() for part in parts]).sum(0).clamp_min(0)
    return JointEigen(Basis.orthogonal(left), Basis.orthogonal(right), values.to(left.dtype))


def in_turned_frame(terms: Sequence[Matrix], floor: float = 0.0) -> Matrix:
    """The same with the directions turned that the sum couples most: several times closer, for seven times the numbers at most.

    Couplings are between values with the `floor` that will be added to them; the row sums of their squares are seen by random
    signs. As many directions are written out as leave less than half a nat, by that estimate. Large blocks stay as they are.
    """
    frame = in_one_frame(terms)
    if not isinstance(frame, JointEigen) or is_large(*frame.shape):
        return frame
    parts = _pieces(terms)
    left, right, values = frame.left.matrix, frame.right.matrix, frame.values.flatten()
    coupled = _couplings(parts, frame, floor).flatten()
    order = coupled.argsort(descending=True)
    # ¼ Σ c² of what couples no two of the directions that are turned: each pair of the others counts twice at most.
    rest = 0.5 * coupled[order].flip(0).cumsum(0).flip(0)
    count = min(int((rest > NATS).sum()), math.isqrt(WRITTEN * (left.numel() + right.numel() + values.numel())))
    if count < 2:
        return frame
    index = order[:count].sort().values
    inside = torch.stack([part.among(left.mT, right.mT, index) for part in parts]).sum(0)
    found, vectors = torch.linalg.eigh((inside + inside.mT) / 2)
    values = values.index_put((index,), found.clamp_min(0)).view_as(frame.values)
    return RotatedMatrix(JointEigen(frame.left, frame.right, values), index, vectors)


def _couplings(parts: Sequence[Matrix], frame: JointEigen, floor: float) -> Float[Tensor, "out inp"]:
    """Σ over all other directions of the sum's squared entry, relative to the values of both: estimated by random signs."""
    left, right = frame.left.matrix, frame.right.matrix
    signs = torch.randint(2, (SIGNS, *frame.shape), generator=torch.Generator().manual_seed(0)).to(left) * 2 - 1
    short = (frame.values + floor).clamp_min(torch.finfo(left.dtype).tiny).rsqrt()
    moved = left @ (short * signs) @ right.mT
    seen = torch.stack([part.matmul(moved) for part in parts]).sum(0)
    return (short * (left.mT @ seen @ right) - frame.values * short.square() * signs).square().mean(0)


def frame_error(terms: Sequence[Matrix], frame: Matrix) -> float:
    """‖sum − frame‖ / ‖sum‖ in Frobenius norm for a frame made by `in_one_frame` or `in_turned_frame`: what it left out."""
    if not isinstance(frame, JointEigen | RotatedMatrix):
        return 0.0
    parts = [_as_eigen(piece) for piece in _pieces(terms)]
    whole = sum(float((_diagonal_along(other, one) * other.values).sum()) for one in parts for other in parts)
    # What is kept is an orthogonal projection of the sum: Pythagoras gives what is left.
    left = max(0.0, whole - float(frame.values.square().sum()))
    return (left / whole) ** 0.5 if whole else 0.0


def _diagonal_along(frame: JointEigen | RotatedMatrix, matrix: Matrix) -> Float[Tensor, "out inp"]:
    if isinstance(frame, RotatedMatrix):
        return frame.along(matrix)
    return matrix.diagonal_in(frame.left.matrix.mT, frame.right.matrix.mT)


def _as_eigen(matrix: Matrix) -> JointEigen | RotatedMatrix:
    """Any structure with orthogonal eigenvectors that are known, in them."""
    match matrix:
        case RotatedMatrix():
            return matrix
        case JointEigen() if matrix.is_orthogonal:
            return matrix
        case Kronecker():
            return matrix.in_eigenframe()
        case ScaledIdentity() | DiagonalMatrix():
            eye = [Basis.orthogonal(torch.eye(n, dtype=torch.float64, device=matrix.device)) for n in matrix.shape]
            return JointEigen(eye[0], eye[1], matrix.diagonal_in(eye[0].matrix, eye[1].matrix).double())
    return _as_eigen(nearest(matrix)) if isinstance(matrix, JointEigen) else _as_eigen(in_one_frame([matrix]))


def _pieces(terms: Sequence[Matrix]) -> list[Matrix]:
    """Terms without nesting, in float64, but for large blocks in float32, which stay what they are."""
    found: list[Matrix] = []
    for term in terms:
        match term:
            case FlooredMatrix():
                if term.share:
                    found += _pieces([term.curvature * term.share])
                if term.floor or not term.share:
                    found.append(scaled_identity(term.floor, term.shape).to(term.device))
            case KroneckerSum():
                found += _pieces(term.terms)
            case _:
                found.append(term if is_large(*term.shape) else term.to(dtype=torch.float64))
    return found


def _directions(parts: Sequence[Matrix]) -> tuple[Tensor, Tensor]:
    """Eigenvectors of the nearest pair to all terms that have directions: identities and diagonals have none of their own."""
    pairs: list[Kronecker] = []
    frames: list[JointEigen] = []
    for part in parts:
        if isinstance(part, JointEigen | RotatedMatrix):
            frames.append(part.plain() if isinstance(part, RotatedMatrix) else part)
        elif isinstance(part, Kronecker) and not part.is_scaled_identity:
            pairs.append(part)
    if len(frames) == 1 and not pairs and frames[0].is_orthogonal:
        return frames[0].left.matrix, frames[0].right.matrix
    pairs += [nearest(frame) for frame in frames]
    if not pairs:
        eye = [torch.eye(n, dtype=torch.float64, device=parts[0].device) for n in parts[0].shape]
        return eye[0], eye[1]
    if len(pairs) == 1:
        frame = pairs[0].in_eigenframe()
        return frame.left.matrix, frame.right.matrix
    joint = nearest(KroneckerSum(pairs))
    single = is_large(*joint.shape) and all(pair.dtype == torch.float32 for pair in pairs)
    left, right = (eigenvectors(x, single=single)[1] for x in (joint.left, joint.right))
    return left, right
