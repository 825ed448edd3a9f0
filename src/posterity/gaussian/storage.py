"""A Gaussian as one file: safetensors, a header of JSON, a seal over every byte.

The metadata of the file has one key, "posterity": versioned JSON that begins with a sha256 of the whole file, taken with
zeros in its own place. Tensors are named by the number of their block and their role ("3.mean", "3.left.0"), so a block may
have any name. Loading runs no code and believes nothing it has not checked; a seal that holds says only that the file is
as it was written, not by whom.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from posterity.algebra import is_large
from posterity.errors import (
    BadPriorFile,
    DamagedFile,
    MissingFile,
    MissingFolder,
    NotAPrior,
    NotStorable,
    OversizedFile,
    PosterityError,
    UnreadableFile,
)
from posterity.files import replacing, room_for
from posterity.gaussian.frozen import FrozenState, dtype_name
from posterity.gaussian.gaussian import Gaussian
from posterity.gaussian.header import BESIDE, BlockSpec, FrozenSpec, Header, TensorSpec, parse
from posterity.gaussian.parts import count, put_together, shapes, take_apart
from posterity.gaussian.stored_provenance import ProvenanceSpec, assembled, from_older, tensors_of
from posterity.gaussian.triangles import packed, packed_size, unpacked
from posterity.memory import require_memory
from posterity.version import __version__

KEY = "posterity"
LIMIT = 16 * 2**30
"""Bytes that `load` takes unless told otherwise: a prior over ResNet-50 in float64 has about one thirteenth."""
PICKLES = (".pt", ".pth", ".pkl", ".ckpt")
"""Names that other programs would open by running what is in them."""
HEADER_LIMIT = 16 * 2**20
"""Bytes of a header: some ten thousand blocks and a long card."""

_ZEROS = "0" * 64
_SEAL = re.compile(rb'"posterity"\s*:\s*"\{\\"sha256\\":\\"([0-9a-f]{64})\\"')


@dataclass(frozen=True)
class Stored:
    """A file's content: the Gaussian, and what is true of the file alone."""

    gaussian: Gaussian
    written_by: Mapping[str, str]
    """The versions that wrote the file; `gaussian.card.versions` are those it was learned with."""
    size: int
    """Bytes."""


def save(gaussian: Gaussian, path: str | os.PathLike[str]) -> None:
    """Write one `.safetensors` file, atomically: whatever happens, the old file or the new one is there, and whole.

    Tensors go to the disk one after the other, and of large symmetric factors half: a prior over ResNet-50 takes some tens of
    megabytes of memory beyond its own to be written.

    Raises:
        NotStorable: if the Gaussian holds something that the format has no place for.
        MissingFolder: if its folder does not exist.
        DiskFull: if there is no room; nothing is left behind.
    """
    where = Path(path)
    if where.suffix in PICKLES:
        raise NotStorable(
            f"{where.name} has the name of a pickled file, and this is none: save it as {where.with_suffix('.safetensors').name}."
        )
    if not where.parent.is_dir():
        raise MissingFolder(f"there is no folder {where.parent}: make it first (mkdir -p {where.parent}).")
    header, tensors = _disassemble(gaussian)
    text = json.dumps({"sha256": _ZEROS, **header.to_json()}, allow_nan=False, separators=(",", ":"))
    need = sum(tensor.nbytes for tensor in tensors.values()) + 2 * len(text)
    with room_for(path, need), replacing(path) as draft, open(draft, "r+b") as file:
        _write(file, tensors, text)


def load(path: str | os.PathLike[str], *, limit_bytes: int = LIMIT) -> Gaussian:
    """The Gaussian of a file, on the CPU, the same to the last bit: draws with one seed agree before and after.

    No code in the file is run. That precisions are positive definite shows at their first use, as `NotPositiveDefinite`.

    Args:
        path: a file that `Gaussian.save` wrote.
        limit_bytes: files larger than this are refused before they are read.
    Returns:
        The `Gaussian`, its card included.
    Raises:
        BadPriorFile: under the fitting name, if the file is damaged, cut short, too large, from a later version or of
            another kind.

    Example:
        >>> prior = pt.load("letters.safetensors")
        >>> fit = pt.learn(model, data, prior=prior)
    """
    return read(path, limit_bytes=limit_bytes).gaussian


def read(path: str | os.PathLike[str], *, limit_bytes: int = LIMIT) -> Stored:
    """What `load` gives, with what the file tells of itself."""
    path = Path(path)
    try:
        # Once, and whole: what was checked is what is used, even if somebody replaces the file meanwhile.
        data = _bytes(path, limit_bytes)
        header = _header(data)
        # A header may declare anything; what is stored by halves is at most twice as large whole.
        require_memory(min(_need(header), 2 * len(data)), "the prior in this file")
        try:
            tensors = safetensors.torch.load(data)
        except (safetensors.SafetensorError, KeyError) as error:
            raise DamagedFile(f"its tensors do not fit the file: {error}.") from None
        size = len(data)
        del data
        return Stored(_assemble(header, tensors), header.written_by, size)
    except BadPriorFile as error:
        remedy = " Get the file again, or save the prior again." if isinstance(error, DamagedFile) else ""
        raise type(error)(f"{path}: {error}{remedy}") from error.__cause__


# --- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """A tensor as it will lie in the file; its bytes are made when they are written."""

    tensor: Tensor
    order: str = "rows"

    @property
    def shape(self) -> tuple[int, ...]:
        if self.order == "lower":
            return (packed_size(len(self.tensor)),)
        return tuple(self.tensor.shape[::-1] if self.order == "columns" else self.tensor.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.tensor.dtype.itemsize

    def content(self) -> Any:
        """The bytes, without a copy where they already lie so."""
        x = self.tensor.detach().cpu()
        x = packed(x) if self.order == "lower" else (x.mT if self.order == "columns" else x)
        return x.contiguous().reshape(-1).view(torch.uint8).numpy()


def _disassemble(gaussian: Gaussian) -> tuple[Header, dict[str, _Entry]]:
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
    tensors |= {f"frozen.{k}": _Entry(x) for k, x in enumerate(gaussian.frozen.tensors.values())}
    header = Header(tuple(blocks), gaussian.card, ProvenanceSpec.of(gaussian.provenance), _versions(), beside)
    try:
        # Reading it back, here in memory, settles that what is saved can be loaded.
        text = json.dumps({"sha256": _ZEROS, **header.to_json()}, allow_nan=False)
        if len(text) > HEADER_LIMIT // 2:
            raise DamagedFile(f"the header would have {len(text)} characters, and {HEADER_LIMIT // 2} are allowed.")
        told = tensors_of(gaussian.provenance)
        own = {key: entry.tensor.detach().cpu() for key, entry in tensors.items()}
        _assemble(Header.from_json(parse(text)), own | told, as_stored=False)
    except (PosterityError, TypeError, ValueError) as error:
        raise NotStorable(f"this Gaussian could not be loaded again: {error}") from error
    return header, tensors | {key: _Entry(x) for key, x in told.items()}


def _stored(tensor: Tensor, kind: str, role: str) -> tuple[_Entry, TensorSpec]:
    order = "rows"
    if _halved(tensor, kind, role):
        order = "lower"
    elif tensor.ndim == 2 and not tensor.is_contiguous() and tensor.mT.is_contiguous():
        order = "columns"
    return _Entry(tensor, order), TensorSpec(str(tensor.dtype).removeprefix("torch."), order)


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


def _versions() -> dict[str, str]:
    return {
        "posterity": __version__,
        "torch": torch.__version__,
        "safetensors": safetensors.__version__,
        "python": platform.python_version(),
    }


_CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls them."""


def _write(file: Any, tensors: Mapping[str, _Entry], text: str) -> None:
    """A safetensors file in one go: its table, the tensors one by one, and the digest of all in the place of its zeros."""
    table: dict[str, Any] = {"__metadata__": {KEY: text}}
    end = 0
    # Wide numbers first, as safetensors has it: every tensor then begins at a multiple of its width.
    names = sorted(tensors, key=lambda name: (-tensors[name].tensor.dtype.itemsize, name))
    for name in names:
        start, end = end, end + tensors[name].nbytes
        code, shape = _CODES[tensors[name].tensor.dtype], list(tensors[name].shape)
        table[name] = {"dtype": code, "shape": shape, "data_offsets": [start, end]}
    raw = json.dumps(table, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    found = _SEAL.search(raw)
    assert found is not None
    assert found.group(1) == _ZEROS.encode()
    digest = hashlib.sha256()
    for piece in (len(raw).to_bytes(8, "little"), raw):
        digest.update(piece)
        file.write(piece)
    for name in names:
        content = tensors[name].content()
        digest.update(content)
        file.write(content)
    file.seek(8 + found.start(1))
    file.write(digest.hexdigest().encode())


# --- reading ---------------------------------------------------------------------------------------


def _bytes(path: Path, limit: int) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotAPrior("it is not a regular file: give the path of a saved prior.")
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise OversizedFile(f"it has {size} bytes, and {limit} are allowed: raise limit_bytes if you trust it.")
            # One byte more than there should be would show a file that grows under our hands.
            data = file.read(size + 1)
    except FileNotFoundError:
        raise MissingFile("there is no such file: look at the path.") from None
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"it cannot be read: {error}.") from error
    if len(data) != size:
        raise DamagedFile(f"it has {len(data)} bytes where {size} were announced: somebody is writing to it.")
    return data


def _header(data: bytes) -> Header:
    if len(data) < 8:
        raise NotAPrior(f"it has {len(data)} bytes, too few for a safetensors file.")
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        # The length of another kind of file is eight arbitrary bytes; that of a file cut short is followed by JSON.
        if data[8:9] == b"{" and length <= HEADER_LIMIT:
            raise DamagedFile(f"its header should have {length} bytes and the file ends after {len(data) - 8}.")
        raise NotAPrior("it is no safetensors file.")
    if length > HEADER_LIMIT:
        raise OversizedFile(f"its header has {length} bytes, and a prior's has at most {HEADER_LIMIT}.")
    raw = data[8 : 8 + length]
    if not raw.startswith(b"{"):
        raise NotAPrior("it is no safetensors file.")
    seal = _SEAL.search(raw)
    if seal is None:
        if f'"{KEY}"'.encode() in raw:
            raise DamagedFile("its header has lost the seal: it was rewritten by another tool, or is damaged.")
        raise NotAPrior("it is a safetensors file that posterity did not write: give the path of a saved prior.")
    start, end = (8 + position for position in seal.span(1))
    digest = hashlib.sha256(data[:start])
    digest.update(_ZEROS.encode())
    digest.update(memoryview(data)[end:])
    if digest.hexdigest().encode() != seal.group(1):
        raise DamagedFile("its content does not match its seal (sha256): bytes were changed, lost or added.")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise DamagedFile(f"its header is no UTF-8: {error}.") from None
    outer = parse(text)
    metadata = outer.get("__metadata__") if isinstance(outer, dict) else None
    if not isinstance(metadata, dict) or metadata.keys() != {KEY} or not isinstance(metadata[KEY], str):
        raise DamagedFile(f'its metadata should be text under the one key "{KEY}".')
    return Header.from_json(parse(metadata[KEY]))


def _need(header: Header) -> int:
    """Bytes of the tensors that the header speaks of, whole."""
    total = 0
    for block in header.blocks:
        wanted = {"mean": block.shape, **shapes(block.kind, block.shape, block.terms, block.tensors)}
        for role, spec in block.tensors.items():
            total += math.prod(wanted.get(role, ())) * getattr(torch, spec.dtype).itemsize
    return total


def _assemble(header: Header, tensors: dict[str, Tensor], *, as_stored: bool = True) -> Gaussian:
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
    stored = header.provenance
    if isinstance(stored, ProvenanceSpec):
        provenance = assembled(stored, tensors)
    else:
        provenance = from_older(stored.hashes, header.card.count, stored.chosen, mean, tensors)
    frozen = _beside(header.frozen, tensors)
    if tensors:
        raise DamagedFile(f"there are tensors that the header does not speak of: {sorted(tensors)[:5]}.")
    found = Gaussian(mean, precision, header.card, frozen)
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
