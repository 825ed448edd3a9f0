"""Files taken apart, changed, and sealed again as if posterity had written them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

ZEROS = b"0" * 64
SEAL = re.compile(rb'(\{\\"sha256\\":\\")([0-9a-f]{64})')


def split(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """The safetensors header, the prior's own header in it, and the tensors' bytes."""
    length = int.from_bytes(data[:8], "little")
    outer = json.loads(data[8 : 8 + length])
    return outer, json.loads(outer["__metadata__"]["posterity"]), data[8 + length :]


def sealed(header: bytes, body: bytes) -> bytes:
    """A file whose digest is right, whatever else is wrong."""
    blank = SEAL.sub(rb"\g<1>" + ZEROS, header, count=1)
    whole = len(blank).to_bytes(8, "little") + blank + body
    digest = hashlib.sha256(whole).hexdigest().encode()
    return SEAL.sub(rb"\g<1>" + digest, whole, count=1)


def joined(outer: dict[str, Any], inner: dict[str, Any] | str, body: bytes) -> bytes:
    text = inner if isinstance(inner, str) else json.dumps(inner, separators=(",", ":"))
    outer = {**outer, "__metadata__": {**outer.get("__metadata__", {}), "posterity": text}}
    return sealed(json.dumps(outer, separators=(",", ":")).encode(), body)


def with_header(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The prior's own header changed in place."""
    outer, inner, body = split(data)
    change(inner)
    return joined(outer, inner, body)


def with_text(data: bytes, old: str, new: str) -> bytes:
    """The text of the prior's own header changed."""
    outer, inner, body = split(data)
    text = json.dumps(inner, separators=(",", ":"))
    assert old in text
    return joined(outer, text.replace(old, new, 1), body)


def with_body(data: bytes, tensor: str, value: bytes, at: int = 0) -> bytes:
    """Some bytes of one tensor overwritten."""
    outer, inner, body = split(data)
    start = outer[tensor]["data_offsets"][0] + at
    return joined(outer, inner, body[:start] + value + body[start + len(value) :])
