"""One setting with one seed: AUROC of every score, rule and rival, and the false alarms of every rule."""

from __future__ import annotations

import time
from typing import Any

import torch

from posterity.novelty import Reference, alarm, by_folds
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.known_inputs import RIVALS, SETTINGS, Problem, problem
from posterity_studies.shared.known_inputs.columns import Nats, auroc, scored
from posterity_studies.studies.unknown_inputs.methods import RATE, RULES, p_values


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    made = problem(SETTINGS[arguments["setting"]], arguments["seed"], arguments["steps"], arguments["new"])
    found = scored(made)
    nats = Nats.of(found)
    single = {
        name: {other: auroc(found.new[:, i], x[:, i]) for other, x in found.others.items()}
        for i, name in enumerate(found.called)
    }
    rules, alarms = {}, {}
    for rule in RULES:
        new, others = p_values(rule, found, nats)
        rules[str(rule)] = {other: auroc(-new, -p) for other, p in others.items()}
        alarms[str(rule)] = round(float((new <= RATE).double().mean()), 4)
    rivals = {}
    for name, rival in RIVALS.items():
        score = rival(made)
        rivals[name] = {other: auroc(score(made.new), score(x)) for other, x in made.others.items()}
    return {"accuracy": round(made.accuracy, 4), "left out": len(found.left_out), "single": single, "rules": rules,
            "alarms": alarms, "rivals": rivals, **_library(made)}  # fmt: skip


def _library(made: Problem) -> dict[str, Any]:
    """What a user gets: the library's own rule, with 512 known inputs, without any, and without leaving anything out."""
    known, head = made.known.features, made.known.head
    moments = {name: x.moments(head) for name, x in {"new": made.new, **made.others}.items()}
    naive = by_folds(known, made.known.moments(head))
    references = {
        "library": Reference.of(known, made.left_out, source=made.source),
        "without features": Reference.of(known, made.left_out, keep_features=False),
        "training features": Reference.of(known, naive),
    }
    values: dict[str, Any] = {"source": references["library"].source}
    for name, reference in references.items():
        start = time.perf_counter()
        new = reference.unknown(made.new.features, moments["new"])
        seconds = time.perf_counter() - start
        aurocs = {other: auroc(new, reference.unknown(x.features, moments[other])) for other, x in made.others.items()}
        values[name] = {"auroc": aurocs, "alarms": round(float(alarm(new, RATE).double().mean()), 4)}
        if name == "library":
            values["microseconds"] = round(1e6 * seconds / len(new), 1)
    return values
