"""A Gaussian as one file: safetensors, a header of JSON, a seal over every byte.

The metadata of the file has one key, "posterity": versioned JSON that begins with a sha256 of the whole file, taken with
zeros in its own place. Tensors are named by the number of their block and their role ("3.mean", "3.left.0"), so a block may
have any name. Loading runs no code and believes nothing it has not checked; a seal that holds says only that the file is
as it was written, not by whom.
"""

from __future__ import annotations

import hashlib
import json
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
from posterity.files import replacing
from posterity.gaussian.frozen import FrozenState, dtype_name
from posterity.gaussian.gaussian import Gaussian
from posterity.gaussian.header import BESIDE, BlockSpec, FrozenSpec, Header, TensorSpec, parse
from posterity.gaussian.parts import put_together, shapes, take_apart
from posterity.gaussian.stored_provenance import ProvenanceSpec, assembled, from_older, tensors_of
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
_CHUNK = 2**22


@dataclass(frozen=True)
class Stored:
    """A file's content: the Gaussian, and what is true of the file alone."""

    gaussian: Gaussian
    written_by: Mapping[str, str]
    """The versions that wrote the file; `gaussian.card.versions` are those it was learned with."""
    size: int
    """Bytes."""


def save(gaussian: Gaussian, path: str | os.PathLike[str]) -> None:
    """Write one `.safetensors` file, atomically: whatever happens, the old file or the new one is there, and whole."""
    where = Path(path)
    if where.suffix in PICKLES:
        raise NotStorable(
            f"{where.name} has the name of a pickled file, and this is none: save it as {where.with_suffix('.safetensors').name}."
        )
    if not where.parent.is_dir():
        raise MissingFolder(f"there is no folder {where.parent}: make it first (mkdir -p {where.parent}).")
    header, tensors = _disassemble(gaussian)
    text = json.dumps({"sha256": _ZEROS, **header.to_json()}, allow_nan=False, separators=(",", ":"))
    with replacing(path) as draft:
        safetensors.torch.save_file(tensors, draft, metadata={KEY: text})
        with open(draft, "r+b") as file:
            _seal(file)


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


def _disassemble(gaussian: Gaussian) -> tuple[Header, dict[str, Tensor]]:
    blocks, tensors = [], {}
    for index, (name, matrix) in enumerate(gaussian.precision.items()):
        try:
            kind, parts = take_apart(matrix)
        except NotStorable as error:
            raise NotStorable(f'block "{name}": {error}') from None
        specs = {}
        for role, tensor in {"mean": gaussian.mean[name], **parts}.items():
            tensors[f"{index}.{role}"], specs[role] = _stored(tensor)
        terms = len(parts) // 2 if kind == "kronecker sum" else 1
        blocks.append(BlockSpec(name, kind, matrix.shape, terms, specs))
    tensors |= tensors_of(gaussian.provenance)
    beside = _specs(gaussian.frozen)
    tensors |= {f"frozen.{k}": x for k, x in enumerate(gaussian.frozen.tensors.values())}
    header = Header(tuple(blocks), gaussian.card, ProvenanceSpec.of(gaussian.provenance), _versions(), beside)
    try:
        # Reading it back, here in memory, settles that what is saved can be loaded.
        text = json.dumps({"sha256": _ZEROS, **header.to_json()}, allow_nan=False)
        if len(text) > HEADER_LIMIT // 2:
            raise DamagedFile(f"the header would have {len(text)} characters, and {HEADER_LIMIT // 2} are allowed.")
        _assemble(Header.from_json(parse(text)), dict(tensors))
    except (PosterityError, TypeError, ValueError) as error:
        raise NotStorable(f"this Gaussian could not be loaded again: {error}") from error
    return header, tensors


def _stored(tensor: Tensor) -> tuple[Tensor, TensorSpec]:
    tensor = tensor.detach().cpu()
    columns = tensor.ndim == 2 and not tensor.is_contiguous() and tensor.mT.is_contiguous()
    dtype = str(tensor.dtype).removeprefix("torch.")
    # A copy each: safetensors refuses tensors that share memory, as blocks of one initial mean do.
    bare = (tensor.mT if columns else tensor).clone(memory_format=torch.contiguous_format)
    return bare, TensorSpec(dtype, "columns" if columns else "rows")


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


def _seal(file: Any) -> None:
    """Put the digest of the whole file in the place of its zeros."""
    length = int.from_bytes(file.read(8), "little")
    found = _SEAL.search(file.read(length))
    assert found is not None
    assert found.group(1) == _ZEROS.encode()
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
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


def _assemble(header: Header, tensors: dict[str, Tensor]) -> Gaussian:
    """The Gaussian that the header speaks of. Takes the tensors out of the dictionary, one block at a time."""
    mean, precision = {}, {}
    for index, block in enumerate(header.blocks):
        try:
            wanted = {"mean": block.shape, **shapes(block.kind, block.shape, block.terms, block.tensors)}
            if wanted.keys() != block.tensors.keys():
                raise DamagedFile(f"a {block.kind} has the tensors {[*wanted][:9]}, not {[*block.tensors][:9]}.")
            parts = {
                role: _tensor(tensors, f"{index}.{role}", block.tensors[role], shape) for role, shape in wanted.items()
            }
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


def _tensor(tensors: dict[str, Tensor], name: str, spec: TensorSpec, shape: tuple[int, ...]) -> Tensor:
    found = tensors.pop(name, None)
    if found is None:
        raise DamagedFile(f'the tensor "{name}" is missing.')
    if found.dtype != getattr(torch, spec.dtype):
        raise DamagedFile(f'the tensor "{name}" is {found.dtype}, and {spec.dtype} is declared.')
    columns = spec.order == "columns"
    if found.shape != (shape[::-1] if columns else shape):
        raise DamagedFile(f'the tensor "{name}" has shape {tuple(found.shape)[:9]} and the block needs {shape}.')
    # Memory of torch's own: aligned alike before and after, which fast matrix products take into account.
    found = found.clone()
    return found.mT if columns else found
