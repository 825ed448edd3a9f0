"""Which certificates this process has issued, and by what examples: the least of several is a choice that must be paid for."""

from __future__ import annotations

from collections.abc import Hashable

from posterity.data.hashes import Hashes

SKETCH = 256
"""Hashes that are kept of a set of examples: its smallest. Sets that overlap by more than a sliver share some of them."""

_ISSUED: list[tuple[frozenset[int], Hashable]] = []


def issued(hashes: Hashes, what: Hashable) -> int:
    """The how-manieth different certificate this is by any of these examples; one that was issued before keeps its number."""
    sketch = frozenset(hashes[:, 0].sort().values[:SKETCH].tolist())
    before = [one for known, one in _ISSUED if sketch & known]
    if what in before:
        return before.index(what) + 1
    _ISSUED.append((sketch, what))
    return len(before) + 1
