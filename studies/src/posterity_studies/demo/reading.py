"""What the wearers say together: means, differences paired by wearer, and sentences that follow from them and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from posterity_studies.demo.methods import METHODS
from posterity_studies.engine.declaration import Record
from posterity_studies.shared.intervals import Interval, interval, paired
from posterity_studies.shared.watch import EXERCISES, RATE, WINDOW

MEASURES = {"nll": "NLL", "accuracy": "accuracy", "ece": "ECE", "auroc": "AUROC of the unknown"}
HIGHER_IS_BETTER = {"accuracy", "auroc"}


class PublishedAccuracy(NamedTuple):
    """Accuracy in % of the best recogniser that Burns et al. report, on wearers it knows and on others."""

    wearers: int
    known: float
    unseen: float


PUBLISHED = (PublishedAccuracy(10, 99.6, 87.3), PublishedAccuracy(20, 99.4, 88.9))
"""arXiv 1802.01489, first version (these ten wearers) and second; seven exercises, other networks and windows."""


def methods(records: Sequence[Record]) -> list[str]:
    """Those there are results of, in the order of `METHODS`."""
    found = {name for record in records for name in record.values.get("scores", ())}
    return [name for name in METHODS if name in found]


def seconds(records: Sequence[Record]) -> list[int]:
    """Of labels for each exercise and arm."""
    return sorted({s for record in records for s in record.arguments["seconds"]})


def wearers(records: Sequence[Record]) -> list[int]:
    return sorted({record.arguments["wearer"] for record in records})


def by_wearer(records: Sequence[Record], method: str, s: int, measure: str) -> dict[int, float]:
    return {
        record.arguments["wearer"]: record.values["scores"][method][str(s)][measure]
        for record in records
        if method in record.values.get("scores", ())
    }


def level(records: Sequence[Record], method: str, s: int, measure: str) -> Interval:
    return interval(list(by_wearer(records, method, s, measure).values()))


def lead(records: Sequence[Record], rival: str, s: int, measure: str) -> Interval:
    """The learned prior minus a rival, wearer by wearer: what a wearer makes hard for both cancels."""
    return paired(by_wearer(records, "learned", s, measure), by_wearer(records, rival, s, measure))


def by_chance(records: Sequence[Record], method: str, s: int) -> float:
    """The mean ECE of a perfectly calibrated predictor with the same confidences: so few windows leave so much to chance."""
    found = []
    for record in records:
        if method not in record.values.get("scores", ()) or "windows" not in record.values:
            continue
        confidence, _, share = record.values["scores"][method][str(s)]["reliability"]
        count = record.values["windows"]["test"]
        bins = [(round(part * count), c) for c, part in zip(confidence, share, strict=True)]
        found.append(sum(_absolute_deviation(n, min(c, 1.0)) for n, c in bins) / count)
    return interval(found).mean


def _absolute_deviation(n: int, p: float) -> float:
    """E|X − np| of a binomial variable, in closed form (de Moivre)."""
    if n == 0 or p in (0.0, 1.0):
        return 0.0
    m = math.floor(n * p) + 1
    return 2 * m * math.comb(n, m) * p**m * (1 - p) ** (n - m + 1)


def pooled_ece(records: Sequence[Record], method: str, s: int) -> float:
    """ECE of all wearers' windows together, each wearer counting alike: what is off for one and not for another cancels."""
    return sum(part * abs(confidence - accuracy) for confidence, accuracy, part in pooled(records, method, s))


class Boldness(NamedTuple):
    """Mean confidence minus accuracy over wearers, how much it varies between them, and how much of that chance explains."""

    mean: Interval
    between: float
    """The standard deviation over wearers."""
    by_chance: float
    """The same if each wearer's windows were right as often as the recogniser says."""


def boldness(records: Sequence[Record], method: str, s: int) -> Boldness:
    """Whether a method is too sure or not sure enough, on the whole and for each wearer."""
    gaps, chance = [], []
    for record in records:
        if method not in record.values.get("scores", ()) or "windows" not in record.values:
            continue
        bins = list(zip(*record.values["scores"][method][str(s)]["reliability"], strict=True))
        gaps.append(sum(part * (confidence - accuracy) for confidence, accuracy, part in bins))
        chance.append(sum(part * c * (1 - min(c, 1.0)) for c, _, part in bins) / record.values["windows"]["test"])
    between = stdev(gaps) if len(gaps) > 1 else math.nan
    return Boldness(interval(gaps), between, math.sqrt(fmean(chance)))


def on_calibration(records: Sequence[Record]) -> str:
    """What is left of the calibration error with the fewest labels, in one sentence."""
    s = seconds(records)[0]
    found, right = boldness(records, "learned", s), level(records, "learned", s, "accuracy").mean
    labels = 2 * (len(EXERCISES) - 1) * s * RATE // WINDOW
    spread = math.sqrt(right * (1 - right) / labels)
    ece = " / ".join(f"{pooled_ece(records, 'learned', s):.3f}" for s in seconds(records))
    often = " / ".join(f"{level(records, 'learned', s, 'ece_often').mean:.3f}" for s in seconds(records))
    return (
        f"With windows every half second, four times as many, it is {often}; all wearers' windows together, {ece}. What is left "
        f"with {s} s differs from wearer to wearer: confidence minus "
        f"accuracy is {signed(found.mean)} on average and varies by ± {found.between:.3f} between wearers, of which chance in "
        f"the windows explains ± {found.by_chance:.3f}, and {labels} labels tell how often a wearer's windows are right to "
        f"± {spread:.2f} only."
    )


def winner(gap: Interval, measure: str) -> int:
    """1 where the learned prior is better beyond the interval, −1 where the rival is, 0 where neither can be said."""
    if not abs(gap.mean) > gap.half:
        return 0
    return 1 if (gap.mean > 0) == (measure in HIGHER_IS_BETTER) else -1


def typical(records: Sequence[Record]) -> int:
    """The wearer in the middle, by NLL of the learned prior with the most seconds: neither the best nor the worst is shown."""
    found = by_wearer(records, "learned", seconds(records)[-1], "nll")
    return sorted(found, key=lambda wearer: found[wearer])[(len(found) - 1) // 2]


def part(records: Sequence[Record], name: str) -> list[Record]:
    """The cells of one kind."""
    return [record for record in records if record.arguments["part"] == name]


def recognition(records: Sequence[Record]) -> str:
    """How often it is right, before and after, as the beginning of a sentence."""
    s, count = seconds(records)[-1], len(wearers(records))
    now, then = (100 * level(records, name, s, "accuracy").mean for name in ("learned", "none"))
    gap = lead(records, "none", s, "accuracy")
    change = f"{100 * gap.mean:+.1f} ± {100 * gap.half:.1f} points over {count} wearers"
    said = (
        f"Shown {s} seconds of each exercise, a watch that never met its wearer is right in {now:.0f} % of new windows"
    )
    said += f" instead of {then:.0f} % ({change})"
    return said + (", which so few wearers cannot tell from chance" if winner(gap, "accuracy") == 0 else "")


def findings(records: Sequence[Record]) -> list[str]:
    """A sentence a rival, and one on the published gap."""
    rivals = [name for name in methods(records) if name not in ("learned", "scratch")]
    return [*(_beside(records, rival) for rival in rivals), on_published(records)]


def _beside(records: Sequence[Record], rival: str) -> str:
    words = {1: "better beyond the interval", 0: "not to be distinguished", -1: "worse beyond the interval"}
    parts = []
    for s in seconds(records):
        gap = lead(records, rival, s, "nll")
        parts.append(f"{signed(gap)} with {s} s ({words[winner(gap, 'nll')]})")
    return f"NLL of the learned prior beside {METHODS[rival]}: {'; '.join(parts)}."


def on_published(records: Sequence[Record]) -> str:
    """How much of the published gap between unseen and known wearers is closed."""
    s = seconds(records)[-1]
    now = 100 * level(records, "learned", s, "accuracy").mean
    parts = [
        f"{share(now, p):.0f} % of the way from {p.unseen} % (unseen) to {p.known} % (known; {p.wearers} wearers)"
        for p in PUBLISHED
    ]
    return (
        f"With {s} s, {now:.1f} % of windows are right: {' or '.join(parts)}, as published for seven exercises "
        "and other networks."
    )


def share(accuracy: float, published: PublishedAccuracy) -> float:
    """Of the published gap, in %."""
    return 100 * (accuracy - published.unseen) / (published.known - published.unseen)


def signed(gap: Interval, digits: int = 3) -> str:
    sign = "+" if gap.mean >= 0 else "−"
    return f"{sign}{abs(gap.mean):.{digits}f} ± {gap.half:.{digits}f}"


def pooled(records: Sequence[Record], method: str, s: int) -> list[tuple[float, float, float]]:
    """(confidence, accuracy, share) by bins of confidence, all wearers together."""
    bins: dict[int, list[float]] = {}
    cells: list[Mapping[str, Any]] = [
        record.values["scores"][method][str(s)] for record in records if method in record.values.get("scores", ())
    ]
    for found in cells:
        for confidence, accuracy, part in zip(*found["reliability"], strict=True):
            total = bins.setdefault(min(int(confidence * 10), 9), [0.0, 0.0, 0.0])
            for k, value in enumerate((confidence, accuracy, 1.0)):
                total[k] += value * part
    return [(b[0] / b[2], b[1] / b[2], b[2] / len(cells)) for _, b in sorted(bins.items())]
