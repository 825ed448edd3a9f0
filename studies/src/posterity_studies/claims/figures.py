"""What rows say, as text from records, by every study's own reading; and from the paper's figures in the same form."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from posterity_studies.engine.declaration import Record
from posterity_studies.engine.registry import find
from posterity_studies.shared import published
from posterity_studies.shared.intervals import interval, shown
from posterity_studies.shared.priors import PRIORS
from posterity_studies.studies.bound_shape.reading import distance, optimum
from posterity_studies.studies.bounds.reading import at, published_ladder, steps_down
from posterity_studies.studies.cold_posterior import reading as cold
from posterity_studies.studies.cold_posterior_large import reading as large
from posterity_studies.studies.cold_posterior_large.methods import PRIORS as BOTH
from posterity_studies.studies.continual import reading as small_streams
from posterity_studies.studies.continual.methods import NAMES
from posterity_studies.studies.continual_large import reading as streams
from posterity_studies.studies.few_shot_modes import reading as few
from posterity_studies.studies.kfoc_quality import reading as kfoc
from posterity_studies.studies.kfoc_quality.cells import BLOCKS
from posterity_studies.studies.kronecker import reading as kronecker
from posterity_studies.studies.last_stage import reading as last_stage
from posterity_studies.studies.small_data import reading as small

ABSENT = "not run"
AS_PUBLISHED = "as published, not against a tuned rival"
TAUS = (1e-3, 1e-5, 1e-7, 1e-9, 1e-11)
GAMMAS = tuple(10.0**-k for k in range(2, 10))
"""Of Figure 7."""
TREATMENTS = {"free": "exact sum", "joined 0.1": "one pair, jitter 10 %", "shrunk 0.3": "shrunk by 30 %"}


def outcome_of(records: Sequence[Record]) -> str:
    """The verdict of the study that the records are of."""
    study = find(records[0].study)
    assert study.verdict is not None
    return str(study.verdict(records).outcome)


# Table 2a


def paper_ladder(measure: str) -> str:
    return " → ".join(f"{rung[measure].mean:.3f}" for rung in published.BOUNDS.values())


def ladders(records: Sequence[Record], measure: str, gammas: Sequence[float]) -> str:
    parts = []
    for gamma in gammas:
        here = at(records, gamma)
        ladder = published_ladder(here, measure)
        if ladder:
            seeds = min(sum(rung in r.values for r in here) for rung in ladder)
            steps = " → ".join(f"{value:.3f}" for value in ladder.values())
            parts.append(f"γ = {gamma:g}, N = 10,656, {seeds} seeds: {steps}")
    return "; ".join(parts) or ABSENT


def ladder_verdict(records: Sequence[Record], measure: str) -> str:
    """Reproduced where at one of the paper's γ every step lowers the bound, and Catoni's ends below one."""
    for gamma in published.GAMMAS:
        ladder = published_ladder(at(records, gamma), measure)
        if len(ladder) == len(published.BOUNDS) and all(steps_down(ladder)) and list(ladder.values())[-1] < 1:
            return "reproduced"
    down = steps_down(published_ladder(at(records, 100.0), measure))
    return f"not reproduced; at γ = 100 {sum(down)} of {len(down)} steps do not go up"


# Small data


def paper_at_ten() -> str:
    return " / ".join(f"{published.curve('figure 2b', kind)[10]:.0f}" for kind in PRIORS)


def at_ten(records: Sequence[Record], key: str) -> str:
    found = [small.curve(records, kind, key).get(10, (math.nan, math.nan)) for kind in PRIORS]
    return " / ".join(shown(mean, math.nan, 0) for mean, _ in found)


def times(factors: Sequence[float]) -> str:
    return ", ".join("–" if math.isnan(f) else "∞" if math.isinf(f) else f"{f:.1f}" for f in factors)


def paper_times() -> str:
    return times(small.paper_factors()["mean"])


def times_fewer(records: Sequence[Record], key: str) -> str:
    return times(small.factors(records, "mean", key))


def _panels() -> Iterator[tuple[str, bool]]:
    """Panels of the paper's Figure 7, and whether its learned prior needs fewer images for 80 % than the isotropic one."""
    for gamma in GAMMAS:
        for tau in TAUS:
            curves = [published.curve("figure 7", f"{gamma:g} {tau:g} {kind}") for kind in ("learned", "mean")]
            yield f"{gamma:g} {tau:g}", _fewer(*({int(n): v for n, v in curve.items()} for curve in curves))


def _fewer(learned: small.Curve, other: small.Curve) -> bool:
    factor = small.times_fewer(learned, other, 80)
    return not math.isnan(factor) and factor > 1


def paper_panels() -> str:
    found = dict(_panels())
    return f"{sum(found.values())} of {len(found)}"


def _ours_of_panels(records: Sequence[Record], treatment: str) -> dict[str, bool]:
    made = {}
    for panel, _ in _panels():
        curves = [small.curve(records, kind, f"{treatment} {panel}") for kind in ("learned", "mean")]
        if all(len(curve) > 5 for curve in curves):
            made[panel] = _fewer(*({n: mean for n, (mean, _) in curve.items()} for curve in curves))
    return made


def panels(records: Sequence[Record]) -> str:
    parts = []
    for treatment, name in TREATMENTS.items():
        ours = _ours_of_panels(records, treatment)
        if ours:
            parts.append(f"{name} {sum(ours.values())} of {len(ours)}")
    return "; ".join(parts) or ABSENT


def panels_verdict(records: Sequence[Record]) -> str:
    """With one pair, which is nearest to what the paper computes: the share of panels that agree with its own."""
    ours, theirs = _ours_of_panels(records, "joined 0.1"), dict(_panels())
    if len(ours) < len(theirs):
        return f"{len(ours)} of {len(theirs)} panels run"
    same = sum(ours[panel] == theirs[panel] for panel in theirs)
    share = same / len(theirs)
    word = "reproduced" if share >= 0.9 else "partly reproduced" if share >= 0.6 else "not reproduced"
    return f"{word}: {same} of {len(theirs)} panels agree"


# Cold posteriors


def lost(records: Sequence[Record], treatment: str, shots: int | None = None) -> str:
    here = cold.with_shots(records, min(cold.amounts(records)) if shots is None else shots)
    return cold.Remedy.of(here, treatment, 1e-5).shown


def _spreads(losses: Sequence[Sequence[float]]) -> list[float]:
    return [max(of_prior) - min(of_prior) if of_prior else math.nan for of_prior in losses]


def _paper_losses() -> list[list[float]]:
    curves = [[cold.paper_curve(gamma, kind) for gamma in published.GAMMAS] for kind in PRIORS]
    return [[curve[min(curve)] - curve[0.1] for curve in of_prior] for of_prior in curves]


def paper_over_gammas() -> str:
    return " / ".join(f"{spread:.1f}" for spread in _spreads(_paper_losses()))


def _losses(records: Sequence[Record], treatment: str) -> list[list[float]]:
    here = cold.with_shots(records, min(cold.amounts(records)))
    found = [[cold.mean_lost(here, k, f"{treatment} {g:g} 0.1") for g in cold.gammas(here)] for k in PRIORS]
    return [[loss for loss in of_prior if not math.isnan(loss)] for of_prior in found]


def over_gammas(records: Sequence[Record], treatment: str) -> str:
    return " / ".join(f"{spread:.1f}" for spread in _spreads(_losses(records, treatment)))


def over_gammas_verdict(records: Sequence[Record]) -> str:
    """Reproduced where the learned prior changes least over γ with the judged treatment."""
    learned, *others = _spreads(_losses(records, cold.JUDGED))
    return "reproduced" if learned <= min(others) else "not reproduced"


def paper_mode_gap() -> str:
    return f"{large.paper_reached('learned') - large.paper_reached('mean'):+.1f}"


def mode_gap(records: Sequence[Record]) -> str:
    points, nats = (large.mode_gap(records, measure) for measure in ("accuracy", "nll"))
    flat = large.flat_modes(records, "learned")
    place = "last stage, 50 per class, until flat" if flat else "last stage, 20 per class, not to the mode"
    return f"{place}: {shown(*points, 1, sign=True)} points, {shown(*nats, 2, sign=True)} nats"


def mode_gap_verdict(records: Sequence[Record]) -> str:
    return "reproduced" if large.mode_gap(records).low > 0 else "not reproduced"


def paper_warmest() -> str:
    return "; ".join(
        " / ".join(large.power({0: large.paper_warmest(gamma, kind)}) for kind in BOTH) for gamma in (1e-3, 1e-5)
    )


def warmest(records: Sequence[Record]) -> str:
    return "; ".join(
        " / ".join(large.power(large.warmest_by_seed(records, kind, gamma, "free")) for kind in BOTH)
        for gamma in (1e-3, 1e-5)
    )


# Curvature


def paper_nearest() -> str:
    return " / ".join(f"{published.NEAREST[name].mean:.4f}" for name in ("power", "sum"))


def nearest(records: Sequence[Record], suffix: str = "") -> str:
    return " / ".join(f"{kronecker.overall(records, name + suffix).mean:.4f}" for name in ("power", "sum"))


def paper_iterations() -> str:
    return " → ".join(f"{step.mean:.3f}" for step in published.ITERATIONS[:2])


def first_iterations(records: Sequence[Record], start: str) -> str:
    return " → ".join(f"{s.mean:.3f}" for s in kronecker.iterations(records, start, alike=True)[:2])


def kfoc_closer(records: Sequence[Record]) -> str:
    pairs = [
        [statistics.mean(kfoc.samples(records, way, block, batch)) for way in ("kfoc", "kfac")]
        for batch in kfoc.batches(records)
        for block in BLOCKS
    ]
    return f"in {sum(a <= b for a, b in pairs)} of {len(pairs)} layers and batch sizes of LeNet-5"


def apart(records: Sequence[Record]) -> str:
    return shown(*interval([distance(optimum(r, "approximate"), optimum(r, "true")) for r in records]), 2)


# Streams


def paper_leads() -> str:
    last = {name: row[-1].mean for name, row in published.STREAM.items()}
    return " / ".join(f"{last['learned'] - last[rival]:+.1f}" for rival in ("mean", "zero", "pnn 1e-05"))


def stream_leads(records: Sequence[Record]) -> str:
    runs = streams.by_method(records, "sets")
    return " / ".join(shown(*streams.ahead(runs, rival), 1, sign=True) for rival in ("mean", "zero", "pnn 1e-05"))


def small_stream_leads(records: Sequence[Record]) -> str:
    here = [r for r in records if r.arguments["protocol"] == "small"]
    parts = []
    for place in sorted({small_streams.where(r) for r in here}):
        methods = small_streams.by_method([r for r in here if small_streams.where(r) == place])
        lead = interval(small_streams.ahead(methods[NAMES["bpnn learned"]], methods[NAMES["bpnn mean"]]))
        parts.append(f"split {place[1]}, {place[2]} per class {shown(*lead, 1, sign=True)}")
    return "; ".join(parts)


# Few shots


def few_shot(records: Sequence[Record], rival: str) -> str:
    found = few.results(records)
    draws = len(found.get("learned", {}).keys() & found.get(rival, {}).keys())
    gaps = (shown(*few.gap(found, "learned", rival, m), 3, sign=True) for m in few.MEASURES)
    return f"{' / '.join(gaps)} ({draws} draws)"


def few_shot_verdict(records: Sequence[Record]) -> str:
    found = few.results(records)
    if few.drawn(found) < few.ENOUGH:
        return f"not decided yet: {few.drawn(found)} of {few.ENOUGH} draws"
    words = {few.CLAIM: "reproduced", few.PUBLISHED_ONLY: AS_PUBLISHED}
    return "; ".join(f"{name}: {words.get(few.said(found, m), few.said(found, m))}" for m, name in few.NAMES.items())


def scales_chosen(records: Sequence[Record]) -> str:
    found = few.results(records)
    arms = ("learned", "published", "tuned")
    counts = Counter(v["scales"] for arm in arms for v in found.get(arm, {}).values())
    total = sum(counts.values())
    return ", ".join(f"{name} {counts[name]}" for name in ("mcallester", "catoni", "none")) + f" of {total}"


def function_space_gap(records: Sequence[Record]) -> str:
    found = last_stage.results(records)
    return shown(*last_stage.average(found, "learned", "isotropic", "nll"), 3, sign=True)
