"""One sealed file: safetensors, a header of JSON, a seal over every byte."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor

from posterity.errors import (
    BadPriorFile,
    DamagedFile,
    FutureVersion,
    MissingFile,
    NotAPrior,
    NotStorable,
    OldFormat,
    OversizedFile,
    UnreadableFile,
)
from posterity.files import replacing, room_for
from posterity.gaussian.plain import LARGEST, parse
from posterity.version import __version__

KEY = "posterity"
"""Of the file's only metadata: JSON that begins with a sha256 of the whole file, taken with zeros in its own place."""
FORMAT = 8
"""Of priors and fits alike. A field more, or another meaning of one, raises it."""
LIMIT = 16 * 2**30
"""Bytes that are read unless more are allowed: a prior over ResNet-50 in float64 has about one thirteenth."""
PICKLES = (".pt", ".pth", ".pkl", ".ckpt")
"""Names that other programs would open by running what is in them."""
HEADER_LIMIT = 16 * 2**20
"""Bytes of a header: some ten thousand blocks and a long card."""
LEAF = 256
"""Rows of a piece of a symmetric factor that is mirrored whole."""

ZEROS = "0" * 64
_SEAL = re.compile(rb'"posterity"\s*:\s*"\{\\"sha256\\":\\"([0-9a-f]{64})\\"')


@dataclass(frozen=True)
class TensorEntry:
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


def write_file(path: str | os.PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, TensorEntry]) -> None:
    """Write a header and tensors, atomically: whatever happens, the old file or the new one is there, and whole."""
    where = Path(path)
    if where.suffix in PICKLES:
        raise NotStorable(
            f"{where.name} has the name of a pickled file, and this is none: save it as {where.with_suffix('.safetensors').name}."
        )
    text = json.dumps({"sha256": ZEROS, "format": FORMAT, **header}, allow_nan=False, separators=(",", ":"))
    if len(text) > HEADER_LIMIT // 2:
        raise NotStorable(f"the header would have {len(text)} characters, and {HEADER_LIMIT // 2} are allowed.")
    need = sum(tensor.nbytes for tensor in tensors.values()) + 2 * len(text)
    with room_for(path, need), replacing(path) as draft, open(draft, "r+b") as file:
        _write_into(file, tensors, text)


def read_file(path: Path, limit_bytes: int) -> tuple[dict[str, Any], bytes]:
    """The header and all bytes of a file, after its seal and its format were checked. Nothing in it is run.

    Once, and whole: what was checked is what is used, even if the file is replaced meanwhile. A seal that holds says only
    that the file is as it was written, not by whom.
    """
    data = _bytes(path, limit_bytes)
    header = _header(data)
    if not isinstance(header, dict):
        raise DamagedFile("its header is no object.")
    version = header.pop("format", header.get("fit"))
    if type(version) is not int or not 1 <= version <= LARGEST:
        raise DamagedFile(f"its format is {str(version)[:40]}, and should be a whole number.")
    if version > FORMAT:
        raise FutureVersion(
            f"it is in format {version} and this posterity reads format {FORMAT}: upgrade with `pip install --upgrade posterity`."
        )
    if version < FORMAT:
        wrote = str(header.get("written_by"))[:200]
        raise OldFormat(
            f"it is in format {version}, which no release wrote, and this version reads format {FORMAT}: learn it again, or open "
            f"it with the version that wrote it ({wrote}) and take over its matrices."
        )
    del header["sha256"]
    return header, data


def tensors_in(data: bytes) -> dict[str, Tensor]:
    """The tensors of a file that was read."""
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, KeyError) as error:
        raise DamagedFile(f"its tensors do not fit the file: {error}.") from None


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors name the file; whatever a damaged one leads to is called that."""
    remedy = "Get the file again, or save it again."
    try:
        yield
    except BadPriorFile as error:
        text = f"{path}: {error} {remedy}" if isinstance(error, DamagedFile) else f"{path}: {error}"
        raise type(error)(text) from error.__cause__
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise DamagedFile(f"{path}: it is damaged ({type(error).__name__}: {error}). {remedy}") from error


def versions() -> dict[str, str]:
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


def _write_into(file: Any, tensors: Mapping[str, TensorEntry], text: str) -> None:
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
    assert found.group(1) == ZEROS.encode()
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


def _bytes(path: Path, limit: int) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotAPrior(
                "it is not a regular file, and a prior or a fit is one (only unreleased versions wrote folders: learn it again)."
            )
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
        raise DamagedFile(f"it has {len(data)} bytes where {size} were announced: another program is writing to it.")
    return data


def _header(data: bytes) -> Any:
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
    digest.update(ZEROS.encode())
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
    return parse(metadata[KEY])


# --- large symmetric factors by their lower triangle: half the bytes, and symmetric again however they were changed --


def packed(x: Float[Tensor, "n n"]) -> Float[Tensor, "half"]:
    """The rows of the lower triangle, one behind the other."""
    n = len(x)
    result = x.new_empty(n * (n + 1) // 2)
    for i in range(n):
        start = i * (i + 1) // 2
        result[start : start + i + 1] = x[i, : i + 1]
    return result


def unpacked(half: Float[Tensor, "half"], n: int) -> Float[Tensor, "n n"]:
    """The symmetric matrix from its packed triangle."""
    x = half.new_empty(n, n)
    for i in range(n):
        start = i * (i + 1) // 2
        x[i, : i + 1] = half[start : start + i + 1]
    for start in range(0, n, LEAF):
        stop = min(n, start + LEAF)
        x[start:stop, stop:] = x[stop:, start:stop].T
        own = x[start:stop, start:stop]
        own.copy_(own.tril() + own.tril(-1).T)
    return x


def packed_size(n: int) -> int:
    """Entries of the lower triangle."""
    return n * (n + 1) // 2
