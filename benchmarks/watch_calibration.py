"""Is the demo's confidence after 2 s of labels off for all wearers, or for each in another way? And does another choice mend it?

Judged on windows between what was shown and the middle of each recording. The second halves, which the demo is tested by, are
never looked at. Every line of the results file is one wearer and one way to adapt; with results alone, their means are printed.

    python -m benchmarks.watch_calibration benchmarks/results/watch_calibration.jsonl [results/demo]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import posterity as pt
from posterity.kernel import folds_of, link
from posterity.kernel.choose import HALVES
from posterity_studies.demo.source import at_mean, prior_of
from posterity_studies.shared.intervals import interval
from posterity_studies.shared.watch import RATE, WINDOW, Meeting, meet

SECONDS = 2
WAYS: dict[str, dict[str, Any]] = {
    "as in the demo": {},
    "networks beside it": {"polish": True},
    "link pairwise": {"link": "pairwise"},
    "link bridge": {"link": "bridge"},
    "strength by evidence": {"scales": "evidence"},
}
TEMPERATURES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
"""Of the average of posteriors. Each member's own is at least 1."""


def between(meeting: Meeting) -> tuple[Tensor, Tensor]:
    """Windows of the first halves after what was shown."""
    x, y = [], []
    for recording in meeting.own:
        part = recording.signal[:, SECONDS * RATE : recording.signal.shape[1] // 2]
        if part.shape[1] >= WINDOW:
            cut = part.unfold(1, WINDOW, WINDOW).transpose(0, 1)
            x.append((cut - meeting.mean) / meeting.deviation)
            y += [recording.exercise - (recording.exercise > meeting.unknown)] * len(cut)
    return torch.cat(x), torch.tensor(y)


def of_average(fit: pt.Fit, targets: Tensor) -> float:
    """The temperature of the whole average under which it predicts best what was left out, fold by fold."""
    assert fit.choice is not None
    folds, mixed = folds_of(targets), torch.zeros(())
    for member in fit.choice.members:
        out, (tau, t) = member.posterior.refitted(folds), (member.calibration.tau, member.calibration.temperature)
        mixed = mixed + member.weight * link(out.mean / t, tau * out.covariance / t**2, fit.likelihood)
    losses = [float(-softened(mixed, t).gather(1, targets[:, None]).log().mean()) for t in TEMPERATURES]
    return TEMPERATURES[min(range(len(losses)), key=losses.__getitem__)]


def softened(probs: Tensor, temperature: float) -> Tensor:
    return (probs.clamp_min(1e-12).log() / temperature).softmax(-1)


def judged(probs: Tensor, y: Tensor) -> dict[str, Any]:
    found, bins = pt.score(probs, y), pt.reliability(probs, y)
    return {
        "accuracy": round(found.accuracy, 5),
        "nll": round(found.nll, 5),
        "ece": round(found.ece, 5),
        "confidence": round(float(probs.max(1).values.mean()), 5),
        "reliability": [[round(float(v), 4) for v in part] for part in (bins.confidence, bins.accuracy, bins.share)],
    }


def run(out: Path, folder: Path) -> None:
    """`folder` is where the demo keeps its priors; they are learned where they are not there."""
    for wearer in range(1, 11):
        meeting = meet(wearer)
        prior = prior_of(folder, {"wearer": wearer, "unknown": 6, "epochs": 20})
        x, y = between(meeting)
        shown = meeting.shown(SECONDS).pair
        lines: dict[str, dict[str, Any]] = {}
        for way, options in WAYS.items():
            start = time.process_time()
            dice = torch.Generator().manual_seed(0)
            model = at_mean(prior)
            fit = pt.adapt(model, prior, shown, classes=meeting.classes, generator=dice, progress=False, **options)
            probs = fit.predict(x).probs
            lines[way] = judged(probs, y) | {"cpu_seconds": round(time.process_time() - start, 1)}
            if not options:
                t, n = of_average(fit, shown[1]), len(shown[1])
                shrunk = t ** (n / (n + HALVES))
                lines["temperature of the average"] = judged(softened(probs, t), y) | {"temperature": t}
                lines["the same, shrunk"] = judged(softened(probs, shrunk), y) | {"temperature": round(shrunk, 3)}
        with out.open("a", encoding="utf-8") as file:
            for way, line in lines.items():
                about = {"wearer": wearer, "way": way, "labels": len(shown[1]), "windows": len(y)}
                file.write(json.dumps(about | line) + "\n")


def show(out: Path) -> None:
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    usual = {r["wearer"]: r for r in records if r["way"] == "as in the demo"}
    for way in dict.fromkeys(r["way"] for r in records):
        own = [r for r in records if r["way"] == way]
        means = "  ".join(f"{m} {fmean(r[m] for r in own):.3f}" for m in ("accuracy", "nll", "ece"))
        bold = interval([r["confidence"] - r["accuracy"] for r in own])
        less = {m: interval([r[m] - usual[r["wearer"]][m] for r in own]) for m in ("ece", "nll")}
        change = "  ".join(f"{m} {gap.mean:+.3f} ± {gap.half:.3f}" for m, gap in less.items())
        print(f"{way:28s}{means}  too sure by {bold.mean:+.3f} ± {bold.half:.3f}  against the demo: {change}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    file = Path(sys.argv[1])
    if not file.exists():
        run(file, Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()))
    show(file)
