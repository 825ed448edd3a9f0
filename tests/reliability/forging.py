"""Sealed files, changed by accident or forged behind a right seal: in the header, or in the tensors."""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "gaussian")]

from crafting import joined, sealed, split
from mutations import accident, edited


def changed_file(content: bytes, chance: random.Random) -> bytes:
    """The bytes of a file that posterity would have to read."""
    match chance.randrange(4):
        case 0 | 1:
            return accident(content, chance)
        case 2:
            outer, inner, body = split(content)
            return joined(outer, edited(inner, chance, ("sha256",)), body)
    length = int.from_bytes(content[:8], "little")
    return sealed(content[8 : 8 + length], accident(content[8 + length :], chance))
