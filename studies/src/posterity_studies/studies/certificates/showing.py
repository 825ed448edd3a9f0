"""The table of certificates, and what each bound is made of."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.studies.certificates.reading import ROWS, best


def tables(records: Sequence[Record]) -> list[Table]:
    rows = []
    for name, (title, target) in ROWS.items():
        found = [r for r in records if r.arguments["row"] == name]
        if not found:
            continue
        bests = [best(r) for r in found]
        beside = [r.values.get("comparator", r.values["holdout"]) for r in found]
        reached = "reached" if statistics.mean(v["bound"] for v in bests) <= target else "**short**"
        rows.append(
            [
                title,
                str(found[0].arguments["network"]),
                shown(*interval([v["bound"] for v in bests]), digits=4),
                f"≤ {target} {reached}",
                shown(*interval(beside), digits=4),
                shown(*interval([v["gibbs"] for v in bests]), digits=4),
                shown(*interval([v["kl"] for v in bests]), digits=0, thousands=True),
                f"{bests[0]['n']:,}",
                *(
                    shown(*interval([v[key] for v in bests]), digits=4) if key in bests[0] else "–"
                    for key in ("test gibbs", "test mode")
                ),
                str(len(found)),
            ]
        )
    columns = [
        "",
        "network",
        "certificate",
        "asked",
        "hold-out bound",
        "Gibbs error",
        "KL, nats",
        "n",
        "test, one draw",
        "test, mode",
        "seeds",
    ]
    return [Table("Risk certificates at 95 %", columns, rows)]


def draw(records: Sequence[Record]) -> Figure:
    """What a bound is made of: the draws' error, what remains at KL = 0, and what KL adds."""
    names = [name for name in ROWS if any(r.arguments["row"] == name for r in records)]
    figure = Figure(figsize=(8, 0.9 + 0.75 * len(names)), layout="constrained")
    axis = figure.subplots()
    highest = 0.0
    for y, name in enumerate(names):
        bests = [best(r) for r in records if r.arguments["row"] == name]
        gibbs, free, bound = (statistics.mean(v[key] for v in bests) for key in ("gibbs", "free", "bound"))
        highest = max(highest, bound)
        axis.barh(y, gibbs, color="#0072b2", label="error of one draw" if y == 0 else None)
        axis.barh(y, free - gibbs, left=gibbs, color="#56b4e9", label="confidence (n, δ, draws)" if y == 0 else None)
        axis.barh(y, bound - free, left=free, color="#d55e00", label="KL to the prior" if y == 0 else None)
        axis.plot([ROWS[name][1]] * 2, [y - 0.45, y + 0.45], color="black", linewidth=1.5)
        axis.text(max(bound, ROWS[name][1]) + 0.006, y, f"{bound:.4f}", va="center", fontsize=9)
    axis.plot([], [], color="black", linewidth=1.5, label="asked")
    axis.set_yticks(range(len(names)), [ROWS[name][0] for name in names])
    axis.invert_yaxis()
    axis.set(xlabel="risk", xlim=(0, max(0.48, 1.15 * highest)))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right", fontsize=9)
    return figure
