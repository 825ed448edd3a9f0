"""kill −9 at many moments, and a disk that runs full: nothing is lost, nothing is doubled.

python tests/reliability/kill.py train 50         # kills until it has run through, then looks at the end
python tests/reliability/kill.py save 50 full     # files may grow to a random size only (RLIMIT_FSIZE)
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

import torch
from writers import EPOCHS, KINDS, data, network

import posterity as pt
from posterity_studies.engine.ledger import Ledger

ROUNDS = {"train": 1, "save": 40, "learner": 8, "study": 2000}
SHARE = {"train": 0.4, "save": 1.0, "learner": 0.2, "study": 0.05}
"""The latest moment of a kill, as a share of the time that all the work takes."""
SAID_SO = 7
BEFORE: dict[str, Any] = {}


def check(kind: str, folder: Path) -> str:
    """That what is there is whole. Raises if not."""
    match kind:
        case "train":
            path = folder / "run.pt"
            if not path.exists():
                return "nothing yet"
            from posterity.laplace.checkpoint import read_state

            epochs = len(read_state(path)["epochs"])
            assert epochs >= BEFORE.get("epochs", 0), f"{epochs} epochs after {BEFORE['epochs']}"
            BEFORE["epochs"] = epochs
            return f"{epochs} epochs"
        case "save":
            path = folder / "prior.safetensors"
            if not path.exists():
                return "nothing yet"
            return f"precision {pt.load(path).card.precision}"
        case "learner":
            if not (folder / "learner" / "learner.json").exists():
                return "nothing yet"
            found = pt.BPNN.load(folder / "learner", network())
            tasks = len(found.tasks)
            assert tasks >= BEFORE.get("tasks", 0), f"{tasks} tasks after {BEFORE['tasks']}"
            BEFORE["tasks"] = tasks
            for task in found.tasks:
                found.predict(data(4)[0], task, samples=1)
            return f"{tasks} tasks"
    path = folder / "toy.jsonl"
    book = Ledger(path)
    keys = list(book.records)
    assert keys == [f"key {k}" for k in range(len(keys))], "a result is lost or out of order"
    assert len(keys) >= BEFORE.get("keys", 0)
    BEFORE["keys"] = len(keys)
    return f"{len(keys)} results"


def run(kind: str, folder: Path, moment: float | None, room: int | None) -> float:
    """Let a child write; kill it (SIGKILL) when it has computed for `moment` seconds. Returns what it had computed.

    The child is a fork: a kill costs what it interrupts, not an import of torch. Its own time counts, not the clock's, so that
    kills are as evenly spread on a busy machine as on an idle one. `room` bytes is how large a file may become.
    """
    child = os.fork()
    if not child:
        _write(kind, folder, room)
    spent = 0.0
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        spent = _computed(child)
        if moment is not None and spent >= moment:
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(0.0005)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) not in ((0,) if room is None else (0, SAID_SO)):
        raise AssertionError(f"the writer ended with status {os.WEXITSTATUS(status)}")
    return spent


def _write(kind: str, folder: Path, room: int | None) -> NoReturn:
    """The child's life. A full disk must be told as an error; then it exits with `SAID_SO`."""
    status = 1
    try:
        if room is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        KINDS[kind](folder, ROUNDS[kind])
        status = 0
    except (OSError, pt.PosterityError):
        status = SAID_SO
    except Exception as error:
        if room is None or "safetensors" not in type(error).__name__.lower() + str(type(error)):
            traceback.print_exc()
        else:
            status = SAID_SO
    finally:
        os._exit(status)


def _computed(child: int) -> float:
    """Seconds of processor time that a process has had."""
    try:
        return int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def through(kind: str, times: int, full: bool) -> str:
    BEFORE.clear()
    chance = random.Random(f"{kind} {full}")
    states: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        folder, aside = Path(place) / "here", Path(place) / "aside"
        folder.mkdir()
        aside.mkdir()
        # Once here, so that no child spends its time on imports that torch puts off.
        KINDS[kind](Path(tempfile.mkdtemp(dir=place)), 1)
        whole = run(kind, aside, None, None)
        for _ in range(times):
            if full:
                # Sometimes less than what is there already, mostly a little more: a file is cut in the middle of a write.
                there = max((p.stat().st_size for p in folder.rglob("*") if p.is_file()), default=0)
                run(kind, folder, None, chance.choice([0, there]) + chance.randrange(1, 40_000))
            else:
                # What was saved is not done again: several kills fall into one run of the whole.
                run(kind, folder, chance.uniform(0, whole * SHARE[kind]), None)
            states.append(check(kind, folder))
        leftover = [p.name for p in folder.rglob("*.tmp")]
        if kind == "train":
            history, model = KINDS["train"](folder, 1)
            straight, same = KINDS["train"](Path(tempfile.mkdtemp(dir=place)), 1)
            assert len(history.epochs) == EPOCHS
            assert history.epochs == straight.epochs, "it did not go on to the same numbers"
            assert all(torch.equal(p, q) for p, q in zip(model.parameters(), same.parameters(), strict=True))
    distinct = len(set(states))
    how = "full disks" if full else "kills"
    return f"{kind}: {times} {how}, whole every time ({distinct} different states, {len(leftover)} drafts left behind)"


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(through(sys.argv[1], int(sys.argv[2]), "full" in sys.argv[3:]))
