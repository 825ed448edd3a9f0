"""Values that fit on a screen when they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

MOST, LONGEST, BLOCKS = 4, 120, 12
"""Entries of a collection that are shown, characters of a field, and blocks."""


def brief(value: Any) -> str:
    """The fields of a dataclass on one line; of tensors the shapes, of long collections how many there are.

    Example:
        >>> class History:
        ...     __repr__ = brief
    """
    shown = ", ".join(f"{f.name}={_word(getattr(value, f.name))}" for f in fields(value) if f.repr)
    return f"{type(value).__name__}({shown})"


def brief_blocks(matrices: Mapping[str, Any]) -> str:
    """The first blocks with their kinds and shapes, and how many others there are."""
    shown = [f"{n}: {type(m).__name__} {m.shape[0]}×{m.shape[1]}" for n, m in list(matrices.items())[:BLOCKS]]
    rest = [f"{len(matrices) - BLOCKS} others"] if len(matrices) > BLOCKS else []
    return f"{{{', '.join(shown + rest)}}}"


def _word(value: Any) -> str:
    if isinstance(value, Tensor) and value.numel() > 1:
        return f"<{'×'.join(map(str, value.shape))}>"
    if isinstance(value, (Mapping, list, tuple, set)):
        if len(value) > MOST:
            return f"<{len(value)} entries>"
        if isinstance(value, Mapping):
            text = "{" + ", ".join(f"{key!r}: {_word(item)}" for key, item in value.items()) + "}"
        else:
            text = "(" + ", ".join(map(_word, value)) + ")"
    else:
        text = brief(value) if is_dataclass(value) and type(value).__repr__ is brief else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
