"""The study's tables and its figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.continual.methods import DECAYS, NAMES
from posterity_studies.declaration import Outcome, Record, Table, Verdict
from posterity_studies.intervals import interval

PUBLISHED = {"S-FSVI": 99.5, "VCL": 98.4}
"""Multi-head split MNIST, average accuracy in %, as their authors report it."""
FULL = {"bpnn zero": "BPNN, isotropic at zero", "pnn": "PNN", "ewc": "EWC", "online laplace": "online Laplace"}
TUNED = "PNN, weight decay by validation"
BASE = "bpnn mean"
APART = {NAMES[name] for name in ("fine-tuning", "ewc", "online laplace")} | {f"PNN, weight decay {DECAYS[-1]:g}"}


def tables(records: Sequence[Record]) -> list[Table]:
    made = []
    few = [r for r in records if r.arguments["protocol"] == "small"]
    for source, target, shots in sorted({_where(r) for r in few}):
        here = _by_method([r for r in few if _where(r) == (source, target, shots)])
        rows = [_row(name, runs, here) for name, runs in here.items()]
        columns = ["learner", "ACC %", "to isotropic at the mean", "BWT %", "FWT %", "NLL", "ECE %"]
        made.append(Table(f"prior from {source}, split {target}, {shots} images a class", columns, rows))
    whole = [r for r in records if r.arguments["protocol"] == "full"]
    if whole:
        rows = []
        for name, title in FULL.items():
            found = [100 * r.values["acc"] for r in whole if r.arguments["method"] == name]
            if found:
                mean, half = interval(found)
                rows.append([title, f"{mean:.2f} ± {half:.2f}"])
        rows += [[f"{name} (published)", f"{value:.1f}"] for name, value in PUBLISHED.items()]
        made.append(Table("Multi-head split MNIST, all images, two hidden layers of 256", ["learner", "ACC %"], rows))
    return made


def verdict(records: Sequence[Record]) -> Verdict:
    """The learned prior beside isotropic ones and the best tuned rival, stream by stream, and what was forgotten."""
    few = [r for r in records if r.arguments["protocol"] == "small"]
    lines, gains = [], []
    for place in sorted({_where(r) for r in few}):
        here = _by_method([r for r in few if _where(r) == place])
        learned = here.get(NAMES["bpnn learned"], {})
        rivals = {"isotropic at the mean": NAMES["bpnn mean"], "at zero": NAMES["bpnn zero"], "PNN": TUNED}
        ahead = {short: _ahead(learned, here.get(name, {})) for short, name in rivals.items()}
        if ahead["isotropic at the mean"]:
            gains.append(interval(ahead["isotropic at the mean"]))
            shown = ", ".join(f"{_shown(sample, sign=True)} ({short})" for short, sample in ahead.items())
            lines.append(f"split {place[1]}, {place[2]} a class: {shown}")
    sure = sum(gain - half > 0 for gain, half in gains)
    behind = sum(gain <= 0 for gain, half in gains)
    outcome = (
        Outcome.reproduced
        if gains and sure == len(gains)
        else Outcome.partly
        if sure > 0 or behind < len(gains)
        else Outcome.not_reproduced
    )
    columns = [r for r in few if r.arguments["method"].startswith("bpnn")]
    forgotten = max((abs(r.values["bwt"]) for r in columns), default=math.nan)
    return Verdict(
        outcome,
        "Points of mean accuracy by which columns with the learned prior are ahead, paired by seed: "
        f"{'; '.join(lines)}. Columns forget {100 * forgotten:.1f} points.",
    )


def _ahead(ours: dict[int, Record], theirs: dict[int, Record]) -> list[float]:
    """Points of accuracy, seed by seed."""
    both = sorted(ours.keys() & theirs.keys())
    return [100 * (ours[s].values["acc"] - theirs[s].values["acc"]) for s in both]


def _where(record: Record) -> tuple[str, str, int]:
    a = record.arguments
    return a["source"], a["target"], a["shots"]


def _by_method(records: Sequence[Record]) -> dict[str, dict[int, Record]]:
    """Runs by seed, for each method; and PNN with the weight decay that validation data chose, seed by seed."""
    found: dict[str, dict[int, Record]] = {}
    for name, title in NAMES.items():
        runs = {r.arguments["seed"]: r for r in records if r.arguments["method"] == name}
        if runs:
            found[title] = runs
        if name == f"pnn {DECAYS[-1]:g}":
            fixed = [r for r in records if r.arguments["method"].startswith("pnn ")]
            by_seed = {
                r.arguments["seed"]: [s for s in fixed if s.arguments["seed"] == r.arguments["seed"]] for r in fixed
            }
            if by_seed:
                found[TUNED] = {seed: min(rs, key=lambda r: r.values["held out"]) for seed, rs in by_seed.items()}
    return found


def _row(name: str, runs: dict[int, Record], all_runs: dict[str, dict[int, Record]]) -> list[str]:
    base, alone = all_runs.get(NAMES[BASE], {}), all_runs.get(NAMES["alone"], {})
    paired = _ahead(runs, base)
    transfers = [
        100 * statistics.mean(_gain(runs[s], alone[s]))
        for s in sorted(runs.keys() & alone.keys())
        if runs[s].values["when learned"] is not None
    ]
    return [
        name,
        _shown([100 * r.values["acc"] for r in runs.values()]),
        "" if name == NAMES[BASE] or not paired else _shown(paired, sign=True),
        _shown([100 * r.values["bwt"] for r in runs.values() if r.values["bwt"] is not None], sign=True),
        "" if name == NAMES["alone"] else _shown(transfers, sign=True),
        _shown([r.values["nll"] for r in runs.values()], digits=3),
        _shown([100 * r.values["ece"] for r in runs.values()]),
    ]


def _gain(run: Record, alone: Record) -> list[float]:
    """Task by task, from the second on: what those before it were worth."""
    pairs = zip(run.values["when learned"], alone.values["when learned"], strict=True)
    return [ours - theirs for ours, theirs in list(pairs)[1:]]


def _shown(sample: Sequence[float], sign: bool = False, digits: int = 1) -> str:
    if not sample:
        return "–"
    mean, half = interval(sample)
    shown = f"{mean:+.{digits}f}" if sign else f"{mean:.{digits}f}"
    return shown if len(sample) < 2 else f"{shown} ± {half:.{digits}f}"


def draw(records: Sequence[Record]) -> Figure:
    """Every learner's accuracy and NLL with its interval, seeds as dots."""
    few = [r for r in records if r.arguments["protocol"] == "small"]
    places = sorted({_where(r) for r in few}) or [("", "", 0)]
    figure = Figure(figsize=(10, 0.6 + 3.6 * len(places)), layout="constrained")
    axes = figure.subplots(len(places), 2, squeeze=False, sharey="row")
    for row, place in zip(axes, places, strict=True):
        here = _by_method([r for r in few if _where(r) == place])
        for axis, measure, label, scale in ((row[0], "acc", "accuracy in %", 100), (row[1], "nll", "NLL", 1)):
            # By the runs of learners that forget little: one network for all tasks would leave no room for the rest.
            inside = [
                scale * r.values[measure] for title, runs in here.items() if title not in APART for r in runs.values()
            ]
            low, high = min(inside, default=0.0), max(inside, default=1.0)
            margin = 0.05 * (high - low) or 0.01
            axis.set(xlabel=label, xlim=(low - margin, high + margin))
            for y, (title, runs) in enumerate(here.items()):
                found = [scale * r.values[measure] for r in runs.values()]
                mean, half = interval(found)
                ours = title.startswith("BPNN")
                colour = "#0072b2" if ours else "0.35"
                axis.plot(found, [y] * len(found), ".", color=colour, alpha=0.35, markersize=5)
                axis.errorbar(
                    mean, y, xerr=half if len(found) > 1 else 0, fmt="o", color=colour, markersize=5, capsize=2
                )
                if not low - margin <= mean <= high + margin:
                    left = mean < low
                    shown = f"◂ {mean:.3g}" if left else f"{mean:.3g} ▸"
                    axis.annotate(
                        shown, (0.01 if left else 0.99, y), xycoords=("axes fraction", "data"), color=colour, fontsize=9,
                        ha="left" if left else "right", va="center",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
                    )  # fmt: skip
            axis.grid(axis="x", color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
        row[0].set_yticks(range(len(here)), list(here))
        row[0].invert_yaxis()
        source, target, shots = place
        row[0].set_title(f"prior from {source}, split {target}, {shots} images a class", loc="left", fontsize=10)
    return figure
