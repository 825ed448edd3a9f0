"""Structured symmetric matrices over a layer's weights: operators are exact, approximations are functions."""

from posterity.algebra.base import Frame, Matrix, finite, is_large, positive
from posterity.algebra.dense import DenseMatrix
from posterity.algebra.diagonal import Basis, DiagonalMatrix, JointEigen, ScaledIdentity, eigenvectors, scaled_identity
from posterity.algebra.floored import Floored, as_floored, eigenframe, frame_error, in_one_frame, in_turned_frame
from posterity.algebra.kronecker import Kronecker, KroneckerSum
from posterity.algebra.leading import Leading, leading
from posterity.algebra.nearest import factorwise_sum, mixing_weights, nearest, relative_error
from posterity.algebra.power import PowerHistory, power_history, power_method
from posterity.algebra.turned import Turned

__all__ = [
    "Basis",
    "DenseMatrix",
    "DiagonalMatrix",
    "Floored",
    "Frame",
    "JointEigen",
    "Kronecker",
    "KroneckerSum",
    "Leading",
    "Matrix",
    "PowerHistory",
    "ScaledIdentity",
    "Turned",
    "as_floored",
    "eigenframe",
    "eigenvectors",
    "factorwise_sum",
    "finite",
    "frame_error",
    "in_one_frame",
    "in_turned_frame",
    "is_large",
    "leading",
    "mixing_weights",
    "nearest",
    "positive",
    "power_history",
    "power_method",
    "relative_error",
    "scaled_identity",
]
