"""Tables of pairs, rules, rivals and single scores, and a figure of all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from matplotlib.figure import Figure

from posterity.novelty.neighbours import FORMS, METRICS
from posterity_studies.engine.declaration import Record, Table
from posterity_studies.shared.intervals import Interval, shown
from posterity_studies.shared.known_inputs import RIVALS, SETTINGS
from posterity_studies.shared.known_inputs.columns import MOMENTS
from posterity_studies.studies.unknown_inputs.methods import CHOSEN
from posterity_studies.studies.unknown_inputs.reading import (
    NAMES,
    Pair,
    alarms,
    auroc,
    best_rival,
    lead,
    left_one_out,
    library,
    pairs,
    regrets,
)

BEST = 12
"""Rules that are listed."""


def tables(records: Sequence[Record]) -> list[Table]:
    return [_by_pair(records), _rules(records), _rivals(records), _single(records), _alarms(records)]


def _called(pair: Pair) -> str:
    setting = SETTINGS[pair[0]]
    return f"{pair[0]} / {pair[1]}" + ("" if setting.settled else " *")


def _by_pair(records: Sequence[Record]) -> Table:
    rules = left_one_out(records)
    rows = []
    for pair in pairs(records):
        best, name = best_rival(records, pair)
        rows.append(
            [SETTINGS[pair[0]].kind, _called(pair), f"{library(records, pair):.3f}",
             f"{auroc(records, pair, 'rules', rules[pair[0]]):.3f}", f"{best:.3f} ({name})",
             shown(*lead(records, pair), digits=3, sign=True),
             f"{library(records, pair, 'without features'):.3f}"]
        )  # fmt: skip
    title = "AUROC by pair: the library, the rule that other settings choose, the best of ten rivals in hindsight"
    columns = [
        "data",
        "known / unknown",
        "library",
        "left-one-out rule",
        "best rival",
        "lead",
        "without features",
    ]
    return Table(title, columns, rows)


def _rules(records: Sequence[Record]) -> Table:
    every = pairs(records)
    regret = regrets(records, every)
    ordered = sorted(NAMES, key=regret.__getitem__)
    kept = ordered[:BEST] + [
        n for n in (str(CHOSEN), ordered[len(ordered) // 2], ordered[-1]) if n not in ordered[:BEST]
    ]
    settings = list(dict.fromkeys(p[0] for p in every))
    rows = []
    for name in kept:
        rates = [mean(r.values["alarms"][name] for r in records if r.arguments["setting"] == s) for s in settings]
        worst = min(auroc(records, p, "rules", name) - best_rival(records, p)[0] for p in every)
        rows.append(
            [name + (" (the library's)" if name == str(CHOSEN) else ""), f"{regret[name]:.4f}",
             f"{mean(auroc(records, p, 'rules', name) for p in every):.3f}", f"{worst:+.3f}",
             f"{min(rates):.1%} to {max(rates):.1%}"]
        )  # fmt: skip
    title = f"Rules: the {BEST} of least regret of {len(NAMES)}, the one in the middle and the last"
    return Table(title, ["rule", "mean regret", "mean AUROC", "worst lead", "false alarms at 5 %"], rows)


def _rivals(records: Sequence[Record]) -> Table:
    every = pairs(records)
    kinds = list(dict.fromkeys(SETTINGS[p[0]].kind for p in every))

    def row(name: str, values: dict[Pair, float]) -> list[str]:
        best = {p: best_rival(records, p)[0] for p in every}
        parts = [f"{mean(values[p] for p in every if SETTINGS[p[0]].kind == kind):.3f}" for kind in kinds]
        return [name, f"{mean(values.values()):.3f}", *parts, f"{min(values[p] - best[p] for p in every):+.3f}"]

    rows = [row("library", {p: library(records, p) for p in every})]
    rows += [row(name, {p: auroc(records, p, "rivals", name) for p in every}) for name in RIVALS]
    return Table(
        "Mean AUROC of the library and of each rival", ["score", "all", *kinds, "worst, to the best rival"], rows
    )


def _single(records: Sequence[Record]) -> Table:
    every = pairs(records)
    rows = []
    for where in ("input", "head"):
        for metric in METRICS:
            for form in FORMS:
                values = [auroc(records, p, "single", f"{_layer(records, p, where)}: {metric} {form}") for p in every]
                rows.append([f"{where}: {metric} {form}", f"{mean(values):.3f}", f"{min(values):.3f}"])
    for name in MOMENTS:
        values = [auroc(records, p, "single", name) for p in every]
        rows.append([name, f"{mean(values):.3f}", f"{min(values):.3f}"])
    return Table("Each single score", ["score", "mean AUROC", "least"], rows)


def _layer(records: Sequence[Record], pair: Pair, where: str) -> str:
    """The layer's name: the first that has scores, or the last."""
    found = next(r for r in records if r.arguments["setting"] == pair[0]).values["single"]
    layers = list(dict.fromkeys(name.split(":")[0] for name in found if ":" in name))
    return layers[0 if where == "input" else -1]


def _alarms(records: Sequence[Record]) -> Table:
    rows = []
    for setting in dict.fromkeys(p[0] for p in pairs(records)):
        own = [r for r in records if r.arguments["setting"] == setting]
        rows.append(
            [setting, SETTINGS[setting].way, f"{mean(r.values['left out'] for r in own):.0f}",
             f"{mean(r.values['accuracy'] for r in own):.3f}",
             _percent(alarms(records, setting)),
             _percent(alarms(records, setting, "training features")),
             f"{mean(r.values['microseconds'] for r in own):.0f}"]
        )  # fmt: skip
    title = "False alarms at a nominal 5 %, in per cent of new known inputs"
    columns = ["known", "network", "left out", "accuracy", "library", "by training features", "µs an input"]
    return Table(title, columns, rows)


def _percent(found: Interval) -> str:
    return shown(100 * found.mean, 100 * found.half, digits=1)


def draw(records: Sequence[Record]) -> Figure:
    every = pairs(records)
    figure = Figure(figsize=(9, 1.2 + 0.27 * len(every)), layout="constrained")
    axis = figure.subplots()
    for i, pair in enumerate(every):
        axis.plot(
            [auroc(records, pair, "rivals", name) for name in RIVALS], [i] * len(RIVALS), "|", color="#8a8a8b", ms=9
        )
        axis.plot([library(records, pair)], [i], "o", color="#0072b2", ms=5)
    axis.set_yticks(range(len(every)), [_called(pair) for pair in every], fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="AUROC of unknown inputs: library (dot), ten rivals (bars)", xlim=(None, 1.005))
    axis.grid(color="0.9")
    axis.spines[["top", "right"]].set_visible(False)
    return figure
