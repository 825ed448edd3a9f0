"""Eigenvectors of a prior's large blocks in a file beside it: computed once, checked whenever they are read."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from posterity.algebra import FlooredMatrix, Kronecker, Matrix, eigenvectors, is_large
from posterity.files import replacing, room_for
from posterity.gaussian.gaussian import Gaussian
from posterity.memory import require_memory

log = logging.getLogger("posterity")

SIDES = ("left", "right")
PROBES = 4
CLOSE = 1e-4
"""What a frame may miss its factor by, relative to its largest eigenvalue: some hundred times the rounding of float32."""

Eigen = tuple[Tensor, Tensor]


def keep_frames(gaussian: Gaussian, path: str | os.PathLike[str]) -> None:
    """Give every large Kronecker pair its eigenframe, from the file or by computing it. See `Gaussian.keep_frames`."""
    pairs = {name: pair for name, matrix in gaussian.precision.items() if (pair := _pair(matrix)) is not None}
    missing = {name: pair for name, pair in pairs.items() if "_eigenframe" not in pair.__dict__}
    need = sum(4 * (out**2 + inp**2 + 4 * out * inp) for out, inp in (pair.shape for pair in missing.values()))
    require_memory(need, "the eigenvectors of this prior")
    found = _read(Path(path), missing)
    for name, pair in missing.items():
        if name not in found:
            left, right = (eigenvectors(x, single=pair.dtype == torch.float32) for x in (pair.left, pair.right))
            pair.with_eigenframe(left, right)
    if missing.keys() - found:
        _write(Path(path), pairs)


def _pair(matrix: Matrix) -> Kronecker | None:
    matrix = matrix.curvature if isinstance(matrix, FlooredMatrix) else matrix
    return matrix if isinstance(matrix, Kronecker) and is_large(*matrix.shape) else None


def _write(path: Path, pairs: Mapping[str, Kronecker]) -> None:
    tensors: dict[str, Tensor] = {}
    for name, pair in pairs.items():
        frame = pair.in_eigenframe()
        bases = frame.left.matrix, frame.right.matrix
        for side, basis, values in zip(SIDES, bases, pair.__dict__["_eigenvalues"], strict=True):
            # LAPACK's vectors lie column by column: their transpose is written without a copy.
            tensors[f"{name}.{side}"], tensors[f"{name}.{side}.values"] = basis.mT.contiguous(), values
    with room_for(path, sum(x.nbytes for x in tensors.values())), replacing(path) as draft:
        safetensors.torch.save_file(tensors, draft)


def _read(path: Path, pairs: Mapping[str, Kronecker]) -> set[str]:
    """Set frames from the file, and give the names of those that fit."""
    done: set[str] = set()
    if not path.is_file():
        return done
    try:
        with safetensors.safe_open(path, "pt") as file:
            for name in (name for name in pairs if {f"{name}.{side}" for side in SIDES} <= set(file.keys())):
                pair = pairs[name]
                left, right = (
                    _checked(x, file.get_tensor(f"{name}.{side}.values"), file.get_tensor(f"{name}.{side}").mT)
                    for side, x in zip(SIDES, (pair.left, pair.right), strict=True)
                )
                if left is not None and right is not None:
                    pair.with_eigenframe(left, right)
                    done.add(name)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        log.warning("%s cannot be read (%s): the frames are computed again", path, error)
    if refused := [name for name in pairs if name not in done]:
        log.warning("%s has no frame that fits for %d block(s), such as %s", path, len(refused), refused[0])
    return done


def _checked(factor: Tensor, values: Tensor, vectors: Tensor) -> Eigen | None:
    """The eigenvalues and eigenvectors given, or nothing if they are not those of the factor.

    Random directions show it, at n² each, where a whole product would take as long as half of the decomposition.
    """
    n = len(factor)
    if vectors.shape != factor.shape or values.shape != (n,) or values.dtype != torch.float64:
        return None
    if vectors.dtype not in (torch.float32, torch.float64) or not bool((values >= 0).all()):
        return None
    factor = factor.to(vectors)
    probes = torch.randn(n, PROBES).to(vectors)
    turned = vectors.mT @ probes
    off = float((vectors @ turned - probes).abs().max())
    missed = float((factor @ probes - vectors @ (values.to(vectors)[:, None] * turned)).abs().max())
    allowed = CLOSE * n**0.5
    # Not a number is above every bound.
    return (values, vectors) if off <= allowed and missed <= allowed * max(float(values.max()), 1e-300) else None
