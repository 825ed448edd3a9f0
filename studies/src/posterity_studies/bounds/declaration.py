"""The ladder as a study: five rungs of the paper, three of ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from matplotlib.figure import Figure

from posterity_studies.bounds.cells import cell
from posterity_studies.declaration import Outcome, Preset, Record, Study, Table, Verdict, grid

RUNGS: dict[str, tuple[str, float | None]] = {
    "baseline": ("baseline: zero-mean isotropic", 0.999),
    "grid search": ("+ grid search", 0.990),
    "learned prior": ("+ learned prior", 0.978),
    "curvature scaling": ("+ curvature scaling", 0.925),
    "one number": ("the same by one number", None),
    "projection": ("+ frequentist projection", 0.885),
    "declared grid": ("ours: prior of a declared grid", None),
    "optimised": ("ours: + optimised posterior", None),
}
"""Each rung's name, and the Catoni bound that the paper reports for it."""

PAPER_GAMMA = 1e-3


def tables(records: Sequence[Record]) -> list[Table]:
    """A ladder for each γ: the paper's, and one at which bounds can say something."""
    found = []
    for gamma in sorted({r.arguments["gamma"] for r in records}):
        here = [r for r in records if r.arguments["gamma"] == gamma]
        share = here[0].arguments.get("share", 1.0)
        found.append(
            Table(f"γ = {gamma:g}, learned prior: {share:g} of the source's curvature + γ", COLUMNS, _rows(here))
        )
    return found


COLUMNS = [
    "",
    "paper: Catoni",
    "Catoni estimate",
    "McAllester estimate",
    "certificate, 95 %",
    "error of one draw",
    "KL, nats",
    "test error, averaged",
    "seeds",
]


def _rows(records: Sequence[Record]) -> list[list[str]]:
    rows = []
    for rung, (title, paper) in RUNGS.items():
        found = [r.values[rung] for r in records if rung in r.values]
        if found:
            measures = ("catoni", "mcallester", "certificate", "gibbs", "kl", "test averaged")
            shown = [_interval([v[m] for v in found], "{:,.0f}" if m == "kl" else "{:.3f}") for m in measures]
            rows.append([title, "" if paper is None else f"{paper:.3f}", *shown, str(len(found))])
    return rows


def _readable(records: Sequence[Record]) -> list[Record]:
    """The ladder of the largest γ: the paper's own is at one throughout."""
    largest = max(r.arguments["gamma"] for r in records)
    return [r for r in records if r.arguments["gamma"] == largest]


def _interval(sample: Sequence[float], form: str) -> str:
    text = form.format(statistics.mean(sample))
    if len(sample) < 2:
        return text
    return f"{text} ± {form.format(statistics.stdev(sample))}"


def draw(records: Sequence[Record]) -> Figure:
    records = _readable(records)
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axis = figure.subplots()
    rungs = [rung for rung in RUNGS if any(rung in r.values for r in records)]
    for key, colour, name in (
        ("catoni", "#0072b2", "Catoni estimate"),
        ("mcallester", "#56b4e9", "McAllester estimate"),
        ("certificate", "#d55e00", "certificate (valid)"),
        ("gibbs", "0.6", "error of one draw"),
    ):
        samples = [[min(1.0, r.values[rung][key]) for r in records if rung in r.values] for rung in rungs]
        middle = [statistics.mean(s) for s in samples]
        spread = [statistics.stdev(s) if len(s) > 1 else 0.0 for s in samples]
        axis.errorbar(range(len(rungs)), middle, spread, marker="o", markersize=4, color=colour, label=name, capsize=2)
    paper = [RUNGS[rung][1] for rung in rungs]
    points = [(i, value) for i, value in enumerate(paper) if value is not None]
    axis.plot([i for i, _ in points], [v for _, v in points], "k*", label="the paper's Catoni")
    axis.set_xticks(range(len(rungs)), [RUNGS[r][0].replace(": ", ":\n") for r in rungs], rotation=25, ha="right")
    axis.set(ylabel="bound (1 where above)", ylim=(0, 1.05))
    axis.grid(axis="y", color="0.9")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.7))
    return figure


def verdict(records: Sequence[Record]) -> Verdict:
    """Whether the paper's rungs go down, by its own estimate, and what holds at the top and the bottom."""
    at_paper = [r for r in records if r.arguments["gamma"] == PAPER_GAMMA]
    records = _readable(records)
    means = {
        rung: {
            key: statistics.mean(r.values[rung][key] for r in records if rung in r.values)
            for key in ("catoni", "certificate")
        }
        for rung in RUNGS
        if any(rung in r.values for r in records)
    }
    ladder = [means[rung]["catoni"] for rung, (_, paper) in RUNGS.items() if paper is not None and rung in means]
    steps = [high >= low - 0.005 for high, low in pairwise(ladder)]
    outcome = Outcome.reproduced if all(steps) else Outcome.partly if any(steps) else Outcome.not_reproduced
    told = " → ".join(f"{value:.3f}" for value in ladder)
    ends = " → ".join(f"{means[rung]['certificate']:.3f}" for rung in means)
    least = min((v["kl"] for r in at_paper for v in r.values.values()), default=math.nan)
    why = f"At the paper's γ every rung is at one: KL is {least:,.0f} nats at least. " if at_paper else ""
    why += f"At γ = {records[0].arguments['gamma']:g}, Catoni's estimate along the paper's rungs: {told}. "
    return Verdict(outcome, f"{why}Certificates, which hold, along all rungs: {ends}.")


_STAGES = ["isotropic", "learned", "projected", "ours"]

BOUNDS = Study(
    id="bounds",
    claim="Each step of the method tightens the bound on NotMNIST.",
    paper="Fig. 2a",
    data="MNIST → NotMNIST, 10,656 images, LeNet-5",
    verdict=verdict,
    grid={
        Preset.smoke: grid(
            stage=_STAGES,
            source=[400],
            examples=[300],
            gamma=[1e-3],
            strength=[[0.01, 100.0]],
            epochs=[2],
            adam=[50],
            optimise=[1],
            searched=[10],
            tested=[50],
            draws=[5],
            seed=[0],
        ),
        Preset.cpu: [
            *grid(
                stage=["isotropic", "learned"],
                source=[60000],
                examples=[11840],
                gamma=[PAPER_GAMMA],
                strength=[[0.01, 100.0]],
                epochs=[25],
                adam=[500],
                optimise=[12],
                searched=[100],
                tested=[500],
                draws=[100],
                seed=range(5),
            ),
            *grid(
                stage=_STAGES,
                source=[60000],
                examples=[11840],
                gamma=[100.0],
                share=[0.01],
                strength=[[0.01, 100.0]],
                epochs=[12],
                adam=[300],
                optimise=[10],
                searched=[100],
                temperatures=[6],
                tested=[300],
                draws=[50],
                seed=range(5),
            ),
        ],
        Preset.paper: grid(
            stage=_STAGES,
            source=[60000],
            examples=[11840],
            gamma=[1e-3, 1e-5, 1e-8],
            strength=[[0.01, 100.0]],
            epochs=[100],
            adam=[3000],
            optimise=[100],
            searched=[1184],
            tested=[10000],
            draws=[100],
            seed=range(5),
        ),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    notes=(
        "Estimates are the paper's: Catoni's bound with the best c chosen afterwards, and McAllester's, at ε = 0.1, both with "
        "the error of the averaged predictor (50 or 100 draws) where the theorems speak of single draws. They are not bounds: "
        "the baseline's, 0.59, is below the error of its own draws on the very images it was trained on, 0.66.",
        "Certificates hold with probability 0.95 over images and draws; they are taken at the error of single draws.",
        "Two ladders: at the paper's γ = 1e-3, and at γ = 100 with a hundredth of the source's curvature, one of 16 priors that "
        "were declared; certificates of our last two rungs pay for that choice.",
        "Grid search goes up, not down: it looks for accuracy on validation images and finds it in cold temperatures. At γ = 100 "
        "the error of a draw falls from 0.66 to 0.13 while KL grows fifteenfold; a bound minds the second more. The learned "
        "prior under the same search has the same trouble. Scales chosen by the bound itself are what makes a learned prior pay.",
        "Projection changes little: at this γ the posterior's mode is near the bound's already.",
        "At the paper's γ Catoni's value is one for all scales, so that neither search has a slope to follow: what they return "
        "there means nothing. KL of that size comes from the nearest single pair and from units that never fire.",
        "Posteriors of the paper's rungs are around one nearest pair, as published. The last rung keeps the exact sum.",
    ),
)
