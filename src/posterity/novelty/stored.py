"""A reference as tensors and a few words, for the file of a prior or a fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from posterity.errors import DamagedFile
from posterity.gaussian.card import KnownFeatures
from posterity.novelty.neighbours import Neighbourhood, names
from posterity.novelty.ranks import Ranks
from posterity.novelty.reference import Reference

VERSION = 1
ABSENT = (
    "this file holds no statistics of known inputs (it was written by an older version, or without them): `.unknown` is not "
    "given. Make the prior again, or give data to compare with."
)
"""What to say of a file without a reference."""


def to_known(reference: Reference | None) -> KnownFeatures:
    """Flat tensors, and what JSON can hold of the rest. At most 1 MB of features, 2 kB for each score."""
    if reference is None:
        return KnownFeatures()
    tensors = {f"rows.{i}": rows.contiguous() for i, rows in enumerate(reference.rows.values())}
    alone = () if reference.alone is None else (reference.alone,)
    tensors["ranks"] = torch.stack([x.values for x in (*reference.ranks.values(), reference.joint, *alone)]).float()
    words = {
        "version": VERSION,
        "layers": list(reference.rows),
        "sizes": list(reference.sizes.values()),
        "moments": list(reference.moments),
        "count": reference.count,
        "source": reference.source,
        "alone": reference.alone is not None,
    }
    return KnownFeatures(tensors, words)


def from_known(known: KnownFeatures) -> Reference:
    """The reference that `to_known` took apart: its p-values are the same to the last bit.

    Raises:
        DamagedFile: if the parts do not fit together, or are of a later version.
    """
    try:
        return _read(known.tensors, known.words)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedFile(
            f"the statistics of known inputs cannot be read ({error}): make the prior or the fit again."
        ) from None


def features_of(known: KnownFeatures) -> dict[str, Tensor]:
    """The features of known inputs that a stored reference holds, by layer."""
    pairs = enumerate(zip(known.words.get("layers", ()), known.words.get("sizes", ()), strict=True))
    return {layer: known.tensors[f"rows.{i}"].float() * float(size) for i, (layer, size) in pairs}


def _read(tensors: Mapping[str, Tensor], words: Mapping[str, Any]) -> Reference:
    if words["version"] != VERSION:
        raise ValueError(f"version {words['version']}, this library reads {VERSION}")
    if not all(isinstance(layer, str) for layer in words["layers"]):
        raise ValueError("a layer without a name")
    rows = {layer: tensors[f"rows.{i}"] for i, layer in enumerate(words["layers"])}
    sizes = {layer: float(size) for layer, size in zip(rows, words["sizes"], strict=True)}
    moments = tuple(str(name) for name in words["moments"])
    called = [name for layer in rows for name in names(layer)] + list(moments)
    values, count = tensors["ranks"].double(), int(words["count"])
    wanted = len(called) + 1 + bool(words["alone"])
    if not 0 <= count <= 2**53:
        raise ValueError(f"{count} inputs")
    if values.ndim != 2 or len(values) != wanted or (count == 0) != (values.shape[1] == 0):
        raise ValueError(f"{len(called)} scores and {count} inputs, but ranks of {tuple(values.shape)}")
    if not all(bool(torch.isfinite(x).all()) for x in (values, *rows.values())) or bool((values.diff(dim=1) < 0).any()):
        raise ValueError("numbers that are not finite, or not in order")
    spaces = {layer: Neighbourhood.of(x.double() * sizes[layer]) for layer, x in rows.items()}
    ranks = [Ranks(one, count) for one in values]
    joint, alone = ranks[len(called)], ranks[-1] if words["alone"] else None
    own = dict(zip(called, ranks, strict=False))
    return Reference(rows, sizes, spaces, own, joint, moments, bool(words["source"]), alone)
