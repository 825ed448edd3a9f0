"""What the results say, in sentences that follow from them and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from posterity_studies.declaration import Record
from posterity_studies.demo.comparison import MEASURES, difference, sizes, winner
from posterity_studies.demo.methods import METHODS


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
        f"and {ends.count(0)} cannot be told apart (by chance alone, one in twenty would seem clear)."
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
