"""A prior mean for every class from its embedded name, or from any other row that means the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.errors import BadData, BadTargets, SizeMismatch
from posterity.heads.views import unit


@dataclass(frozen=True, eq=False)
class Words:
    """One direction for each class, of length one: where the class is expected to lie from the mean of all."""

    names: tuple[str, ...]
    directions: Float[Tensor, "classes d"]

    @staticmethod
    def of(names: Sequence[str], embedded: Any) -> Words:
        """From names and their vectors: the same encoder's as the features', one row a name."""
        names = tuple(names)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BadTargets(f'the class name "{twice[0]}" comes twice: give every class a name of its own.')
        try:
            rows = torch.as_tensor(embedded).detach().double()
        except (TypeError, ValueError, RuntimeError) as error:
            raise BadData(
                f"the encoder returned {type(embedded).__name__}, which is no matrix ({error}): return one row of numbers a name."
            ) from None
        if rows.ndim != 2 or len(rows) != len(names) or len(names) < 2 or not bool(rows.isfinite().all()):
            raise BadData(
                f"the encoder returned {tuple(rows.shape)} for {len(names)} names: one row of finite numbers a name is needed, "
                "and at least two names."
            )
        rows = unit(rows)
        return Words(names, unit(rows - rows.mean(0)))

    def check_width(self, width: int) -> None:
        """Refuse features of another width."""
        own = self.directions.shape[1]
        if own != width:
            raise SizeMismatch(
                f"names are embedded in {own} numbers, and the features have {width} columns: use the encoder that made them."
            )


def words(encode: Callable[[list[str]], Any], names: Sequence[str] | Mapping[str, str]) -> Words:
    """A prior for `pt.head` whose means are the embedded names of the classes.

    Args:
        encode: the encoder that made the features: any callable from a list of strings to one row of numbers each.
        names: of all classes; or for each class the text that is embedded ("acq": "company acquisitions").

    Returns:
        `Words`, for `prior=`. Left-out examples settle how much names count: unhelpful ones cost next to nothing.

    Raises:
        BadTargets: if a name comes twice.
        BadData: if the encoder does not return one finite row for each name.

    Example:
        >>> fit = pt.head(features, labels, prior=pt.words(encode, ["sports", "space"]))
    """
    texts = names.values() if isinstance(names, Mapping) else names
    return Words.of(tuple(names), encode(list(texts)))
