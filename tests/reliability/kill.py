"""kill −9 at many moments, and a disk that runs full: nothing is lost, nothing is doubled.

python tests/reliability/kill.py train 50         # kills until it has run through, then looks at the end
python tests/reliability/kill.py save 50 full     # files may grow to a random size only (RLIMIT_FSIZE)
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from writers import EPOCHS, KINDS, data, network

import posterity as pt

ROUNDS = {"train": 1, "save": 100_000, "learner": 12, "study": 4000}
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
    from posterity_studies.engine.ledger import Ledger

    path = folder / "toy.jsonl"
    book = Ledger(path)
    keys = list(book.records)
    assert keys == [f"key {k}" for k in range(len(keys))], "a result is lost or out of order"
    assert len(keys) >= BEFORE.get("keys", 0)
    BEFORE["keys"] = len(keys)
    return f"{len(keys)} results"


def run(kind: str, folder: Path, moment: float | None, room: int | None) -> int:
    """Start a writer, kill it after a while, and give its exit status. `room` bytes is how large a file may become."""

    def limited() -> None:
        if room is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    command = [sys.executable, str(Path(__file__).with_name("writers.py")), kind, str(folder), str(ROUNDS[kind])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limited, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        if moment is None:
            process.stdout.read()
            error = process.stderr.read()
            status = process.wait()
            if status and room is not None:
                last = error.strip().splitlines()[-1]
                assert "Error" in last or "posterity" in last, error
            return status
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        return process.wait()


def through(kind: str, times: int, full: bool) -> str:
    BEFORE.clear()
    chance = random.Random(f"{kind} {full}")
    states: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for _ in range(times):
            if full:
                run(kind, folder, None if kind != "save" else 0.4, chance.choice([1000, 5000, 20_000, 60_000, 200_000]))
            else:
                run(kind, folder, chance.uniform(0, 3.0), None)
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
    print(through(sys.argv[1], int(sys.argv[2]), "full" in sys.argv[3:]))
