"""Several things in one sealed file: plain values, Gaussians, and tensors named by what they are for ("posterior/…")."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from posterity.brief import brief
from posterity.gaussian.container import LIMIT, TensorEntry, naming, read_file, tensors_in, versions, write_file
from posterity.gaussian.gaussian import Gaussian
from posterity.gaussian.header import Header
from posterity.gaussian.storage import assemble, disassemble
from posterity.memory import require_memory


@dataclass(frozen=True, eq=False)
class Bundle:
    """What a file holds, every byte of it checked, and nothing built yet."""

    __repr__ = brief

    raw: Mapping[str, Any]
    tensors: dict[str, Tensor]

    def gaussian(self, part: str) -> Gaussian:
        """A Gaussian of the file, by name."""
        return assemble(Header.from_json(self.raw[part]), self.below(part))

    def below(self, part: str) -> dict[str, Tensor]:
        """The tensors of one part, by their own names."""
        columns = set(self.raw["column_major"])
        return {
            # Memory of torch's own, laid out as it was: products repeat to the last bit only if it is.
            name[len(part) + 1 :]: x.clone().mT if name in columns else x.clone()
            for name, x in self.tensors.items()
            if name.startswith(f"{part}/")
        }


def write_bundle(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    gaussians: Mapping[str, Gaussian],
    parts: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Write plain values, Gaussians and further tensors, each under the name of its part, in one atomic step."""
    tensors = {f"{part}/{name}": x for part, own in parts.items() for name, x in own.items()}
    columns = [name for name, x in tensors.items() if x.ndim > 1 and not x.is_contiguous() and x.mT.is_contiguous()]
    entries = {name: TensorEntry(x.mT if name in columns else x) for name, x in tensors.items()}
    headers = {}
    for part, gaussian in gaussians.items():
        headers[part], own = disassemble(gaussian)
        entries |= {f"{part}/{name}": entry for name, entry in own.items()}
    write_file(path, {**header, "written_by": versions(), "column_major": columns, **headers}, entries)


def read_bundle(path: str | os.PathLike[str], limit_bytes: int = LIMIT) -> Bundle:
    """What a file holds, after its seal was checked. Nothing in it is run."""
    with naming(path):
        raw, data = read_file(Path(path), limit_bytes)
        require_memory(len(data), "what is in this file")
        return Bundle(raw, tensors_in(data))
