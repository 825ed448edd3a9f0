"""Saves that are killed: each in a process of its own, made by fork so that torch is imported once."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from gaussians import gaussian, same
from matrices import pair

import posterity as pt
from posterity.gaussian import container


def killed_in(module: object, name: str, when: str, nth: int = 1) -> Callable[[], None]:
    """Dies by SIGKILL before or after the nth call of a function."""

    def prepare() -> None:
        original, calls = getattr(module, name), 0

        def deadly(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == nth and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            if calls == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(module, name, deadly)

    return prepare


def main(path: Path) -> None:
    torch.set_num_threads(1)  # a forked process has no threads but one
    old = gaussian({"a": pair(40, 60, 0)})
    new = gaussian({"a": pair(40, 60, 5)}, seed=3)

    def tell() -> None:
        found = pt.load(path)
        print("old" if same(found, old) else "new" if same(found, new) else "NEITHER", flush=True)

    points = [
        killed_in(container.TensorEntry, "content", "after", 2),
        killed_in(container, "_write_into", "after"),
        killed_in(os, "replace", "before"),
        killed_in(os, "replace", "after"),
        killed_in(os, "fsync", "before", 2),
    ]
    for prepare in points:
        old.save(path)
        if not (child := os.fork()):
            prepare()
            new.save(path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL, "the process was to die"
        tell()
    chance = random.Random(0)
    for _ in range(12):
        if not (child := os.fork()):
            while True:
                new.save(path)
                old.save(path)
        time.sleep(chance.uniform(0.02, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        tell()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
