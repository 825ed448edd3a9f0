"""May an average of posteriors be sharper than it is? Three temperatures of it, on data that no study tests by.

Watch: windows between what was shown and the middle of each recording. Images: training images that were not learned from, after
source networks trained as in the study `quality`. Every line of the results file is one case. A case that is there is kept.

    python -m benchmarks.average_temperature benchmarks/results/average_temperature.jsonl
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import posterity as pt
from posterity.kernel import sharpened, tempered
from posterity.kernel.choose import SHARPER
from posterity_studies.shared.datasets import per_class
from posterity_studies.shared.intervals import interval
from posterity_studies.shared.networks import fresh, with_fast_pooling
from posterity_studies.shared.rivals.training import Budget, Pair
from posterity_studies.shared.sources import data_set
from posterity_studies.shared.watch import RATE, WINDOW, Meeting, meet
from posterity_studies.studies.quality import cells

WAYS = ("as it is", "posterior mean", "best of the grid")
PAIRS = (("notmnist", "mnist"), ("mnist", "notmnist"), ("digits", "mnist"), ("mnist", "digits"))
SHOTS, SEEDS, TESTED = (2, 10), (0, 1), 500
SECONDS = (2, 4)


def between(meeting: Meeting, seconds: int) -> Pair:
    """Windows of the first halves after what was shown."""
    x, y = [], []
    for recording in meeting.own:
        part = recording.signal[:, seconds * RATE : recording.signal.shape[1] // 2]
        if part.shape[1] >= WINDOW:
            cut = part.unfold(1, WINDOW, WINDOW).transpose(0, 1)
            x.append((cut - meeting.mean) / meeting.deviation)
            y += [recording.exercise - (recording.exercise > meeting.unknown)] * len(cut)
    return torch.cat(x)[:, :, None], torch.tensor(y)


def watch(wearer: int, seconds: int) -> dict[str, Any]:
    meeting = meet(wearer)
    start = cells.kept_network(
        f"watch-{wearer}-{meeting.unknown}",
        cells.watch_network(len(meeting.classes), wearer),
        cells.flat(meeting.source(stride=25).pair),
        Budget(600, cells.PEAK),
        wearer,
    )
    prior = cells.handed_down(start, cells.flat(meeting.source().pair), meeting.classes, wearer)
    fit = pt.learn(start, cells.flat(meeting.shown(seconds).pair), prior, classes=meeting.classes, progress=False)
    return judged(fit, *between(meeting, seconds))


def images(source: str, target: str, shots: int, seed: int) -> dict[str, Any]:
    seen = cells.source_images(source, 10_000)
    start = cells.kept_network(f"{source}-10000", with_fast_pooling(fresh(seed)), seen, Budget(600, cells.PEAK), seed)
    names, same = tuple(f"{source} {c}" for c in range(10)), (source, target) in cells.SAME_CLASSES
    prior = cells.handed_down(start, seen, names, seed)
    x, y = data_set(target).train
    generator = torch.Generator().manual_seed(5000 + 10 * seed + shots)
    order = torch.randperm(len(x), generator=generator)
    test, rest = order[:TESTED], order[TESTED:]
    model = copy.deepcopy(start) if same else cells.new_head(start, 10 * seed)
    classes = names if same else tuple(f"{target} {c}" for c in range(10))
    fit = pt.learn(model, per_class((x[rest], y[rest]), shots, generator), prior, classes=classes, progress=False)
    return judged(fit, x[test], y[test])


def judged(fit: pt.Fit, x: Tensor, y: Tensor) -> dict[str, Any]:
    """The same average at each temperature."""
    space = fit.function
    assert space is not None
    plain = replace(fit, function=replace(space, choice=replace(space.choice, temperature=1.0))).predict(x).probs
    chosen = dict(zip(WAYS, (1.0, sharpened(space.choice).temperature, best(fit)), strict=True))
    found: dict[str, Any] = {}
    for way, t in chosen.items():
        score = pt.score(tempered(plain, fit.likelihood, t), y)
        found[way] = {"temperature": round(t, 4), "nll": round(score.nll, 5), "ece": round(score.ece, 5)}
    return found


def best(fit: pt.Fit) -> float:
    """The temperature of the grid, or one above 1, under which the average predicts best what was left out."""
    choice, grid = fit.choice, (*SHARPER, 1.1, 1.25, 1.5, 2.0)
    assert choice is not None
    average = choice.left_out
    assert average is not None
    targets = choice.best.posterior.of.targets[:, None]
    losses = [float(-tempered(average, fit.likelihood, t).gather(1, targets).log().sum()) for t in grid]
    return grid[min(range(len(grid)), key=losses.__getitem__)]


def cases() -> Iterator[dict[str, Any]]:
    for seconds in SECONDS:
        yield from ({"task": "watch", "seconds": seconds, "wearer": wearer} for wearer in range(1, 11))
    for shots in SHOTS:
        for seed in SEEDS:
            for source, target in PAIRS:
                yield {"task": f"{source} to {target}", "shots": shots, "seed": seed}


def run(out: Path) -> None:
    kept = _records(out)
    for case in cases():
        if any(case.items() <= record.items() for record in kept):
            continue
        if case["task"] == "watch":
            found = watch(case["wearer"], case["seconds"])
        else:
            source, target = case["task"].split(" to ")
            found = images(source, target, case["shots"], case["seed"])
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(case | found) + "\n")


def show(out: Path) -> None:
    records = _records(out)
    groups: dict[str, list[dict[str, Any]]] = {"all": records}
    for record in records:
        size = f"{record['seconds']} s" if "seconds" in record else f"{record['shots']} a class"
        groups.setdefault(f"{record['task']}, {size}", []).append(record)
    for name, own in groups.items():
        print(f"{name}: {len(own)} cases")
        for way in WAYS:
            nll, ece, t = (fmean(r[way][m] for r in own) for m in ("nll", "ece", "temperature"))
            line = f"    {way:18s} nll {nll:.3f}  ece {ece:.3f}  T {t:.2f}"
            if way != WAYS[0] and len(own) > 1:
                gap = interval([r[way]["nll"] - r[WAYS[0]]["nll"] for r in own])
                line += f"  nll against as it is {gap.mean:+.3f} ± {gap.half:.3f}"
            print(line)


def _records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]))
    show(Path(sys.argv[1]))
