"""The header of a prior's file: JSON that is believed in nothing before it was checked."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from posterity.errors import DamagedFile, FutureVersion
from posterity.gaussian.card import Card
from posterity.gaussian.parts import KINDS
from posterity.gaussian.stored_provenance import ChoiceSpec, ProvenanceSpec

FORMAT = 8
"""A field more, or another meaning of one, raises it. Older formats stay readable; what fits into one from 4 on is written so."""
SINCE = {5: ("lower", "floored kronecker"), 6: ("turned", "floored turned")}
"""Orders of entries, and kinds of blocks, that formats before have not."""

ONLY_BEFORE_3 = ("source", "chosen")
"""Fields of the card that provenance took the place of."""
SINCE_2 = ("chosen", "frozen")
SINCE_3 = ("classes",)
SINCE_7 = ("recipe",)
"""Fields of the card that formats before have not."""

DTYPES = ("bfloat16", "float16", "float32", "float64")
BESIDE = (*DTYPES, "bool", "uint8", "int8", "int16", "int32", "int64")
"""Of tensors beside the blocks: masks and indices too."""
ORDERS = ("rows", "columns", "lower")
LARGEST = 2**63 - 1
T = TypeVar("T")


@dataclass(frozen=True)
class TensorSpec:
    """How one tensor is stored: LAPACK's results lie column by column, and products of them repeat to the last bit only
    if they do so again. Of a large symmetric factor only the rows of the lower triangle are, one behind the other."""

    dtype: str
    order: str


@dataclass(frozen=True)
class BlockSpec:
    """What the header says of one block."""

    name: str
    kind: str
    shape: tuple[int, int]
    terms: int
    """Of a sum; of a turned frame, directions that are turned."""
    tensors: Mapping[str, TensorSpec]


@dataclass(frozen=True)
class FrozenSpec:
    """A tensor beside the blocks: carried, or too large and named by its digest alone."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str | None


@dataclass(frozen=True)
class OlderProvenance:
    """What formats 1 and 2 say of the data: how many hashes there are, and a fingerprint of data that chose the strength."""

    hashes: int | None
    chosen: str


@dataclass(frozen=True)
class Header:
    blocks: tuple[BlockSpec, ...]
    card: Card
    """Without the provenance."""
    provenance: ProvenanceSpec | OlderProvenance
    written_by: Mapping[str, str]
    frozen: tuple[FrozenSpec, ...] = ()
    """Formats before 4 have none."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """What is said of known inputs, which formats before 8 do not have."""

    def to_json(self) -> dict[str, Any]:
        known = {"known": dict(self.known)} if self.known else {}
        return known | {
            "format": self._format,
            "written_by": dict(self.written_by),
            "provenance": self.provenance.to_json() if isinstance(self.provenance, ProvenanceSpec) else None,
            "blocks": [
                {
                    "name": block.name,
                    "kind": block.kind,
                    "shape": list(block.shape),
                    "terms": block.terms,
                    "tensors": {role: [spec.dtype, spec.order] for role, spec in block.tensors.items()},
                }
                for block in self.blocks
            ],
            "frozen": [[spec.name, spec.dtype, list(spec.shape), spec.digest] for spec in self.frozen],
            "card": _card_to_json(self.card, self._format),
        }

    @property
    def _format(self) -> int:
        words = {word for b in self.blocks for word in (b.kind, *(spec.order for spec in b.tensors.values()))}
        if self.known:
            return 8
        if self.card.recipe:
            return 7
        return max([4, *(version for version, new in SINCE.items() if not words.isdisjoint(new))])

    @classmethod
    def from_json(cls, raw: Any) -> Header:
        top = _Place(raw, "the header")
        version = _Place(top.mapping().get("format"), "format").integer(1)
        if version > FORMAT:
            raise FutureVersion(
                f"it is in format {version} and this posterity reads up to {FORMAT}: upgrade with "
                "`pip install --upgrade posterity`, or ask for the file in the older format."
            )
        field_name = "hashes" if version < 3 else "provenance"
        since_4, since_8 = ("frozen",) if version > 3 else (), ("known",) if version > 7 else ()
        fields = top.fields("sha256", "format", "written_by", field_name, "blocks", "card", *since_4, *since_8)
        blocks = tuple(_block(block) for block in fields["blocks"].items())
        for name, times in Counter(block.name for block in blocks).most_common(1):
            if times > 1:
                raise DamagedFile(f"{times} blocks are called {name!r}.")
        card, chosen = _card(fields["card"], version)
        provenance: ProvenanceSpec | OlderProvenance
        if version < 3:
            provenance = OlderProvenance(fields[field_name].optional(lambda place: place.integer(0)), chosen)
        else:
            provenance = _provenance(fields[field_name])
        frozen = tuple(_frozen(place) for place in fields["frozen"].items()) if since_4 else ()
        if len({spec.name for spec in frozen}) < len(frozen):
            raise DamagedFile("two tensors beside the blocks have one name.")
        known = fields["known"].mapping() if since_8 else {}
        return cls(blocks, card, provenance, fields["written_by"].table(_Place.text), frozen, known)


def parse(text: str) -> Any:
    """JSON in its narrow sense: no name twice, no NaN, no nesting without end."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise DamagedFile("the header is nested too deeply.") from None
    except ValueError as error:
        raise DamagedFile(f"the header is no JSON: {error}.") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


@dataclass(frozen=True)
class _Place:
    """A value with the place it was found at, for errors that say where."""

    value: Any
    where: str

    def wrong(self, wanted: str) -> DamagedFile:
        found = repr(self.value)
        return DamagedFile(f"{self.where} is {found[:60]}{'…' if len(found) > 60 else ''}, and should be {wanted}.")

    def mapping(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def fields(self, *names: str) -> dict[str, _Place]:
        found = self.mapping()
        if found.keys() != set(names):
            odd = sorted(found.keys() ^ set(names))
            raise DamagedFile(f"{self.where} has the fields {odd[:5]} too many or too few.")
        return {name: _Place(found[name], f"{self.where}: {name}") for name in names}

    def table(self, read: Callable[[_Place], T]) -> dict[str, T]:
        return {key: read(_Place(value, f"{self.where}[{key!r}]")) for key, value in self.mapping().items()}

    def items(self, length: int | None = None) -> list[_Place]:
        if not isinstance(self.value, list) or (length is not None and len(self.value) != length):
            raise self.wrong("a list" if length is None else f"a list of {length}")
        return [_Place(value, f"{self.where}[{i}]") for i, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("text")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def one_of(self, choices: tuple[str, ...]) -> str:
        if self.value not in choices:
            raise self.wrong("one of " + ", ".join(choices))
        return self.text()

    def integer(self, least: int, most: int = LARGEST) -> int:
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.wrong(f"a whole number from {least} to {most}")
        return self.value

    def number(self) -> float:
        if type(self.value) not in (int, float) or not 0 <= self.value <= sys.float_info.max:
            raise self.wrong("a finite number that is not negative")
        return float(self.value)

    def optional(self, read: Callable[[_Place], T]) -> T | None:
        return None if self.value is None else read(self)


def _block(place: _Place) -> BlockSpec:
    fields = place.fields("name", "kind", "shape", "terms", "tensors")
    name, kind = fields["name"].text(), fields["kind"].one_of(KINDS)
    out, inp = (side.integer(1) for side in fields["shape"].items(2))
    tensors = fields["tensors"].table(_tensor)
    # Bounded by what is really there, so that nobody counts to a declared 10¹⁸.
    most = {"kronecker sum": len(tensors), "turned": out * inp, "floored turned": out * inp}.get(kind, 1)
    terms = fields["terms"].integer(1, most)
    return BlockSpec(name, kind, (out, inp), terms, tensors)


def _tensor(place: _Place) -> TensorSpec:
    dtype, order = place.items(2)
    return TensorSpec(dtype.one_of(DTYPES), order.one_of(ORDERS))


def _frozen(place: _Place) -> FrozenSpec:
    name, dtype, shape, digest = place.items(4)
    sides = tuple(side.integer(0) for side in shape.items())
    return FrozenSpec(name.text(), dtype.one_of(BESIDE), sides, digest.optional(_Place.text))


def _card_to_json(card: Card, version: int = FORMAT) -> dict[str, Any]:
    told = {
        "text": card.text,
        "licence": card.licence,
        "architecture": card.architecture,
        "likelihood": card.likelihood,
        "classes": list(card.classes),
        "recipe": card.recipe,
        "estimator": card.estimator,
        "count": card.count,
        "precision": None if card.precision is None else float(card.precision),
        "scales": {name: [float(x) for x in scales] for name, scales in card.scales.items()},
        "compression": {name: float(error) for name, error in card.compression.items()},
        "seed": card.seed,
        "frozen": card.frozen,
        "versions": dict(card.versions),
    }
    return {name: value for name, value in told.items() if version >= 7 or name not in SINCE_7}


def _provenance(place: _Place) -> ProvenanceSpec:
    fields = place.fields("examples", "older", "gaps", "vouchers", "choices")
    return ProvenanceSpec(
        fields["examples"].integer(0),
        fields["older"].integer(0),
        tuple(gap.text() for gap in fields["gaps"].items()),
        tuple(text.text() for text in fields["vouchers"].items()),
        tuple(_choice(choice) for choice in fields["choices"].items()),
    )


def _choice(place: _Place) -> ChoiceSpec:
    what, options, examples, unknown = place.items(4)
    return ChoiceSpec(what.text(), options.optional(lambda o: o.integer(1)), examples.integer(0), unknown.boolean())


def _card(place: _Place, version: int) -> tuple[Card, str]:
    """The card without its provenance, and what format 2 has under "chosen"."""
    known = [*_card_to_json(Card()), *(ONLY_BEFORE_3 if version < 3 else ())]
    newer = {2: SINCE_2, 3: SINCE_3, 7: SINCE_7}
    too_new = [name for since, names in newer.items() if version < since for name in names]
    fields = place.fields(*(name for name in known if name not in too_new))
    chosen = fields["chosen"].text() if version == 2 else ""
    if version < 3:
        fields["source"].text()
    card = Card(
        text=fields["text"].text(),
        licence=fields["licence"].text(),
        architecture=fields["architecture"].text(),
        likelihood=fields["likelihood"].text(),
        classes=tuple(name.text() for name in fields["classes"].items()) if version > 2 else (),
        recipe=fields["recipe"].text() if version > 6 else "",
        estimator=fields["estimator"].text(),
        count=fields["count"].integer(0),
        precision=fields["precision"].optional(_Place.number),
        scales=fields["scales"].table(_scales),
        compression=fields["compression"].table(_Place.number),
        # torch takes seeds from the whole range of signed and unsigned 64-bit numbers.
        seed=fields["seed"].optional(lambda seed: seed.integer(-(2**63), 2**64 - 1)),
        frozen=fields["frozen"].text() if version > 1 else "",
        versions=fields["versions"].table(_Place.text),
    )
    return card, chosen


def _scales(place: _Place) -> tuple[float, float, float]:
    alpha, beta, temperature = place.items(3)
    if not temperature.number() > 0:
        raise temperature.wrong("a positive temperature")
    return alpha.number(), beta.number(), temperature.number()
