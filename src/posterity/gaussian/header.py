"""What the header of a Gaussian's file says of its tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from posterity.errors import DamagedFile
from posterity.gaussian.card import Card
from posterity.gaussian.parts import KINDS
from posterity.gaussian.plain import Natural, Positive, one_of, plain, read
from posterity.gaussian.stored_provenance import ProvenanceSpec

DTYPES = ("bfloat16", "float16", "float32", "float64")
BESIDE = (*DTYPES, "bool", "uint8", "int8", "int16", "int32", "int64")
"""Of tensors beside the blocks: masks and indices too."""


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


@dataclass(frozen=True)
class Header:
    """Everything that is no tensor."""

    written_by: Mapping[str, str]
    provenance: ProvenanceSpec
    blocks: tuple[BlockSpec, ...]
    frozen: tuple[FrozenSpec, ...]
    card: Card
    """Without the provenance."""

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def from_json(cls, raw: Any) -> Header:
        found: Header = read(cls, raw, "the header")
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
