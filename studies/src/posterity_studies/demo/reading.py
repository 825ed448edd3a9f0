"""What the cells say together: means, differences paired by seed, and sentences that follow from them and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from posterity_studies.demo.methods import METHODS
from posterity_studies.engine.declaration import Record
from posterity_studies.shared.intervals import Interval, interval, paired

MEASURES = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE", "ood": "OOD AUROC"}

HIGHER_IS_BETTER = {"accuracy", "ood"}


def sizes(records: Sequence[Record]) -> list[int]:
    """Training images per class."""
    return sorted({r.arguments["per_class"] for r in records if r.arguments["experiment"] == "fits"})


def seeds(records: Sequence[Record]) -> int:
    return len({r.arguments["seed"] for r in records if r.arguments["experiment"] == "fits"})


def fits(records: Sequence[Record], method: str, per_class: int) -> list[Record]:
    """One method's cells at one size, by seed."""
    chosen = [
        r
        for r in records
        if (r.arguments["experiment"], r.arguments["method"], r.arguments["per_class"]) == ("fits", method, per_class)
    ]
    return sorted(chosen, key=lambda r: r.arguments["seed"])


def level(records: Sequence[Record], method: str, per_class: int, measure: str) -> Interval:
    return interval([r.values[measure] for r in fits(records, method, per_class)])


def difference(records: Sequence[Record], rival: str, per_class: int, measure: str) -> Interval:
    """The rival minus the learned prior, seed by seed: the same images, so what they share cancels."""
    ours = {r.arguments["seed"]: r.values[measure] for r in fits(records, "learned", per_class)}
    theirs = {r.arguments["seed"]: r.values[measure] for r in fits(records, rival, per_class)}
    return paired(theirs, ours)


def winner(gap: Interval, measure: str) -> int:
    """1 where the learned prior is better beyond the interval, −1 where the rival is, 0 where the interval holds zero."""
    if not abs(gap.mean) > gap.half:
        return 0
    return -1 if (gap.mean > 0) == (measure in HIGHER_IS_BETTER) else 1


def verdict(records: Sequence[Record]) -> list[str]:
    """A sentence a rival on NLL, and one on how all comparisons ended."""
    sentences = [_on_nll(records, rival) for rival in list(METHODS)[1:]]
    ends = [
        winner(difference(records, rival, n, m), m)
        for rival in list(METHODS)[1:]
        if rival != "zero"
        for n in sizes(records)
        for m in MEASURES
    ]
    sentences.append(
        f"Against the two that also start from the source network, {len(ends)} comparisons over all measures and sizes: "
        f"the learned prior is clearly better in {ends.count(1)}, clearly worse in {ends.count(-1)}, "
        f"and {ends.count(0)} are within the interval (by chance alone, one in twenty would be outside)."
    )
    return sentences


PREDICTIVES = {
    "map": "MAP",
    "sampled": "sampled",
    "linearised": "linearised",
    "sampled_as_for_the_mode": "sampled with the mode's strength",
    "linearised_as_for_the_mode": "linearised with the mode's strength",
}


def on_temperature(curve: Sequence[Record]) -> str:
    """The predictives at the warmest temperature, beside the network by itself."""
    parts = []
    for method in ("learned", "centred"):
        cells = [r.values for r in curve if r.arguments["method"] == method]
        figures = []
        for name, label in PREDICTIVES.items() if cells else ():
            found = [c[name][-1] if isinstance(c[name], list) else c[name] for c in cells]
            figures.append(f"{label} {fmean(v['accuracy'] for v in found):.3f}/{fmean(v['nll'] for v in found):.2f}")
        parts.append(f"{METHODS[method].label}: {', '.join(figures)}")
    warmest = curve[0].arguments["temperatures"][-1]
    return f"Accuracy/NLL at τ = {warmest:g}, {'; '.join(parts)}."


def _on_nll(records: Sequence[Record], rival: str) -> str:
    where: dict[int, list[int]] = {1: [], 0: [], -1: []}
    for n in sizes(records):
        where[winner(difference(records, rival, n, "nll"), "nll")].append(n)
    words = {
        1: "the learned prior has clearly lower NLL",
        -1: "the learned prior has clearly higher NLL",
        0: "neither is clearly better",
    }
    parts = [f"with {_list(where[end])} per class {words[end]}" for end in (1, -1, 0) if where[end]]
    return f"Against {METHODS[rival].label}: {'; '.join(parts)}."


def _list(numbers: Sequence[int]) -> str:
    text = [str(n) for n in numbers]
    return text[0] if len(text) == 1 else f"{', '.join(text[:-1])} and {text[-1]}"
