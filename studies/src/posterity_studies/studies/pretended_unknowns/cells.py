"""One set with one seed: the library's rule, rules with other weights, rivals, and false alarms by what is left out together."""

from __future__ import annotations

import torch
from torch import Tensor

from posterity.novelty.ranks import Ranks
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.known_inputs import RIVALS
from posterity_studies.shared.known_inputs.columns import MOMENTS, Nats, auroc, scored
from posterity_studies.studies.pretended_unknowns.methods import OWN, SETS, pretended, problem, with_class_distance

RATE = 0.05
STRENGTHS = {"pretended": 4.0, "pretended, twice as strong": 8.0}
"""How much a weight's logarithm grows with the score's AUROC for pretended unknowns."""


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    drawn = arguments["set"], arguments["seed"], arguments["steps"], arguments["new"]
    made = problem(*drawn)
    found = scored(made)
    base = torch.tensor([OWN if name in MOMENTS else 1.0 for name in found.called], dtype=torch.float64)
    hints = pretended(made, found)
    true = {
        name: torch.tensor([auroc(found.new[:, j], x[:, j]) for j in range(len(base))], dtype=torch.float64)
        for name, x in found.others.items()
    }
    weights = {"library": base} | {name: base * (beta * hints).exp() for name, beta in STRENGTHS.items()}
    weights["in hindsight"] = base * (8 * torch.stack(list(true.values())).mean(0)).exp()
    nats = Nats.of(found)
    judged = {name: _judged(nats, w) for name, w in weights.items()}
    twice = torch.cat((base, torch.tensor([OWN], dtype=torch.float64)))
    judged["class distance"] = _judged(Nats.of(with_class_distance(made, found)), twice)
    rivals = {}
    for name, rival in RIVALS.items():
        score = rival(made)
        rivals[name] = {other: auroc(score(made.new), score(x)) for other, x in made.others.items()}
    alarms = {"rows at random": judged["library"][1]}
    if SETS[arguments["set"]].way == "frozen features":
        again = Nats.of(scored(problem(*drawn, every_class=True)))
        alarms["one of every class"] = _judged(again, base)[1]
    return {
        "accuracy": round(made.accuracy, 4),
        "left out": len(found.left_out),
        "rules": {name: aurocs for name, (aurocs, _) in judged.items()},
        "agreement": {name: _correlation(hints, x) for name, x in true.items()},
        "rivals": rivals,
        "alarms": alarms,
    }


def _judged(nats: Nats, weights: Tensor) -> tuple[dict[str, float], float]:
    """AUROC by what is unknown, and the false alarms."""
    ranks = Ranks.of((nats.left_out * weights).sum(1))
    new = ranks.p((nats.new * weights).sum(1))
    found = {name: auroc(-new, -ranks.p((x * weights).sum(1))) for name, x in nats.others.items()}
    return found, round(float((new <= RATE).double().mean()), 4)


def _correlation(first: Tensor, second: Tensor) -> float:
    return round(float(torch.corrcoef(torch.stack((first, second)))[0, 1]), 4)
