"""Which posterior should score unknown inputs: AUROC of `.unknown` under several rules, none of which looks at a label.

Watch: the demo's network and priors, with each of the six exercises that the demo *knows* as the unknown one, on windows of first
halves of recordings; the demo tests on second halves. Images: LeNet-5 after 2,000 source images (1,000 digits), tested on other
*training* images of the target beside training images of another set. Nothing that a study tests by is used.
Every line of the results is a task and the examples that were drawn for it.

    python -m benchmarks.unknown_inputs > benchmarks/results/unknown_inputs.jsonl
    python -m benchmarks.unknown_inputs benchmarks/results/unknown_inputs.jsonl      # means, and differences from the first rule
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

import posterity as pt
from posterity.blocks import Replica
from posterity.data.batches import Batch
from posterity.errors import DidNotConverge, Inconsistent
from posterity.kernel import Calibration, FunctionPosterior, Linearised, Member
from posterity.kernel.choose import unit
from posterity.kernel.kernels import FLOORS, HEADS, SHARES, Shared, Strength
from posterity.lenet import lenet5
from posterity.predictive.exact import ExactLinear
from posterity.predictive.prediction import Moments, from_moments
from posterity.predictive.predictor import Stack
from posterity_studies.demo.source import at_mean, learn_prior
from posterity_studies.shared.intervals import interval
from posterity_studies.shared.sources import Recipe, data_set, learned_prior
from posterity_studies.shared.watch import RATE, WEARERS, Meeting, meet, recordings, windows

Head = Literal["new", "keep"]
Rule = list[tuple[float, FunctionPosterior]]
IMAGES: tuple[tuple[str, str, Head, tuple[str, ...]], ...] = (
    ("digits", "mnist", "keep", ("fashion_mnist", "notmnist")),
    ("mnist", "digits", "keep", ("fashion_mnist", "notmnist")),
    ("notmnist", "mnist", "new", ("fashion_mnist",)),
    ("mnist", "notmnist", "new", ("fashion_mnist", "mnist")),
)
EACH, DRAWS, TESTED = (2, 10), 3, 300
EXERCISES, SECONDS, EVERY = range(6), (2, 4, 8), 3
"""The demo's unknown exercise, the seventh, is never the unknown one here. A third of all wearers with each is met."""


def exact_of(fit: pt.Fit) -> ExactLinear:
    """The exact posterior of a fit, without networks beside it."""
    found = fit.predictor.parts[0][1] if isinstance(fit.predictor, Stack) else fit.predictor
    assert isinstance(found, ExactLinear)
    return found


def scores(fit: pt.Fit, new: Tensor) -> dict[str, Tensor]:
    """`.unknown` under each rule."""
    exact = exact_of(fit)
    jacobian = exact.jacobian(Replica(fit.model), [Batch((new,), {}, torch.zeros(len(new)))])
    kernels: dict[object, Tensor] = {}
    moments: dict[Strength | None, Moments] = {}

    def of(weight: float, p: FunctionPosterior) -> Moments:
        if p.strength not in moments:
            moments[p.strength] = Moments(0.0, *p.moments(jacobian, kernels), Calibration(), 1.0, p.usual)
        return replace(moments[p.strength], in_unknown=weight)

    found = {}
    for name, rule in rules(fit).items():
        unknown = from_moments([of(*part) for part in rule], fit.likelihood, exact.link).unknown
        assert unknown is not None
        found[name] = unknown
    return found


def rules(fit: pt.Fit) -> dict[str, Rule]:
    """The posteriors of each rule, with their weights. Floors are the grid's lowest where nothing else is said."""
    assert fit.choice is not None
    members = fit.choice.members
    of = members[0].posterior.of
    shares = [_share(m, of) for m in members]
    best = _strength(members[0]).head

    @cache
    def loose(share: float, head: float = best, floors: Sequence[float] = FLOORS) -> FunctionPosterior:
        return loosened(of, share, head, floors)

    found: dict[str, Rule] = {
        "best member's share": [(1.0, loose(shares[0]))],
        "largest share of the members": [(1.0, loose(max(shares)))],
        "whole source": [(1.0, loose(1.0))],
        "whole source, floor 1": [(1.0, loose(1.0, floors=(1.0,)))],
        "whole source, floor 0.001": [(1.0, loose(1.0, floors=(0.001, *FLOORS)))],
        "a tenth of the source": [(1.0, loose(0.1))],
        "source and floor alike": [(1.0, loose(FLOORS[0]))],
        "all shares": [(0.2, loose(share)) for share in SHARES],
        "the source's shares": [(0.25, loose(share)) for share in SHARES[1:]],
        "members' shares": [(m.weight, loose(s, _strength(m).head)) for m, s in zip(members, shares, strict=True)],
        "members as they are": [(m.weight, m.posterior) for m in members],
    }
    if isinstance(of.kernel, Shared):
        scale = unit(of, 0.0, head=True)
        for name, head in (("loosest", HEADS[0]), ("middle", 1.0), ("firmest", HEADS[-1])):
            found[f"whole source, {name} head"] = [(1.0, loose(1.0, head * scale))]
    return found


def loosened(of: Linearised, share: float, head: float, floors: Sequence[float] = FLOORS) -> FunctionPosterior:
    """This share of the source with the lowest floor that numbers allow."""
    scale = unit(of, share)
    for floor in floors:
        try:
            return of.posterior(Strength(share * scale, floor * scale, head))
        except (DidNotConverge, Inconsistent):
            continue
    raise Inconsistent(f"no floor serves a share of {share}")


def _strength(member: Member) -> Strength:
    strength = member.posterior.strength
    assert strength is not None
    return strength


def _share(member: Member, of: Linearised) -> float:
    """On the grid, without the unit of a new head's outputs."""
    share = _strength(member).share
    return min(SHARES, key=lambda s: abs(s * unit(of, s) - share))


def judged(fit: pt.Fit, known: Tensor, unfamiliar: Tensor) -> dict[str, float]:
    found = scores(fit, torch.cat([known, unfamiliar]))
    return {name: round(pt.metrics.ood_auroc(s[: len(known)], s[len(known) :]), 4) for name, s in found.items()}


def watch(wearer: int, unknown: int) -> Iterator[dict[str, Any]]:
    """Known windows come after what is shown at most, all of them before the second half."""
    meeting = meet(wearer, unknown)
    prior = learn_prior(meeting)
    known = _first_half(meeting, known=True, begin=SECONDS[-1])
    unfamiliar = _first_half(meeting, known=False, begin=0)
    for seconds in SECONDS:
        fit = pt.adapt(at_mean(prior), meeting.shown(seconds).pair, prior, classes=meeting.classes, progress=False)
        yield {
            "task": "watch",
            "unknown": unknown,
            "wearer": wearer,
            "seconds": seconds,
            **_aurocs(fit, known, unfamiliar),
        }


def _first_half(meeting: Meeting, *, known: bool, begin: int) -> Tensor:
    cut = []
    for r in recordings():
        if r.wearer == meeting.wearer and (r.exercise != meeting.unknown) == known:
            length = r.signal.shape[1] // 2 - begin * RATE
            cut += [windows([r], RATE, begin * RATE / r.signal.shape[1], length).x] if length >= 2 * RATE else []
    return (torch.cat(cut) - meeting.mean) / meeting.deviation


@cache
def _prior(source: str) -> pt.Gaussian:
    return learned_prior(Recipe(source, 1000 if source == "digits" else 2000, 1.0))


def images(
    source: str, target: str, head: Head, unknown: tuple[str, ...], each: int, draw: int
) -> Iterator[dict[str, Any]]:
    """One fit, tested beside each set of unknown inputs."""
    x, y = data_set(target).train
    generator = torch.Generator().manual_seed(300 + draw)
    order = torch.randperm(len(y), generator=generator)
    x, y = x[order], y[order]
    chosen = torch.cat([(y == c).nonzero().flatten()[:each] for c in range(10)])
    others = torch.ones(len(y)).bool()
    others[chosen] = False
    fit = pt.adapt(lenet5(), (x[chosen], y[chosen]), _prior(source), head=head, progress=False)
    for name in unknown:
        unfamiliar = data_set(name).train[0]
        unfamiliar = unfamiliar[torch.randperm(len(unfamiliar), generator=generator)[: TESTED // 2]]
        task = {"task": f"{source} → {target}", "head": head, "unknown": name, "each": each, "draw": draw}
        yield task | _aurocs(fit, x[others][:TESTED], unfamiliar)


def _aurocs(fit: pt.Fit, known: Tensor, unfamiliar: Tensor) -> dict[str, Any]:
    assert fit.choice is not None
    chosen = [[round(m.weight, 3), (s := _strength(m)).share, min(s.floor, 1e30), s.head] for m in fit.choice.members]
    return {"chosen": chosen, "auroc": judged(fit, known, unfamiliar)}


def show(path: Path) -> None:
    """Means of each rule, and how far it is from the first: intervals over wearers, or over draws of each transfer."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    groups: dict[str, list[dict[str, Any]]] = {}
    for r in rows:
        watch = r["task"] == "watch"
        one = f"watch, {r['seconds']} s" if watch else f"{r['task']}, {r['each']} a class"
        for name in (one, "watch, all" if watch else f"images, {r['head']} head, all"):
            groups.setdefault(name, []).append(r)
    for name, some in sorted(groups.items()):
        first = next(iter(some[0]["auroc"]))
        print(f"{name} ({len(some)} rows)")
        for rule in some[0]["auroc"]:
            mean = sum(r["auroc"][rule] for r in some) / len(some)
            gap = interval(_by_draw(some, rule, first))
            print(f"    {rule:32} {mean:.3f} ({gap.mean:+.3f} ± {gap.half:.3f})")


def _by_draw(rows: Sequence[dict[str, Any]], rule: str, first: str) -> list[float]:
    """One rule minus another. Rows of one wearer, or of one draw of images, are not independent: their mean counts."""
    gaps: dict[tuple[Any, ...], list[float]] = {}
    for r in rows:
        key = (r["wearer"],) if r["task"] == "watch" else (r["task"], r["draw"])
        gaps.setdefault(key, []).append(r["auroc"][rule] - r["auroc"][first])
    return [sum(found) / len(found) for found in gaps.values()]


def main() -> None:
    if len(sys.argv) > 1:
        show(Path(sys.argv[1]))
        return
    torch.set_num_threads(1)
    for row in everything():
        print(json.dumps(row, ensure_ascii=False), flush=True)


def everything() -> Iterator[dict[str, Any]]:
    for draw in range(DRAWS):
        for each in EACH:
            for task in IMAGES:
                yield from images(*task, each, draw)
        for wearer in WEARERS[draw::DRAWS]:
            for unknown in EXERCISES:
                if (wearer // DRAWS + unknown) % EVERY == 0:
                    yield from watch(wearer, unknown)


if __name__ == "__main__":
    main()
