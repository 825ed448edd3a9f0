"""Our figures beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from posterity_studies.declaration import Record, Table
from posterity_studies.kronecker import paper
from posterity_studies.kronecker.curves import NORMAL_95, Sample, curve, iterations, of, overall

METHODS = {"power": "power method", "sum": "factor-wise sum"}
PANELS = {"size": "size", "scale": "Fisher scale", "gamma": "weight decay", "terms": "terms K"}


def tables(records: Sequence[Record]) -> list[Table]:
    """As many as the records suffice for: overall, by number of terms, by iteration, and by panel of Figure 3."""
    made = []
    if of(records, "decay"):
        made.append(_overall(records))
    if of(records, "terms"):
        made.append(_terms(records))
    if of(records, "iterations"):
        made.append(_iterations(records))
    return [*made, _panels(records)]


def _overall(records: Sequence[Record]) -> Table:
    sizes = sorted({r.arguments["size"] for r in of(records, "decay")})
    rows = []
    for method, name in METHODS.items():
        published, shown = _published(method, sizes)
        for suffix, label in (("", name), ("_guarded", "· authors' way")):
            ours = overall(records, method + suffix)
            rows.append([label, _spread(ours), shown, *_difference(ours, published)])
    rows.append(["closed form", _spread(overall(records, "nearest")), "", "", ""])
    complete = len(sizes) == len(paper.CURVES["size", "power"])
    return Table(
        "Relative error of L⊗R + γI" + ("" if complete else f", sizes {', '.join(map(str, sizes))} only"),
        ["", "ours", "paper", "differs", "σ apart"],
        rows,
    )


def _published(method: str, sizes: Sequence[int]) -> tuple[float, str]:
    """The paper's mean over these sizes, as a number and as it is shown."""
    points = [p for p in paper.CURVES["size", method] if p.x in sizes]
    if len(points) == len(paper.CURVES["size", method]):
        mean, std = paper.OVERALL[method]
        return mean, f"{mean:.5f} ± {std:.5f}"
    mean = sum(p.middle for p in points) / len(points)
    return mean, f"{mean:.5f}"


def _terms(records: Sequence[Record]) -> Table:
    ours = {method: curve(records, "terms", method) for method in METHODS}
    published = {method: {p.x: p.middle for p in paper.CURVES["terms", method]} for method in METHODS}
    rows = []
    for terms in ours["power"]:
        row = [f"{terms:g}"]
        for method in METHODS:
            mine, theirs = ours[method][terms], published[method][terms]
            row += [f"{mine.mean:.3f}", f"{theirs:.3f}", _difference(mine, theirs)[1]]
        rows.append(row)
    columns = ["K", *("power", "paper", "σ apart"), *("factor-wise", "paper", "σ apart")]
    return Table("Relative error of a sum of K products, 5×5 factors", columns, rows)


def _iterations(records: Sequence[Record]) -> Table:
    rows = []
    runs = zip(
        iterations(records, "normal", alike=False),
        iterations(records, "normal", alike=True),
        iterations(records, "positive", alike=True),
        paper.ITERATIONS,
        strict=False,
    )
    for number, (independent, normal, positive, (mean, std)) in enumerate(runs, start=1):
        rows.append(
            [
                "1 (start)" if number == 1 else f"{number}",
                f"{independent.mean:.4f}",
                f"{normal.mean:.4f}",
                f"{positive.mean:.4f} ± {positive.std:.4f}",
                f"{mean:.3f} ± {std:.3f}",
                f"{positive.mean - mean:+z.4f}",
            ]
        )
    columns = ["iteration", "independent", "alike", "alike, authors' start", "paper", "differs"]
    return Table("Relative error by iteration, three terms independent or alike", columns, rows)


def _panels(records: Sequence[Record]) -> Table:
    """How well the curves of Figure 3 agree, the error measured as the authors' script does."""
    rows = []
    for panel, label in PANELS.items():
        for method, name in METHODS.items():
            ours = curve(records, panel, f"{method}_guarded")
            points = [p for p in paper.CURVES[panel, method] if p.x in ours and p.middle > paper.FLOOR]
            apart = {p.x: _errors_apart(ours[p.x], p.middle) for p in points}
            if apart:
                worst = max(apart, key=lambda x: abs(apart[x]))
                close = sum(abs(z) <= NORMAL_95 for z in apart.values())
                rows.append([label, name, f"{close} of {len(points)}", f"{worst:g}", f"{apart[worst]:+z.1f}"])
    return Table(
        "Points of Figure 3 within 1.96 σ of ours, done the authors' way",
        ["panel", "method", "points", "furthest at", "σ apart"],
        rows,
    )


def _errors_apart(ours: Sample, published: float) -> float:
    """The difference in standard errors, the paper's mean taken to be as noisy as ours: it has as many draws."""
    return (ours.mean - published) / (math.sqrt(2) * ours.noise)


def _difference(ours: Sample, published: float) -> tuple[str, str]:
    return f"{100 * (ours.mean / published - 1):+z.1f} %", f"{_errors_apart(ours, published):+z.1f}"


def _spread(sample: Sample) -> str:
    return f"{sample.mean:.5f} ± {sample.std:.5f}"
