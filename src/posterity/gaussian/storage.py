"""A Gaussian as one sealed file. Tensors are named by their block's number and their role, so a block may have any name."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posterity.algebra import is_large
from posterity.errors import DamagedFile, NotAPrior, NotStorable, PosterityError
from posterity.gaussian.card import KnownFeatures
from posterity.gaussian.container import (
    LIMIT,
    TensorEntry,
    naming,
    packed_size,
    read_file,
    tensors_in,
    unpacked,
    versions,
)
from posterity.gaussian.frozen import FrozenState, dtype_name
from posterity.gaussian.gaussian import Gaussian
from posterity.gaussian.header import BESIDE, BlockSpec, FrozenSpec, Header, ProvenanceSpec, TensorSpec, tensors_of
from posterity.gaussian.parts import count, put_together, shapes, take_apart
from posterity.gaussian.plain import parse
from posterity.memory import require_memory


@dataclass(frozen=True)
class FileContent:
    """A file's content: the Gaussian, and what is true of the file alone."""

    gaussian: Gaussian
    written_by: Mapping[str, str]
    """The versions that wrote the file; `gaussian.card.versions` are those it was learned with."""
    size: int
    """Bytes."""


def load(path: str | os.PathLike[str], *, limit_bytes: int = LIMIT) -> Gaussian:
    """The Gaussian of a file, on the CPU, the same to the last bit: draws with one seed agree before and after.

    No code in the file is run. That precisions are positive definite shows at their first use, as `NotPositiveDefinite`.

    Raises:
        BadPriorFile: under the fitting name, if the file is damaged, too large, from a later version or of another kind.
    """
    return read(path, limit_bytes=limit_bytes).gaussian


def read(path: str | os.PathLike[str], *, limit_bytes: int = LIMIT) -> FileContent:
    """What `load` returns, with the file's own header."""
    with naming(path):
        raw, data = read_file(Path(path), limit_bytes)
        if "fit" in raw:
            raise NotAPrior(
                "it holds a whole fit: pt.load(path, model) opens it, and its .posterior is the next prior."
            )
        header = Header.from_json(raw)
        # A header may declare anything; what is stored by halves is at most twice as large whole.
        require_memory(min(_need(header), 2 * len(data)), "the prior in this file")
        tensors, size = tensors_in(data), len(data)
        del data
        return FileContent(assemble(header, tensors), header.written_by, size)


# --- writing ---------------------------------------------------------------------------------------


def disassemble(gaussian: Gaussian) -> tuple[dict[str, Any], dict[str, TensorEntry]]:
    """A Gaussian as a header and tensors; settles here that what is saved can be loaded."""
    blocks, tensors = [], {}
    for index, (name, matrix) in enumerate(gaussian.precision.items()):
        try:
            kind, parts = take_apart(matrix)
        except NotStorable as error:
            raise NotStorable(f'block "{name}": {error}') from None
        specs = {}
        for role, tensor in {"mean": gaussian.mean[name], **parts}.items():
            tensors[f"{index}.{role}"], specs[role] = _stored(tensor, kind, role)
        blocks.append(BlockSpec(name, kind, matrix.shape, count(kind, parts), specs))
    beside = _specs(gaussian.frozen)
    tensors |= {f"frozen.{k}": TensorEntry(x) for k, x in enumerate(gaussian.frozen.tensors.values())}
    tensors |= {f"known.{name}": TensorEntry(x) for name, x in gaussian.known.tensors.items()}
    words = json.dumps(dict(gaussian.known.words), allow_nan=False) if gaussian.known else ""
    header = Header(versions(), ProvenanceSpec.of(gaussian.provenance), tuple(blocks), beside, gaussian.card, words)
    try:
        # Reading it back, here in memory, settles that what is saved can be loaded.
        text = json.dumps(header.to_json(), allow_nan=False)
        past = tensors_of(gaussian.provenance)
        own = {key: entry.tensor.detach().cpu() for key, entry in tensors.items()}
        assemble(Header.from_json(parse(text)), own | past, as_stored=False)
    except (PosterityError, TypeError, ValueError) as error:
        raise NotStorable(f"this Gaussian could not be loaded again: {error}") from error
    return header.to_json(), tensors | {key: TensorEntry(x) for key, x in past.items()}


def _stored(tensor: Tensor, kind: str, role: str) -> tuple[TensorEntry, TensorSpec]:
    order = "rows"
    if _halved(tensor, kind, role):
        order = "lower"
    elif tensor.ndim == 2 and not tensor.is_contiguous() and tensor.mT.is_contiguous():
        order = "columns"
    return TensorEntry(tensor, order), TensorSpec(dtype_name(tensor), order)


def _halved(tensor: Tensor, kind: str, role: str) -> bool:
    """Whether a tensor is a large symmetric factor."""
    return "kronecker" in kind and role != "mean" and tensor.ndim == 2 and is_large(len(tensor))


def _specs(frozen: FrozenState) -> tuple[FrozenSpec, ...]:
    """Carried tensors first, in the order of their numbers."""
    for name, x in frozen.tensors.items():
        if dtype_name(x) not in BESIDE:
            raise NotStorable(f'"{name}" beside the blocks is {x.dtype}: files hold {", ".join(BESIDE)}.')
    carried = [FrozenSpec(name, dtype_name(x), tuple(x.shape), None) for name, x in frozen.tensors.items()]
    return (*carried, *(FrozenSpec(name, dtype, (), digest) for name, (dtype, digest) in frozen.digests.items()))


def _beside(specs: tuple[FrozenSpec, ...], tensors: dict[str, Tensor]) -> FrozenState:
    """The frozen state that the header speaks of. Takes its tensors out of the dictionary."""
    carried: dict[str, Tensor] = {}
    digests: dict[str, tuple[str, str]] = {}
    for spec in specs:
        if spec.digest is not None:
            digests[spec.name] = (spec.dtype, spec.digest)
            continue
        found = tensors.pop(f"frozen.{len(carried)}", None)
        if found is None or found.dtype != getattr(torch, spec.dtype) or found.shape != spec.shape:
            raise DamagedFile(f"{spec.name!r}, beside the blocks, is missing or is not {spec.dtype} {spec.shape[:9]}.")
        carried[spec.name] = found.clone()
    return FrozenState(carried, digests)


# --- reading ---------------------------------------------------------------------------------------


def _need(header: Header) -> int:
    """Bytes of the tensors that the header speaks of, whole."""
    total = 0
    for block in header.blocks:
        wanted = {"mean": block.shape, **shapes(block.kind, block.shape, block.terms, block.tensors)}
        for role, spec in block.tensors.items():
            total += math.prod(wanted.get(role, ())) * getattr(torch, spec.dtype).itemsize
    return total


def assemble(header: Header, tensors: dict[str, Tensor], *, as_stored: bool = True) -> Gaussian:
    """The Gaussian that the header speaks of. Takes the tensors out of the dictionary, one block at a time.

    Not `as_stored`, tensors are a Gaussian's own, which are looked at and not copied.
    """
    mean, precision = {}, {}
    for index, block in enumerate(header.blocks):
        try:
            wanted = {"mean": block.shape, **shapes(block.kind, block.shape, block.terms, block.tensors)}
            if wanted.keys() != block.tensors.keys():
                raise DamagedFile(f"a {block.kind} has the tensors {[*wanted][:9]}, not {[*block.tensors][:9]}.")
            parts = {
                role: _tensor(tensors, f"{index}.{role}", block.tensors[role], shape, as_stored)
                for role, shape in wanted.items()
            }
            for role, spec in block.tensors.items():
                if (spec.order == "lower") != _halved(parts[role], block.kind, role):
                    raise DamagedFile(f'"{role}" is stored in the order "{spec.order}", which does not go with it.')
            mean[block.name] = parts.pop("mean")
            if not bool(torch.isfinite(mean[block.name]).all()):
                raise DamagedFile("the mean has entries that are NaN or infinite.")
            precision[block.name] = put_together(block.kind, block.shape, block.terms, parts)
        except PosterityError as error:
            raise DamagedFile(f"block {block.name!r}: {error}") from error
    provenance, frozen = header.provenance.assembled(tensors), _beside(header.frozen, tensors)
    known = KnownFeatures()
    if header.known:
        own = {name.removeprefix("known."): x.clone() for name, x in tensors.items() if name.startswith("known.")}
        tensors = {name: x for name, x in tensors.items() if not name.startswith("known.")}
        known = KnownFeatures(own, parse(header.known))
    if tensors:
        raise DamagedFile(f"there are tensors that the header does not speak of: {sorted(tensors)[:5]}.")
    found = Gaussian(mean, precision, header.card, frozen, known)
    return found.with_provenance(provenance)


def _tensor(tensors: dict[str, Tensor], name: str, spec: TensorSpec, shape: tuple[int, ...], as_stored: bool) -> Tensor:
    found = tensors.pop(name, None)
    if found is None:
        raise DamagedFile(f'the tensor "{name}" is missing.')
    if found.dtype != getattr(torch, spec.dtype):
        raise DamagedFile(f'the tensor "{name}" is {found.dtype}, and {spec.dtype} is declared.')
    columns, lower = spec.order == "columns", spec.order == "lower"
    if lower and (len(shape) != 2 or shape[0] != shape[1]):
        raise DamagedFile(f'the tensor "{name}" is stored by its lower triangle and has none.')
    if columns and len(shape) != 2:
        raise DamagedFile(f'the tensor "{name}" is stored column by column and has none.')
    if not as_stored:
        return found
    if found.shape != ((packed_size(shape[0]),) if lower else shape[::-1] if columns else shape):
        raise DamagedFile(f'the tensor "{name}" has shape {tuple(found.shape)[:9]} and the block needs {shape}.')
    if lower:
        return unpacked(found, shape[0])
    # Memory of torch's own: aligned alike before and after, which fast matrix products take into account.
    found = found.clone()
    return found.mT if columns else found
