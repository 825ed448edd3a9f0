"""What a Gaussian, or anything learned, has seen: a complete set of examples, or *unknown*, which is contagious.

Every verb that takes data or trained weights makes its result's provenance with the few functions here:

    Provenance.none()                       nothing was seen
    Provenance.of(data)                     these examples, and no others
    Provenance.unknown("why")               nobody can tell what was seen
    a.joined(b, c)                          all of it: how everything is composed
    a.chose("strength", options=9, by=b)    one of nine was taken, by the examples of b
    a.vouched("text")                       the user answers for what is unknown, and certificates print the text
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from posterity.curvature.batches import Data, batches
from posterity.curvature.hashes import (
    COLUMNS,
    Hashes,
    batch_hashes,
    data_fingerprint,
    example_hashes,
    ordered,
    seen,
)
from posterity.curvature.older_hashes import OlderHashes
from posterity.curvature.workers import Workers
from posterity.errors import BadData, NoData

SECOND_LOOK = 32
"""How many examples of a dataset are read twice, to see whether they are the same each time."""

NO_HASHES = torch.empty(0, COLUMNS, dtype=torch.int64)
NO_OLDER_HASHES = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Choice:
    """One of finitely many things was taken, by looking at data."""

    what: str
    options: int | None
    """From how many; None if that was not declared, or if there was no end to them."""
    by: Hashes = field(default_factory=lambda: NO_HASHES, repr=False)
    unknown: bool = False
    """Whether nobody can tell which examples it was chosen by."""

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
    older: OlderHashes = field(default_factory=lambda: NO_OLDER_HASHES, repr=False)
    """Further examples, as files of formats 1 and 2 tell them."""
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
        """It cannot be told what was seen."""
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
        """The same, where the hashes of one whole reading are at hand already."""
        whole = _whole(data)
        try:
            found = example_hashes(whole) if hashes is None or whole is not data else hashes
            if isinstance(data, Iterator) or not _same_again(whole, found):
                return cls(found, gaps=(f"the {type(data).__name__} given as data is not the same when read again",))
        except NoData:
            return cls.none()
        except BadData as error:
            return cls.unknown(f"the data cannot be told apart: {error}")
        return cls(_distinct(found))

    @property
    def is_known(self) -> bool:
        """Whether it is complete."""
        return not self.gaps

    @property
    def count(self) -> int:
        """How many examples are known to have been seen."""
        return len(self.hashes) + len(self.older)

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits for the examples seen, empty if there are none."""
        if not len(self.older):
            return data_fingerprint(self.hashes) if len(self.hashes) else ""
        return data_fingerprint(torch.cat((self.hashes.flatten(), self.older)))

    def joined(self, *others: Provenance) -> Provenance:
        """What was seen by this or by any other. Unknown wherever one of them is."""
        every = (self, *others)
        hashes = [one.hashes for one in every if len(one.hashes)]
        older = [one.older for one in every if len(one.older)]
        return Provenance(
            _distinct(torch.cat(hashes)) if len(hashes) > 1 else (hashes or [NO_HASHES])[0],
            torch.cat(older).unique() if len(older) > 1 else (older or [NO_OLDER_HASHES])[0],
            _once(gap for one in every for gap in one.gaps),
            _once(text for one in every for text in one.vouchers),
            _once(choice for one in every for choice in one.choices),
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
        choice = Choice(what, options, by.hashes, not by.is_known or bool(len(by.older)))
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


def _whole(data: Data) -> Data:
    """All that a loader may ever give: its whole dataset, where it draws at random, drops the rest of a batch, or deals anew.

    A sampler with `set_epoch` gives other examples in another epoch.
    """
    if not isinstance(data, DataLoader) or isinstance(data.dataset, IterableDataset):
        return data
    samplers = (data.sampler, data.batch_sampler, getattr(data.batch_sampler, "sampler", None))
    if any(hasattr(sampler, "set_epoch") for sampler in samplers) and isinstance(data.dataset, Sized):
        return DataLoader(data.dataset, batch_size=data.batch_size or 256, collate_fn=data.collate_fn)
    plain = isinstance(data.sampler, SequentialSampler | RandomSampler | WeightedRandomSampler)
    if not plain or type(data.batch_sampler) is not BatchSampler:
        return data
    if isinstance(data.sampler, SequentialSampler) and not data.drop_last:
        return data
    return DataLoader(
        data.dataset, batch_size=data.batch_size, collate_fn=data.collate_fn, num_workers=data.num_workers
    )


def _same_again(data: Data, first: Hashes) -> bool:
    """Whether the data is the same when it is read a second time."""
    dataset = data.dataset if isinstance(data, DataLoader) and data.collate_fn is default_collate else data
    if _settled(dataset):
        return True
    if isinstance(dataset, Dataset) and not isinstance(dataset, IterableDataset) and isinstance(dataset, Sized):
        n = len(dataset)
        some = Subset(dataset, sorted({i * n // SECOND_LOOK for i in range(SECOND_LOOK)}))
        return bool(seen(first, _hashes_here(some)).all())
    second = example_hashes(data)
    return len(second) == len(first) and bool(seen(first, second).all())


def _hashes_here(data: Data) -> Hashes:
    """Of all the data, in this process alone."""
    return torch.cat([batch_hashes(batch) for batch in batches(data, SECOND_LOOK, Workers())])


def _settled(data: Any) -> bool:
    """Whether it is tensors, which nothing changes on the way."""
    while type(data) is Subset:
        data = data.dataset
    if type(data) is TensorDataset:
        return True
    return isinstance(data, (tuple, list)) and len(data) == 2 and all(isinstance(x, Tensor) for x in data)
