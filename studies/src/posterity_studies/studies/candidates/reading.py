"""Differences to every rival, paired by seed, and what was asked of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posterity_studies.engine.declaration import Outcome, Record, Verdict
from posterity_studies.shared.intervals import Interval, interval, paired, shown

OURS = ("ours", "adapt")
Sample = dict[int, float]
NEAR = 0.02
"""Nats to the best candidate in hindsight."""


@dataclass(frozen=True)
class Setting:
    """Measures by method and seed."""

    family: str
    name: str
    nll: Mapping[str, Sample]
    seconds: Mapping[str, Sample]

    @property
    def rivals(self) -> list[str]:
        return [m for m in self.nll if m.split(":")[0] not in OURS]

    @property
    def best(self) -> str:
        """The rival of least mean NLL."""
        return min(self.rivals, key=self.mean)

    def mean(self, method: str) -> float:
        return statistics.mean(self.nll[method].values())

    def gap(self, method: str, rival: str) -> Interval:
        return paired(self.nll[method], self.nll[rival])

    def hindsight(self, method: str) -> float | None:
        """How far the stack is above its best part, the same for all seeds."""
        parts = [m for m in self.nll if m.startswith(f"{method}: ") and len(self.nll[m]) == len(self.nll[method])]
        return self.mean(method) - min(map(self.mean, parts)) if parts else None


def settings(records: Sequence[Record]) -> list[Setting]:
    found: dict[tuple[str, str], dict[str, dict[str, Sample]]] = {}
    for r in records:
        a = r.arguments
        name = {
            "after": f"{a['set']}, {a.get('shots')} a class",
            "post hoc": f"{a.get('network')} on {a['set']}",
            "scratch": f"{a['set']}, {a.get('examples'):,} images" if a.get("examples") else "",
        }[a["kind"]]
        here = found.setdefault((a["kind"], name), {"nll": {}, "seconds": {}})
        for method, values in r.values["methods"].items():
            for measure, by in here.items():
                by.setdefault(method, {})[a["seed"]] = values.get(f"fit {measure}", values[measure])
    return [Setting(family, name, m["nll"], m["seconds"]) for (family, name), m in found.items()]


@dataclass(frozen=True)
class Line:
    """One thing that was asked for: whether it holds, and the figures."""

    asked: str
    holds: bool
    found: str


def lines(records: Sequence[Record]) -> list[Line]:
    found = settings(records)
    return [_never_worse(found), *_first(found), _near(found), *_time(found)]


def _never_worse(found: Sequence[Setting]) -> Line:
    gaps = [(s, m, s.gap(m, s.best)) for s in found for m in OURS if m in s.nll]
    worse = [f"{s.name}, {m} ({s.best} {shown(*g, 3, True)})" for s, m, g in gaps if g.low > 0]
    text = f"{len(gaps) - len(worse)} of {len(gaps)}" + (f"; above: {'; '.join(worse)}" if worse else "")
    return Line("NLL significantly above the best single rival in no setting", not worse, text)


def _first(found: Sequence[Setting]) -> list[Line]:
    made = []
    for family in dict.fromkeys(s.family for s in found):
        own = [s for s in found if s.family == family]
        for method in OURS:
            here = [s for s in own if method in s.nll]
            if not here:
                continue
            rivals = [m for m in here[0].rivals if all(m in s.nll for s in here)]
            means = {m: interval([s.gap(method, m).mean for s in here]) for m in rivals}
            text = "; ".join(f"{m} {shown(*g, 3, True)}" for m, g in means.items())
            asked = f"{family}, {method}: first on average of {len(here)} settings"
            made.append(Line(asked, all(g.mean < 0 for g in means.values()), text))
    return made


def _near(found: Sequence[Setting]) -> Line:
    gaps = [g for s in found for m in OURS if m in s.nll and (g := s.hindsight(m)) is not None]
    mean = statistics.mean(gaps) if gaps else math.nan
    return Line(
        f"Within {NEAR} nats of the best candidate in hindsight, on average",
        mean <= NEAR,
        f"{mean:+.3f} over {len(gaps)}",
    )


def _time(found: Sequence[Setting]) -> list[Line]:
    made = []
    for s in found:
        own = statistics.median(s.seconds["ours"].values())
        asked, most = "", 0.0
        if "ensemble of 5" in s.seconds:
            asked, most = "at most that of an ensemble of five", statistics.median(s.seconds["ensemble of 5"].values())
        elif s.family == "scratch":
            asked = "at most 1.5 times that of plain training"
            most = 1.5 * statistics.median(s.seconds["plain training"].values())
        elif s.name.startswith("residual"):
            asked, most = "at most 10 s for ResNet-20", 10.0
        if asked:
            made.append(Line(f"{s.name}: CPU time {asked}", own <= most, f"{own:.1f} s of {most:.1f} s"))
    return made


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where no setting is significantly above its best rival, and stacks are near their best parts."""
    said = lines(records)
    text = " ".join(f"{line.asked}: {'yes' if line.holds else 'no'} ({line.found})." for line in said)
    upheld = all(line.holds for line in said if line.asked.startswith(("NLL significantly", "Within")))
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, text)
