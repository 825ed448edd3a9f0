"""A reference as tensors and a few words, for the file of a prior or a fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from posterity.errors import DamagedFile
from posterity.novelty.neighbours import Neighbourhood, names
from posterity.novelty.ranks import Ranks
from posterity.novelty.reference import Reference

VERSION = 1
ABSENT = (
    "this file holds no statistics of known inputs (it was written by an older version, or without them): `.unknown` is not "
    "given. Make the prior again, or give data to compare with."
)
"""What to say of a file without a reference."""


def to_tensors(reference: Reference) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Flat tensors, and what JSON can hold of the rest. At most 1 MB of features, 2 kB for each score."""
    tensors = {f"rows.{i}": rows.contiguous() for i, rows in enumerate(reference.rows.values())}
    tensors["ranks"] = torch.stack([one.values for one in (*reference.ranks.values(), reference.joint)]).float()
    words = {
        "version": VERSION,
        "layers": list(reference.rows),
        "sizes": list(reference.sizes.values()),
        "moments": list(reference.moments),
        "count": reference.count,
        "source": reference.source,
    }
    return tensors, words


def from_tensors(tensors: Mapping[str, Tensor], words: Mapping[str, Any]) -> Reference:
    """The reference that `to_tensors` took apart: its p-values are the same to the last bit.

    Raises:
        DamagedFile: if the parts do not fit together, or are of a later version.
    """
    try:
        return _read(tensors, words)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedFile(
            f"the statistics of known inputs cannot be read ({error}): make the prior or the fit again."
        ) from None


def _read(tensors: Mapping[str, Tensor], words: Mapping[str, Any]) -> Reference:
    if words["version"] != VERSION:
        raise ValueError(f"version {words['version']}, this library reads {VERSION}")
    rows = {layer: tensors[f"rows.{i}"] for i, layer in enumerate(words["layers"])}
    sizes = {layer: float(size) for layer, size in zip(rows, words["sizes"], strict=True)}
    moments = tuple(str(name) for name in words["moments"])
    called = [name for layer in rows for name in names(layer)] + list(moments)
    values, count = tensors["ranks"].double(), int(words["count"])
    if values.ndim != 2 or len(values) != len(called) + 1 or (count == 0) != (values.shape[1] == 0):
        raise ValueError(f"{len(called)} scores and {count} inputs, but ranks of {tuple(values.shape)}")
    if not all(bool(torch.isfinite(x).all()) for x in (values, *rows.values())) or bool((values.diff(dim=1) < 0).any()):
        raise ValueError("numbers that are not finite, or not in order")
    spaces = {layer: Neighbourhood.of(x.double() * sizes[layer]) for layer, x in rows.items()}
    ranks = [Ranks(one, count) for one in values]
    return Reference(
        rows, sizes, spaces, dict(zip(called, ranks, strict=False)), ranks[-1], moments, bool(words["source"])
    )
