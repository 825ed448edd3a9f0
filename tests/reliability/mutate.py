"""Changed files for a reader: each must load, or fail with an error of ours, and none may take a gigabyte of memory.

python tests/reliability/mutate.py prior 2500
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

LIMIT = 4 << 30
MOST = 1 << 30
"""Bytes of memory that reading a file below 10 MB may take."""


def memory(name: str) -> int:
    """Of this process in bytes: VmRSS is what it has, VmHWM the most since `start_counting`. 0 where it is not told."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def start_counting() -> int:
    """Forget the most that was taken, give back what is free, and return what is taken now."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def mutate(name: str, count: int, seed: int = 0) -> tuple[Counter[str], list[str], int]:
    """How often each thing happened, the first few that must not, and the most memory that one reading took."""
    from readers import READERS, again

    from posterity.errors import PosterityError

    reader, outcomes, bad, most = READERS[name], Counter[str](), [], 0
    with tempfile.TemporaryDirectory() as place:
        good, folder = Path(place) / "good", Path(place) / "changed"
        good.mkdir()
        reader.make(good)
        reader.read(good) if name != "checkpoint" else None
        for k in range(count):
            chance = random.Random(f"{name} {seed} {k}")
            again(good, folder)
            reader.change(folder, chance)
            before = start_counting()
            try:
                reader.read(folder)
                outcomes["loaded"] += 1
            except PosterityError as error:
                outcomes[type(error).__name__] += 1
            except Exception as error:
                outcomes[f"RAW {type(error).__name__}"] += 1
                if len(bad) < 5:
                    bad.append(f"{name} {seed} {k}: {''.join(traceback.format_exception(error)[-4:])}")
            taken = memory("VmHWM") - before
            most = max(most, taken)
            if taken > MOST:
                bad.append(f"{name} {seed} {k}: it took {taken:,} bytes")
    return outcomes, bad, most


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    found, wrong, taken = mutate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    print(f"{sys.argv[1]}: {dict(found.most_common())}, at most {taken / 2**20:.0f} MB")
    for text in wrong:
        print(text)
    sys.exit(bool(wrong))
