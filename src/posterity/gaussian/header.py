"""What the header of a Gaussian's file says: of its tensors, and of what it has seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from posterity.data.hashes import COLUMNS
from posterity.data.provenance import Choice, Provenance
from posterity.errors import DamagedFile
from posterity.gaussian.card import Card
from posterity.gaussian.parts import KINDS
from posterity.gaussian.plain import Natural, Positive, one_of, plain, read

DTYPES = ("bfloat16", "float16", "float32", "float64")
BESIDE = (*DTYPES, "bool", "uint8", "int8", "int16", "int32", "int64")
"""Of tensors beside the blocks: masks and indices too."""
SEEN, CHOSEN = "seen", "chosen"
"""Names of the tensors of a provenance: examples seen, examples by which choice k was made."""


class TensorSpec(NamedTuple):
    """How one tensor is stored: LAPACK's results lie column by column, and products of them repeat to the last bit only
    if they do so again. Of a large symmetric factor only the rows of the lower triangle are, one behind the other."""

    dtype: Annotated[str, one_of(*DTYPES)]
    order: Annotated[str, one_of("rows", "columns", "lower")]


@dataclass(frozen=True)
class BlockSpec:
    """What the header says of one block."""

    name: str
    kind: Annotated[str, one_of(*KINDS)]
    shape: tuple[Positive, Positive]
    terms: Positive
    """Of a sum; of a turned frame, directions that are turned."""
    tensors: Mapping[str, TensorSpec]


class FrozenSpec(NamedTuple):
    """A tensor beside the blocks: carried, or too large and named by its digest alone."""

    name: str
    dtype: Annotated[str, one_of(*BESIDE)]
    shape: tuple[Natural, ...]
    digest: str | None


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

    def assembled(self, tensors: dict[str, Tensor]) -> Provenance:
        """The provenance that this speaks of. Takes its tensors out of the dictionary."""
        choices = tuple(
            Choice(c.what, c.options, _hashes(tensors, f"{CHOSEN}.{k}", c.examples), c.unknown)
            for k, c in enumerate(self.choices)
        )
        return Provenance(_hashes(tensors, SEEN, self.examples), self.gaps, self.vouchers, choices)


@dataclass(frozen=True)
class Header:
    """Everything that is no tensor."""

    written_by: Mapping[str, str]
    provenance: ProvenanceSpec
    blocks: tuple[BlockSpec, ...]
    frozen: tuple[FrozenSpec, ...]
    card: Card
    """Without the provenance."""
    known: str = ""
    """What is said of known inputs, as JSON; empty where nothing is, and in files of older versions."""

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def from_json(cls, raw: Any) -> Header:
        found: Header = read(cls, {"known": "", **raw} if isinstance(raw, dict) else raw, "the header")
        for name, times in Counter(block.name for block in found.blocks).most_common(1):
            if times > 1:
                raise DamagedFile(f"{times} blocks are called {name!r}.")
        for block in found.blocks:
            # Bounded by what is really there, so that no one counts to a declared 10¹⁸.
            turned = block.shape[0] * block.shape[1] if block.kind.endswith("turned") else 1
            if block.terms > (len(block.tensors) if block.kind == "kronecker sum" else turned):
                raise DamagedFile(f"block {block.name!r} cannot have {block.terms} terms.")
        if len({spec.name for spec in found.frozen}) < len(found.frozen):
            raise DamagedFile("two tensors beside the blocks have one name.")
        if any(temperature <= 0 for _, _, temperature in found.card.scales.values()):
            raise DamagedFile("the card's scales have a temperature that is not positive.")
        return found


def tensors_of(provenance: Provenance) -> dict[str, Tensor]:
    """Hashes by name; sets without examples have none."""
    found = {SEEN: provenance.hashes} | {f"{CHOSEN}.{k}": choice.by for k, choice in enumerate(provenance.choices)}
    return {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in found.items() if len(x)}


def _hashes(tensors: dict[str, Tensor], name: str, count: int) -> Tensor:
    if not count:
        return torch.empty(0, COLUMNS, dtype=torch.int64)
    found = tensors.pop(name, None)
    if found is None or found.dtype != torch.int64 or found.shape != (count, COLUMNS):
        raise DamagedFile(f'it should have {count} hashes of examples under "{name}", 64-bit whole numbers.')
    if not bool((found[1:, 0] >= found[:-1, 0]).all()):
        raise DamagedFile("the hashes of its examples are out of order.")
    return found.clone()
