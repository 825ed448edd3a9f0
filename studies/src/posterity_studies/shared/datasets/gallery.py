"""Labelled pictures that stay encoded until they are asked for."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from posterity.errors import NoDataSet
from posterity.idx import Images
from posterity_studies.errors import BadPicture

Encoded = bytes | np.ndarray[Any, np.dtype[np.uint8]]
"""The bytes of a picture file, or pixels (height, width, 3)."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """A set of pictures: what each shows, and whether it is for training or for testing."""

    name: str
    encoded: Callable[[int], Encoded]
    """The picture of a place, before it is decoded."""
    places: Tensor
    """Where each picture stands in its file: what an error speaks of."""
    labels: Tensor
    tested: Tensor
    """Whether a picture is for testing, one truth value each."""
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, kept: Tensor, name: str | None = None) -> Gallery:
        """Some of the pictures, by a mask or by their indices."""
        return Gallery(
            name or self.name,
            self.encoded,
            self.places[kept],
            self.labels[kept],
            self.tested[kept],
            self.classes,
        )

    def decoded(self, index: Sequence[int], size: int, skip_bad: bool = False) -> tuple[Tensor, list[int]]:
        """Pictures (n, 3, size, size) in [0, 1], and the indices of those that could not be decoded.

        Args:
            index: which pictures of the gallery.
            size: their side in pixels.
            skip_bad: whether to leave out what cannot be decoded; else the first such picture is an error.
        Returns:
            The pictures that could be decoded, and the indices of the others.
        Raises:
            BadPicture: with the set and the index, unless `skip_bad`.
        """
        found, bad = [], []
        for i in index:
            try:
                found.append(decode(self.encoded(int(self.places[i])), size))
            except BadPicture as error:
                if not skip_bad:
                    raise BadPicture(
                        f"picture {int(self.places[i])} of {self.name} {error}: get the file again, or leave such pictures "
                        "out with skip_bad=True."
                    ) from None
                bad.append(int(i))
        return (torch.stack(found) if found else torch.empty(0, 3, size, size)), bad

    def images(self, size: int, skip_bad: bool = False) -> Images:
        """The whole set in memory."""
        parts = []
        for part in (~self.tested, self.tested):
            index = part.nonzero().flatten().tolist()
            x, bad = self.decoded(index, size, skip_bad)
            if not len(x):
                raise NoDataSet(f"{self.name} has no pictures in one of its parts.")
            parts.append((x, self.labels[[i for i in index if i not in set(bad)]]))
        return Images(*parts)


def decode(raw: Encoded, size: int) -> Tensor:
    """A picture as (3, size, size) in [0, 1].

    Raises:
        BadPicture: if it is damaged; the message begins with the verb.
    """
    try:
        picture = Image.open(io.BytesIO(raw)) if isinstance(raw, bytes) else Image.fromarray(raw)
        small = np.asarray(picture.convert("RGB").resize((size, size))).copy()
    except Exception as error:  # Pillow raises a dozen kinds for damaged files
        raise BadPicture(f"cannot be decoded ({type(error).__name__}: {str(error)[:100]})") from None
    return channels_first(small[None])[0]


def channels_first(x: Any) -> Tensor:
    """Bytes (n, height, width, channels) as numbers in [0, 1]."""
    return torch.from_numpy(x).permute(0, 3, 1, 2).float().div_(255)
