"""What a Gaussian, or anything learned, has seen: a complete set of examples, or *unknown*, which is contagious.

Every verb that takes data or trained weights makes its result's provenance with the few functions here:

    Provenance.none()                       nothing was seen
    Provenance.of(data)                     these examples, and no others
    Provenance.unknown("why")               it is not known what was seen
    a.joined(b, c)                          all of it: how everything is composed
    a.chose("strength", options=9, by=b)    one of nine was taken, by the examples of b
    a.vouched("text")                       the user answers for what is unknown, and certificates print the text
    past_of(model)                          a network's weights: by the note that training left in it, or by what they are
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from posterity.blocks import find_blocks, named, read_blocks
from posterity.data.batches import Data
from posterity.data.hashes import (
    COLUMNS,
    Hashes,
    data_fingerprint,
    example_hashes,
    fingerprint,
    ordered,
    same_again,
    seen,
    whole_of,
)
from posterity.data.weights import NOTE, rewritten, state, untouched
from posterity.errors import BadData, NoData

NO_HASHES = torch.empty(0, COLUMNS, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Choice:
    """One of finitely many things was taken, by looking at data."""

    what: str
    options: int | None
    """From how many; None if that was not declared, or if there was no end to them."""
    by: Hashes = field(default_factory=lambda: NO_HASHES, repr=False)
    unknown: bool = False
    """Whether it is not known which examples it was chosen by."""

    def concerns(self, hashes: Hashes) -> bool:
        """Whether these examples had, or may have had, a part in the choice."""
        return self.unknown or bool(seen(self.by, hashes).any())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.what, self.options, self.unknown, data_fingerprint(self.by)


@dataclass(frozen=True, eq=False)
class Provenance:
    """The data that something depends on. `hashes` is complete where `gaps` is empty."""

    hashes: Hashes = field(default_factory=lambda: NO_HASHES, repr=False)
    gaps: tuple[str, ...] = ()
    """Why it is not known what was seen, if it is not."""
    vouchers: tuple[str, ...] = ()
    """What users said of things whose past is not known."""
    choices: tuple[Choice, ...] = ()

    @classmethod
    def none(cls) -> Provenance:
        """Nothing was seen."""
        return cls()

    @classmethod
    def unknown(cls, why: str) -> Provenance:
        """It cannot be known what was seen."""
        return cls(gaps=(why,))

    @classmethod
    def of(cls, data: Data) -> Provenance:
        """The examples of the data, each read once, and a second time where they may change; unknown if they do.

        Of a loader that draws at random, all of its dataset counts.
        """
        if isinstance(data, Iterator):
            return cls.unknown(f"the data is a {type(data).__name__}, which can be read only once")
        return cls.read(data, None)

    @classmethod
    def read(cls, data: Data, hashes: Hashes | None) -> Provenance:
        """The record of a data set whose hashes were taken in one whole reading."""
        whole = whole_of(data)
        try:
            found = example_hashes(whole) if hashes is None or whole is not data else hashes
            if isinstance(data, Iterator) or not same_again(whole, found):
                return cls(found, gaps=(f"the {type(data).__name__} given as data is not the same when read again",))
        except NoData:
            return cls.none()
        except BadData as error:
            return cls.unknown(f"the data cannot be distinguished: {error}")
        return cls(_distinct(found))

    @property
    def is_known(self) -> bool:
        """Whether the record is complete."""
        return not self.gaps

    @property
    def count(self) -> int:
        """How many examples are known to have been seen."""
        return len(self.hashes)

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits for the examples seen, empty if there are none."""
        return data_fingerprint(self.hashes) if len(self.hashes) else ""

    def joined(self, *others: Provenance) -> Provenance:
        """What was seen by this or by any other. Unknown wherever one of them is."""
        every = (self, *others)
        hashes = [part.hashes for part in every if len(part.hashes)]
        return Provenance(
            _distinct(torch.cat(hashes)) if len(hashes) > 1 else (hashes or [NO_HASHES])[0],
            _once(gap for part in every for gap in part.gaps),
            _once(text for part in every for text in part.vouchers),
            _once(choice for part in every for choice in part.choices),
        )

    def chose(self, what: str, *, options: int | None, by: Provenance) -> Provenance:
        """One of `options` things was taken by looking at the data of `by`. What chose by that data, also counts.

        The options themselves must not depend on that data. Where they do, or where there is no end to them, the data has been
        seen: use `joined`.
        """
        if options is not None and options < 1:
            raise ValueError(f"a choice is from at least one thing, not {options}")
        if options == 1:
            return self
        choice = Choice(what, options, by.hashes, not by.is_known)
        return replace(self, choices=_once((*self.choices, *by.choices, choice)))

    def vouched(self, text: str) -> Provenance:
        """The user answers for what is unknown so far: that it has not seen what will certify."""
        if not text.strip():
            raise ValueError("a voucher says what is vouched for, in a few words: it stands in the certificate")
        return replace(self, gaps=(), vouchers=_once((*self.vouchers, text)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provenance) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.fingerprint, self.gaps, self.vouchers, self.choices

    def __deepcopy__(self, memo: Any) -> Provenance:
        return self

    def __str__(self) -> str:
        text = f"{self.count:,} examples" if self.count else "no data"
        if self.gaps:
            text += f", and unknown: {'; '.join(self.gaps)}"
        if self.vouchers:
            text += f", vouched for: {'; '.join(self.vouchers)}"
        for choice in self.choices:
            text += f", {choice.what} chosen from {choice.options or 'an undeclared number'}"
        return text


def together(parts: Iterable[Provenance]) -> Provenance:
    """All of them joined; of nothing, nothing."""
    return Provenance.none().joined(*parts)


def _distinct(hashes: Hashes) -> Hashes:
    """Rows once each, in order."""
    rows = ordered(hashes)
    new: Bool[Tensor, " n"] = torch.ones(len(rows), dtype=torch.bool)
    new[1:] = (rows[1:] != rows[:-1]).any(1)
    return rows[new]


def _once(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(items))


@dataclass(frozen=True)
class _Note:
    """What training saw, and the tensors it left, by digest: the note speaks of those that are still the same."""

    provenance: Provenance
    tensors: Mapping[str, str]


def sign(model: nn.Module, provenance: Provenance) -> None:
    """Leave a note in a trained network: what its present weights and statistics have seen."""
    model.__dict__[NOTE] = _Note(provenance, {name: digest(x) for name, x in state(model)})


def past_of(
    model: nn.Module,
    mean: Mapping[str, Tensor] | None = None,
    of_mean: Provenance | None = None,
    *,
    beside: bool = False,
    strict: bool = False,
) -> Provenance:
    """What the present weights and statistics of a network have seen.

    A tensor is known if training left it (`sign`), if it is part of the `mean` of a Gaussian of provenance `of_mean`, or if it
    lies in the range in which torch starts it: then it counts as untrained (but not if `strict`). Anything else has an unknown
    past. With `beside`, only what is outside the blocks of `mean` is looked at.
    """
    note = model.__dict__.get(NOTE)
    parts: list[Provenance] = []
    equal, inside = _at(model, mean or {})
    if equal and of_mean is not None and not beside:
        parts.append(of_mean)
    odd = []
    for name, x in state(model):
        if name in equal or (beside and name in inside):
            continue
        if isinstance(note, _Note) and note.tensors.get(name) == digest(x):
            parts.append(note.provenance)
        elif strict or not untouched(model, name, x) or rewritten(model, name, x):
            odd.append(name)
    if odd:
        rest = f" and {len(odd) - 1} others" if len(odd) > 1 else ""
        parts.append(Provenance.unknown(f'"{odd[0]}"{rest} of the network had been trained, or set, before'))
    return together(dict.fromkeys(parts))


def digest(x: Tensor) -> str:
    """A tensor's values, shape and dtype as a few digits."""
    return fingerprint([f"{tuple(x.shape)} {x.dtype}", x])


def matrices_digest(matrices: Mapping[str, Tensor]) -> str:
    """The same for a set of blocks' matrices, whatever order they are in."""
    return fingerprint(part for name in sorted(matrices) for part in (name, digest(matrices[name])))


def _at(model: nn.Module, mean: Mapping[str, Tensor]) -> tuple[set[str], set[str]]:
    """Parameters of blocks that stand at the mean, and those of all its blocks."""
    if not mean:
        return set(), set()
    blocks = find_blocks(model, named(mean))
    equal: set[str] = set()
    inside: set[str] = set()
    for name, matrix in read_blocks(model, blocks).items():
        centre = mean[name]
        parameters = set(blocks[name].parameters.values())
        inside |= parameters
        if matrix.shape == centre.shape and torch.equal(matrix.detach(), centre.to(matrix)):
            equal |= parameters
    return equal, inside
