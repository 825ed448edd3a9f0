"""What the wearers say of how unknown exercises are found: the library's score beside plain ones, each exercise in turn."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from posterity_studies.demo.reading import part, recognition
from posterity_studies.demo.unknown import UNKNOWN
from posterity_studies.engine.declaration import Record
from posterity_studies.shared.intervals import Interval, interval, paired
from posterity_studies.shared.known_inputs import RIVALS
from posterity_studies.shared.watch import EXERCISES

OURS = "the library's `.unknown`"
NETWORKS = {"same network": "the library's network", "fine-tuned": "the fine-tuned network"}
COMPARED = ("shown", "shown and the nine")
"""What rivals compare with: windows of the new wearer, or of the nine others too."""
HIGHEST = 0.7
"""The mean score that no known exercise should exceed."""


def asked(records: Sequence[Record], exercise: int | None = None) -> list[Record]:
    """The cells that tell, of one exercise or all."""
    return [r for r in part(records, "unknown") if exercise is None or r.arguments["unknown"] == exercise]


def ours(records: Sequence[Record]) -> dict[int, float]:
    """AUROC by wearer, the mean over exercises."""
    return _by_wearer(records, lambda values: values["ours"])


def rival(records: Sequence[Record], network: str, name: str) -> dict[int, float]:
    """The same of a plain score, compared with what serves it better on the whole."""
    found = [_by_wearer(records, lambda v, c=c: v[network][c][name]) for c in COMPARED]
    return max(found, key=lambda by: fmean(by.values()))


def _by_wearer(records: Sequence[Record], pick) -> dict[int, float]:  # type: ignore[no-untyped-def]
    wearers = sorted({r.arguments["wearer"] for r in records})
    return {w: fmean(pick(r.values) for r in records if r.arguments["wearer"] == w) for w in wearers}


class Best(NamedTuple):
    """The best plain score in hindsight, and how far the library's is ahead of it, paired by wearer."""

    name: str
    mean: float
    lead: Interval


def best(records: Sequence[Record], network: str) -> Best:
    by = {name: rival(records, network, name) for name in RIVALS}
    name = max(by, key=lambda n: fmean(by[n].values()))
    return Best(name, fmean(by[name].values()), paired(ours(records), by[name]))


def rows(records: Sequence[Record]) -> list[list[str]]:
    """Every score; of the exercise that the page shows, and of all in turn, on both networks."""
    one, every = asked(records, UNKNOWN), asked(records)

    def shown(found: dict[int, float]) -> str:
        mean, half = interval(list(found.values()))
        return f"{mean:.3f} ± {half:.3f}"

    made = [[OURS, shown(ours(one)), shown(ours(every)), "", ""]]
    made += [
        [name, *(shown(rival(cells, network, name)) for network in NETWORKS for cells in (one, every))]
        for name in RIVALS
    ]
    return made


def markdown(records: Sequence[Record]) -> str:
    """The table of `docs/results.md`."""
    head = [f"{where}, {what}" for where in NETWORKS.values() for what in (EXERCISES[UNKNOWN], "all seven in turn")]
    lines = [f"| AUROC of the unknown exercise | {' | '.join(head)} |", "|---|" + "--:|" * len(head)]
    lines += [f"| {' | '.join(f'**{c}**' if c and row[0] == OURS else c for c in row)} |" for row in rows(records)]
    return "\n".join(lines)


def sentences(records: Sequence[Record]) -> list[str]:
    """What the figures say, whichever way they fall."""
    every = asked(records)
    exercises, count = len({r.arguments["unknown"] for r in every}), len({r.arguments["wearer"] for r in every})
    said = [
        f"AUROC over {count} wearers, unknown exercises: {exercises}. The library's score {fmean(ours(every).values()):.3f}; the "
        f"best of {len(RIVALS)} plain scores in hindsight on the same network {_words(best(every, 'same network'))}, on the "
        f"fine-tuned one {_words(best(every, 'fine-tuned'))}."
    ]
    alarms, caught = (100 * interval([r.values[name] for r in every]).mean for name in ("alarms", "found"))
    means = known_means(every)
    highest = max(means, key=means.__getitem__)
    single = [m for r in every for m in r.values["means"].values()]
    said.append(
        f"At a false-alarm rate of 5 % it calls {alarms:.1f} % of known windows unknown and {caught:.0f} % of unknown ones. "
        f"Mean `.unknown` of a known exercise over wearers: {min(means.values()):.2f} to {means[highest]:.2f} ({highest[1]}, "
        f"{EXERCISES[highest[0]]} unknown); of the {len(single)} exercises of single wearers, about ten windows each, "
        f"{sum(m > HIGHEST for m in single)} are above {HIGHEST}."
    )
    return said


def _words(found: Best) -> str:
    beyond = "beyond" if abs(found.lead.mean) > found.lead.half else "within"
    return (
        f"{found.mean:.3f} ({found.name}; lead {found.lead.mean:+.3f} ± {found.lead.half:.3f}, {beyond} the interval)"
    )


def known_means(records: Sequence[Record]) -> dict[tuple[int, str], float]:
    """Mean score of each known exercise over wearers, by the one that is unknown."""
    keys = sorted({(r.arguments["unknown"], name) for r in records for name in r.values["means"]})
    return {(unknown, name): fmean(r.values["means"][name] for r in asked(records, unknown)) for unknown, name in keys}


def headline(records: Sequence[Record]) -> str:
    """One sentence that says what was found."""
    shown, exercise = asked(records, UNKNOWN), EXERCISES[UNKNOWN]
    _, plain, gap = best(shown, "fine-tuned")
    words = "level with" if abs(gap.mean) <= gap.half else "better than" if gap.mean > 0 else "worse than"
    return (
        f"{recognition(records)}, and its doubt finds an exercise that no one taught it ({exercise}: "
        f"{fmean(ours(shown).values()):.2f}, guessing 0.50), over these few wearers {words} the best of {len(RIVALS)} plain "
        f"scores of a fine-tuned network in hindsight ({plain:.2f})."
    )
