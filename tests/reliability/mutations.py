"""Small accidents and forgeries to a file's bytes, or to a value somewhere in its JSON."""

from __future__ import annotations

import json
import random
from typing import Any

ODD = [
    None,
    True,
    -1,
    0,
    1.5,
    2**62,
    2**64,
    10**9,
    1e300,
    -5.0,
    0.02,
    59.5,
    "",
    "rows",
    "\x1b[2J",
    [],
    [1, 2],
    {},
    {"a": 1},
]
"""Values that a field was not made for."""


def accident(data: bytes, chance: random.Random) -> bytes:
    """A bit turned, bytes lost, added, exchanged or written over."""
    if not data:
        return chance.randbytes(9)
    at = chance.randrange(len(data))
    match chance.choice(["flip", "flip", "cut", "insert", "remove", "swap", "write"]):
        case "flip":
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "insert":
            return data[:at] + chance.randbytes(chance.choice([1, 8, 100])) + data[at:]
        case "remove":
            return data[:at] + data[at + chance.choice([1, 8, 100]) :]
        case "swap":
            other, changed = chance.randrange(len(data)), bytearray(data)
            changed[at], changed[other] = changed[other], changed[at]
            return bytes(changed)
    return data[:at] + chance.choice([b"\0" * 8, b"\xff" * 8, b"NaN", b"-1", b'"', b"}", b"[" * 2000]) + data[at + 8 :]


def edited(node: Any, chance: random.Random, keep: tuple[str, ...] = ()) -> Any:
    """One value somewhere in a structure of dictionaries and lists replaced, dropped or repeated."""
    copy = json.loads(json.dumps(node))
    spots: list[tuple[Any, Any]] = []

    def walk(at: Any) -> None:
        for key in at if isinstance(at, dict) else range(len(at)):
            if key in keep:
                continue
            spots.append((at, key))
            if isinstance(at[key], (dict, list)):
                walk(at[key])

    walk(copy)
    at, key = chance.choice(spots)
    match chance.randrange(8):
        case 0:
            del at[key]
        case 1:
            at.update({f"{key}x": at[key]}) if isinstance(at, dict) else at.append(at[key])
        case 2:
            deep: Any = 1
            for _ in range(chance.choice([50, 900])):
                deep = [deep]
            at[key] = deep
        case _:
            at[key] = chance.choice(ODD)
    return copy
