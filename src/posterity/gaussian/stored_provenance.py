"""Provenance in a file: a few lines of the header, and the hashes as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from posterity.data.hashes import COLUMNS
from posterity.data.provenance import Choice, Provenance
from posterity.errors import DamagedFile
from posterity.gaussian.plain import Natural, Positive

SEEN, CHOSEN = "seen", "chosen"
"""Names of tensors: examples seen, examples by which choice k was made."""


class ChoiceSpec(NamedTuple):
    what: str
    options: Positive | None
    examples: Natural
    unknown: bool


@dataclass(frozen=True)
class ProvenanceSpec:
    """What the header says: texts, and how many hashes there are."""

    examples: Natural
    gaps: tuple[str, ...]
    vouchers: tuple[str, ...]
    choices: tuple[ChoiceSpec, ...]

    @classmethod
    def of(cls, provenance: Provenance) -> ProvenanceSpec:
        choices = tuple(ChoiceSpec(c.what, c.options, len(c.by), c.unknown) for c in provenance.choices)
        return cls(len(provenance.hashes), provenance.gaps, provenance.vouchers, choices)


def tensors_of(provenance: Provenance) -> dict[str, Tensor]:
    """Hashes by name; sets without examples have none."""
    found = {SEEN: provenance.hashes} | {f"{CHOSEN}.{k}": choice.by for k, choice in enumerate(provenance.choices)}
    return {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in found.items() if len(x)}


def assembled(spec: ProvenanceSpec, tensors: dict[str, Tensor]) -> Provenance:
    """The provenance that a header speaks of. Takes its tensors out of the dictionary."""
    choices = tuple(
        Choice(c.what, c.options, _hashes(tensors, f"{CHOSEN}.{k}", c.examples), c.unknown)
        for k, c in enumerate(spec.choices)
    )
    return Provenance(_hashes(tensors, SEEN, spec.examples), spec.gaps, spec.vouchers, choices)


def _hashes(tensors: dict[str, Tensor], name: str, count: int) -> Tensor:
    if not count:
        return torch.empty(0, COLUMNS, dtype=torch.int64)
    found = tensors.pop(name, None)
    if found is None or found.dtype != torch.int64 or found.shape != (count, COLUMNS):
        raise DamagedFile(f'it should have {count} hashes of examples under "{name}", 64-bit whole numbers.')
    if not bool((found[1:, 0] >= found[:-1, 0]).all()):
        raise DamagedFile("the hashes of its examples are out of order.")
    return found.clone()
