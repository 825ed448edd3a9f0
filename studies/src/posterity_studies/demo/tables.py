"""The figures as text: the learned prior's own, and how far the others lie from it."""

from __future__ import annotations

from collections.abc import Sequence

from posterity_studies.declaration import Record, Table
from posterity_studies.demo.comparison import MEASURES, Interval, difference, level, sizes, winner
from posterity_studies.demo.methods import METHODS

MARK = {1: "▲", -1: "▼", 0: " "}
KEY = "▲ the learned prior is better, ▼ the other is, beyond the paired 95 % interval; no mark: cannot be told."


def tables(records: Sequence[Record]) -> list[Table]:
    """One table a size of training set."""
    made = []
    for per_class in sizes(records):
        title = f"{per_class} image{'s' * (per_class > 1)} per class"
        ours = [f"{level(records, 'learned', per_class, m).mean:.3f}" + MARK[0] for m in MEASURES]
        rows = [[METHODS["learned"].short, *ours]]
        for rival in list(METHODS)[1:]:
            gaps = {m: difference(records, rival, per_class, m) for m in MEASURES}
            rows.append([METHODS[rival].short, *(signed(gap) + MARK[winner(gap, m)] for m, gap in gaps.items())])
        made.append(Table(title, ["", *MEASURES.values()], rows))
    return made


def signed(gap: Interval) -> str:
    sign = "+" if gap.mean >= 0 else "−"
    return f"{sign}{abs(gap.mean):.3f}±{gap.half:.3f}"
