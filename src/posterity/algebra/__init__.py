"""Structured symmetric matrices over a layer's weights: operators are exact, approximations are functions."""

from typing import Any

from posterity.algebra.base import Matrix, finite, is_large, positive
from posterity.algebra.dense import DenseMatrix
from posterity.algebra.diagonal import Basis, DiagonalMatrix, JointEigen, ScaledIdentity, eigenvectors, scaled_identity
from posterity.algebra.floored import FlooredMatrix, LeadingDirections, leading
from posterity.algebra.frame import Frame
from posterity.algebra.kronecker import Kronecker, KroneckerSum
from posterity.algebra.nearest import mixing_weights, nearest, relative_error
from posterity.algebra.one_frame import as_floored, eigenframe, frame_error, in_one_frame, in_turned_frame
from posterity.algebra.turned import RotatedMatrix
from posterity.deprecated import gone

__all__ = [
    "Basis",
    "DenseMatrix",
    "DiagonalMatrix",
    "FlooredMatrix",
    "Frame",
    "JointEigen",
    "Kronecker",
    "KroneckerSum",
    "LeadingDirections",
    "Matrix",
    "RotatedMatrix",
    "ScaledIdentity",
    "as_floored",
    "eigenframe",
    "eigenvectors",
    "finite",
    "frame_error",
    "in_one_frame",
    "in_turned_frame",
    "is_large",
    "leading",
    "mixing_weights",
    "nearest",
    "positive",
    "relative_error",
    "scaled_identity",
]


def __getattr__(name: str) -> Any:
    raise gone("algebra", name)
