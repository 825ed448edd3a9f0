"""Which files of the library a call passes through, in the order in which it first enters them.

Run as a script it prints every journey: `python tests/docs/journeys.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import posterity as pt

ROOT = Path(pt.__file__).parent


def files_of(call: Callable[[], Any], root: Path = ROOT) -> list[str]:
    """Files below `root` with a function that ran during the call. Files that were only imported do not count."""
    passed: dict[str, None] = {}

    def enter(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and frame.f_code.co_name != "<module>" and name.startswith(f"{root}/"):
            passed.setdefault(name)

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(before)
    return [str(Path(name).relative_to(root)) for name in passed]


def points(seed: int, n: int = 60, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    return x, torch.cdist(x, torch.randn(classes, 4, generator=generator)).argmin(1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def steps(prior: pt.Gaussian) -> pt.Gaussian:
    model = network()
    pt.train(model, points(1), prior, epochs=3, progress=False)
    return pt.update(prior, model, pt.estimate(model, points(1), progress=False))


def journeys() -> dict[str, list[str]]:
    """The calls that most users make, on a small network, with a learned prior.

    `pt.learn` of few examples takes the exact posterior in function space, of many the structured one. The three steps are what
    learning was made of before either: training, curvature, Bayes' rule.
    """
    quick: dict[str, Any] = {"training": {"epochs": 3}, "progress": False}
    prior = pt.learn(network(), points(0), **quick).posterior
    found: dict[str, list[str]] = {}
    made: dict[str, Any] = {}

    def follow(name: str, call: Callable[[], Any]) -> None:
        found[name] = files_of(lambda: made.update({name: call()}))

    follow("pt.learn", lambda: pt.learn(network(), points(1), prior, **quick))
    fit = made["pt.learn"]
    follow("pt.learn of many", lambda: pt.learn(network(), points(1, n=1600), prior, **quick))
    follow("pt.train, pt.estimate, pt.update", lambda: steps(prior))
    follow("fit.predict", lambda: fit.predict(points(2)[0]))
    follow("fit.certify", lambda: fit.certify(points(1), progress=False))
    task = pt.Task("first", points(3), points(4), points(5), classes=3)
    bpnn = pt.BPNN(network(), prior=prior, laterals=["0"], training={"epochs": 3})
    follow("bpnn.learn", lambda: bpnn.learn(task, progress=False))
    return found


if __name__ == "__main__":
    for name, passed in journeys().items():
        print(f"{name}: {len(passed)} files\n  " + "\n  ".join(passed))
