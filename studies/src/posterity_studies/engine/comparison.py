"""Studies that lay several ways beside each other on the same tasks: means, paired differences, a table and a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from matplotlib.figure import Figure

from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import Interval, interval, shown

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


@dataclass(frozen=True)
class Comparison:
    """Values are `{way: {measure: number}}`; each group of records has a row for every way."""

    ways: Mapping[str, str]
    """Their names for a reader, by the key that values have; the first is the one that all others are compared with."""
    group: Callable[[Record], str]
    unit: Callable[[Record], str]
    """What intervals are over: records of one unit are averaged first."""
    measures: Mapping[str, str]
    """Their names for a reader, by the key that values have; the first is the one that is compared."""

    def groups(self, records: Sequence[Record]) -> list[str]:
        return list(dict.fromkeys(map(self.group, records)))

    def of(self, records: Sequence[Record], group: str, way: str, measure: str = "nll") -> dict[str, float]:
        """A number for each unit."""
        found: dict[str, list[float]] = {}
        for record in records:
            if self.group(record) == group and way in record.values:
                found.setdefault(self.unit(record), []).append(record.values[way][measure])
        return {unit: mean(values) for unit, values in found.items()}

    def gap(self, records: Sequence[Record], group: str, way: str, measure: str = "nll") -> Interval:
        """The first way's number less this way's, paired by unit: below zero where less is better for the first."""
        first, other = (self.of(records, group, w, measure) for w in (next(iter(self.ways)), way))
        return interval([first[unit] - other[unit] for unit in first if unit in other])

    def tables(self, records: Sequence[Record], title: str) -> list[Table]:
        rows = []
        first, *_ = self.ways
        compared, *_ = self.measures
        for group in self.groups(records):
            for way, name in self.ways.items():
                values = [list(self.of(records, group, way, m).values()) for m in self.measures]
                if values[0]:
                    gap = "" if way == first else shown(*self.gap(records, group, way, compared), digits=3, sign=True)
                    rows.append([group, name, *(shown(*interval(v), digits=3) for v in values), gap])
        names = list(self.measures.values())
        return [Table(title, ["", "way", *names, f"{names[0]}: {self.ways[first]} less this"], rows)]

    def draw(self, records: Sequence[Record]) -> Figure:
        """The first measure of every way by group."""
        groups = self.groups(records)
        figure = Figure(figsize=(8, 1.4 + 0.3 * len(groups) * len(self.ways) ** 0.5), layout="constrained")
        axis = figure.subplots()
        compared, label = next(iter(self.measures.items()))
        for k, (way, name) in enumerate(self.ways.items()):
            found = [interval(list(self.of(records, group, way, compared).values())) for group in groups]
            heights = [i + 0.15 * (k - (len(self.ways) - 1) / 2) for i in range(len(groups))]
            axis.errorbar(
                [m for m, _ in found],
                heights,
                xerr=[h for _, h in found],
                fmt="o",
                ms=4,
                color=COLOURS[k],
                label=name.replace("`", ""),
            )
        axis.set_yticks(range(len(groups)), groups)
        axis.invert_yaxis()
        axis.set(xlabel=label)
        axis.legend(fontsize=8)
        axis.grid(color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
        return figure
