"""kill −9 at chosen moments, and a disk that runs full: nothing is lost, nothing is doubled.

python tests/reliability/kill.py train 50         # at 50 moments, spread over all changes that the work makes to its files
python tests/reliability/kill.py save 50 full     # files may grow to a random size only (RLIMIT_FSIZE)
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parent))

import torch
from moments import WRITES, changes_of, run_until
from writers import KINDS

from posterity.errors import DiskFull
from posterity_studies.errors import NotWritten

SAID_SO = 7


def killed(kind: str, times: int) -> str:
    """The work of a kind, begun `times` times and killed at another moment each time."""
    way = KINDS[kind]
    states, at = set(), set()
    with tempfile.TemporaryDirectory() as place:
        # Once here: no child spends its changes on caches that torch or python write at first use.
        way.work(_empty(place))
        way.check(_empty(place))
        first = _empty(place)
        changes = changes_of(lambda: way.work(first), first)
        steps = way.check(first)
        assert steps == way.steps
        moments = [
            (k, half)
            for k, name in enumerate(changes, 1)
            for half in ((False, True) if name in WRITES.values() else (False,))
        ]
        chosen = [moments[i * len(moments) // times] for i in range(min(times, len(moments)))]
        for k, half in chosen:
            folder = _empty(place)
            found = run_until(lambda where=folder: way.work(where), folder, k, half)
            assert found.change is not None, "it ended before it could be killed"
            states.add(_digest(folder))
            at.add((k, half))
            change, each = way.ends_a_step
            finished = changes[: k - 1].count(change) // each
            there = way.check(folder)
            assert there == finished, (
                f"{there} steps are there and {finished} were finished (change {k}, {found.change})"
            )
    return (
        f"{kind}: {len(chosen)} kills at {len(at)} moments of {len(moments)}, whole every time, "
        f"{len(states)} different folders left behind"
    )


def full(kind: str, times: int) -> str:
    """The same with files that may not grow beyond a random size, begun again or gone on with, each time as the last left it."""
    way, chance = KINDS[kind], random.Random(kind)
    told, states = 0, set()
    with tempfile.TemporaryDirectory() as place:
        folder = _empty(place)
        way.work(folder)
        largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        before = way.steps
        for _ in range(times):
            if before == way.steps:
                folder, before = _empty(place), 0
            told += _write(kind, folder, chance.randrange(1, largest + largest // 20))
            states.add(_digest(folder))
            # Some checks go on with the work: they look at a copy.
            steps = way.check(_copy(folder, place))
            assert steps >= before or kind in ("save", "fit", "estimator"), f"{steps} steps are there after {before}"
            before = steps
    return (
        f"{kind}: {times} full disks, told {told} times, whole every time, {len(states)} different folders left behind"
    )


def _write(kind: str, folder: Path, room: int) -> bool:
    """Let a child write files of at most `room` bytes; whether it told that there was no more."""
    child = os.fork()
    if not child:
        _limited(kind, folder, room)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status), f"the writer ended with status {status}"
    assert os.WEXITSTATUS(status) in (0, SAID_SO), f"the writer ended with status {os.WEXITSTATUS(status)}"
    return os.WEXITSTATUS(status) == SAID_SO


def _limited(kind: str, folder: Path, room: int) -> NoReturn:
    """The child's life. A full disk must be told by its name; then it exits with `SAID_SO`."""
    status = 1
    try:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        KINDS[kind].work(folder)
        status = 0
    except (DiskFull, NotWritten):
        status = SAID_SO
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def _empty(place: str) -> Path:
    return Path(tempfile.mkdtemp(dir=place))


def _copy(folder: Path, place: str) -> Path:
    twin = _empty(place)
    for path in folder.rglob("*"):
        if path.is_file():
            (twin / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (twin / path.relative_to(folder)).write_bytes(path.read_bytes())
    return twin


def _digest(folder: Path) -> str:
    """All files with their contents; of drafts, whose names are random, what they are drafts of."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda p: re.sub(r"-[0-9a-f]{16}\.tmp$", ".tmp", str(p))):
        name = re.sub(r"-[0-9a-f]{16}\.tmp$", ".tmp", str(path.relative_to(folder)))
        found.update(name.encode() + b"\0" + (path.read_bytes() if path.is_file() else b"folder") + b"\0")
    return found.hexdigest()


def through(kind: str, times: int, disk_is_full: bool) -> str:
    return full(kind, times) if disk_is_full else killed(kind, times)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(through(sys.argv[1], int(sys.argv[2]), "full" in sys.argv[3:]))
