"""Provenance in a file: a few lines of the header, and the hashes as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posterity.data.hashes import COLUMNS
from posterity.data.provenance import Choice, Provenance
from posterity.errors import DamagedFile

SEEN, OLDER, CHOSEN = "seen", "hashes", "chosen"
"""Names of tensors: examples seen, examples seen as formats 1 and 2 tell them, examples by which choice k was made."""


@dataclass(frozen=True)
class ChoiceSpec:
    what: str
    options: int | None
    examples: int
    unknown: bool


@dataclass(frozen=True)
class ProvenanceSpec:
    """What the header says: texts, and how many hashes there are."""

    examples: int
    older: int
    gaps: tuple[str, ...]
    vouchers: tuple[str, ...]
    choices: tuple[ChoiceSpec, ...]

    @classmethod
    def of(cls, provenance: Provenance) -> ProvenanceSpec:
        choices = tuple(ChoiceSpec(c.what, c.options, len(c.by), c.unknown) for c in provenance.choices)
        counts = len(provenance.hashes), len(provenance.older)
        return cls(*counts, provenance.gaps, provenance.vouchers, choices)

    def to_json(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "older": self.older,
            "gaps": list(self.gaps),
            "vouchers": list(self.vouchers),
            "choices": [[c.what, c.options, c.examples, c.unknown] for c in self.choices],
        }


def tensors_of(provenance: Provenance) -> dict[str, Tensor]:
    """Hashes by name; sets without examples have none."""
    found = {SEEN: provenance.hashes, OLDER: provenance.older}
    found |= {f"{CHOSEN}.{k}": choice.by for k, choice in enumerate(provenance.choices)}
    return {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in found.items() if len(x)}


def assembled(spec: ProvenanceSpec, tensors: dict[str, Tensor]) -> Provenance:
    """The provenance that a header speaks of. Takes its tensors out of the dictionary."""
    choices = tuple(
        Choice(c.what, c.options, _hashes(tensors, f"{CHOSEN}.{k}", (c.examples, COLUMNS)), c.unknown)
        for k, c in enumerate(spec.choices)
    )
    seen, older = _hashes(tensors, SEEN, (spec.examples, COLUMNS)), _hashes(tensors, OLDER, (spec.older,))
    return Provenance(seen, older, spec.gaps, spec.vouchers, choices)


def from_older(
    hashes: int | None, count: int, chosen: str, mean: Mapping[str, Tensor], tensors: dict[str, Tensor]
) -> Provenance:
    """The provenance of a file of format 1 or 2, which tells less: what is not there is unknown.

    Its hashes are complete if there are as many as examples learned from. A mean away from zero that was learned from no data
    was taken from a network, whose past such files do not tell.
    """
    known = _hashes(tensors, OLDER, (hashes or 0,))
    gaps = []
    if len(known) < count:
        gaps.append(f"it was learned from {count:,} examples and tells {len(known):,} of them")
    elif not count and not len(known) and any(bool(x.any()) for x in mean.values()):
        gaps.append("its mean was taken from a network of unknown past")
    choices = (Choice("its strength", None, unknown=True),) if chosen else ()
    return Provenance(older=known, gaps=tuple(gaps), choices=choices)


def _hashes(tensors: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    if not shape[0]:
        return torch.empty(shape, dtype=torch.int64)
    found = tensors.pop(name, None)
    if found is None or found.dtype != torch.int64 or found.shape != shape:
        raise DamagedFile(f'it should have {shape[0]} hashes of examples under "{name}", 64-bit whole numbers.')
    first = found if found.ndim == 1 else found[:, 0]
    if not bool((first[1:] >= first[:-1]).all()):
        raise DamagedFile("the hashes of its examples are out of order.")
    return found.clone()
