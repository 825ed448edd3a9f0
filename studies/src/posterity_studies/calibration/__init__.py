"""Calibration after few images: eight methods tuned on the same images, NLL, ECE and foreign images."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from posterity_studies.calibration.cells import cell
from posterity_studies.calibration.methods import METHODS
from posterity_studies.declaration import Outcome, Preset, Record, Study, Table, Verdict, grid
from posterity_studies.intervals import interval, paired, shown

MEASURES = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "ece": "ECE",
    "ood fashion": "AUROC Fashion-MNIST",
    "ood cifar grey": "AUROC CIFAR grey",
}
PAIRS = [("notmnist", "mnist"), ("mnist", "notmnist")]


def _by_seed(
    records: Sequence[Record], pair: tuple[str, str], shots: int, method: str, measure: str
) -> dict[int, float]:
    wanted = (*pair, shots, method)
    return {
        r.arguments["seed"]: r.values[measure]
        for r in records
        if tuple(r.arguments[name] for name in ("source", "target", "shots", "method")) == wanted
    }


def _tasks(records: Sequence[Record]) -> list[tuple[tuple[str, str], int]]:
    return sorted({((r.arguments["source"], r.arguments["target"]), r.arguments["shots"]) for r in records})


def tables(records: Sequence[Record]) -> list[Table]:
    made = []
    for pair, shots in _tasks(records):
        rows = []
        for key, method in METHODS.items():
            samples = [_by_seed(records, pair, shots, key, measure) for measure in MEASURES]
            if samples[0]:
                values = [shown(*interval(list(s.values())), digits=3) for s in samples]
                rows.append([method.name, *values, str(method.trainings)])
        title = f"{pair[0]} → {pair[1]}, {shots} images per class: mean ± 95 % over seeds"
        made.append(Table(title, ["method", *MEASURES.values(), "trainings"], rows))
    return made


def draw(records: Sequence[Record]) -> Figure:
    tasks = _tasks(records)
    figure = Figure(figsize=(11, 3.4 * len(tasks)), layout="constrained")
    panels = figure.subplots(len(tasks), 3, squeeze=False)
    for row, (pair, shots) in zip(panels, tasks, strict=True):
        for axis, measure in zip(row, ("nll", "ece", "ood fashion"), strict=True):
            found = {m: _by_seed(records, pair, shots, m, measure) for m in METHODS}
            spreads = [interval(list(s.values())) if s else (float("nan"), 0.0) for s in found.values()]
            colours = ["#0072b2" if m == "learned" else "#8a8a8b" for m in METHODS]
            for i, ((mean, half), colour) in enumerate(zip(spreads, colours, strict=True)):
                axis.errorbar([mean], [i], xerr=[half], fmt="o", color=colour, capsize=3)
            axis.set_yticks(
                range(len(METHODS)), [m.name for m in METHODS.values()] if axis is row[0] else [""] * len(METHODS)
            )
            axis.invert_yaxis()
            axis.set(title=f"{pair[0]} → {pair[1]}" if axis is row[0] else "", xlabel=MEASURES[measure])
            axis.grid(color="0.9")
            axis.spines[["top", "right"]].set_visible(False)
    return figure


def verdict(records: Sequence[Record]) -> Verdict:
    """Upheld where the learned prior's NLL is surely below most rivals' and above nobody's."""
    said, upheld = [], True
    for pair, shots in _tasks(records):
        learned = _by_seed(records, pair, shots, "learned", "nll")
        others = {m: paired(learned, _by_seed(records, pair, shots, m, "nll")) for m in METHODS if m != "learned"}
        beaten = [METHODS[m].name for m, (mean, half) in others.items() if mean + half < 0]
        lost = [METHODS[m].name for m, (mean, half) in others.items() if mean - half > 0]
        upheld = upheld and not lost and 2 * len(beaten) > len(others)
        said.append(
            f"{pair[0]} → {pair[1]} at {shots} per class ({len(learned)} seeds): surely lower than "
            f"{', '.join(beaten) or 'nobody'}; surely higher than {', '.join(lost) or 'nobody'}; the others are within "
            "the 95 % interval"
        )
    why = f"The learned prior's NLL, paired by seed. {'. '.join(said)}."
    return Verdict(Outcome.ours if upheld else Outcome.unsupported, why)


def _cells(
    pairs: Sequence[tuple[str, str]],
    shots: Sequence[int],
    seeds: int,
    examples: int,
    tested: int,
    methods: Sequence[str],
) -> list[dict[str, object]]:
    base = grid(seed=range(seeds), shots=shots, method=methods, examples=[examples], tested=[tested])
    return [{"source": source, "target": target, **cell} for source, target in pairs for cell in base]


CALIBRATION = Study(
    id="calibration",
    claim="With few images a learned prior is better calibrated than baselines of the same budget.",
    data="MNIST ↔ NotMNIST (prior from 10,000 images), LeNet-5, ten images per class; 300 images to tune on; foreign images from "
    "Fashion-MNIST and CIFAR-10 in grey",
    grid={
        Preset.smoke: _cells(PAIRS[:1], [1], 1, 2000, 50, ["plain", "learned"]),
        Preset.cpu: _cells(PAIRS, [10], 5, 10000, 300, list(METHODS)),
        Preset.paper: _cells(PAIRS, [1, 5, 10, 25, 100], 10, 60000, 10000, list(METHODS)),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "Every method tries three strengths of its prior and three temperatures (τ of the posterior, or of the softmax "
        "where there is none), by the NLL on the same 300 held-out images: nine trials each, an ensemble six. "
        "“Trainings” counts the networks that takes, of 100 steps each: an ensemble has three times the budget of the "
        "others.",
        "Laplace posteriors predict by the linearised network with the probit link. Foreign images are told by the "
        "entropy of the prediction, against the test images.",
        "L2-SP is fine-tuning with a quadratic pull to the source's weights: the mode under the isotropic prior at the "
        "mean.",
    ),
)
