"""A prior mean for every class from its embedded name, or from any other row that means the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.errors import BadData, BadTargets
from posterity.heads.views import unit


@dataclass(frozen=True, eq=False)
class Words:
    """One direction for each class, of length one: where the class is expected to lie from the mean of all."""

    names: tuple[str, ...]
    directions: Float[Tensor, "classes d"]

    @staticmethod
    def of(names: Sequence[str], embedded: Any) -> Words:
        """From names and their vectors: the same encoder's as the features', one row a name.

        Raises:
            BadTargets: if a name comes twice: two classes could not be distinguished.
            BadData: if the vectors are not one finite row for each of at least two names.
        """
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


def embedded(encode: Callable[[list[str]], Any], names: Sequence[str]) -> Words:
    """`Words` through an encoder: any callable from a list of strings to vectors."""
    return Words.of(names, encode(list(names)))
