"""One seed: adapters learn from film reviews, and meet few sentences of another source."""

from __future__ import annotations

import copy

import torch

import posterity as pt
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.sentiment import CLASSES, SOURCES, drawn
from posterity_studies.studies.lora.methods import Texts, probabilities, trained, with_adapters

SOURCE, *TARGETS = SOURCES
METHODS = ("learned", "isotropic", "none", "fresh", "as it is")


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Accuracy, NLL and ECE by target and method."""
    texts = Texts()
    fresh = with_adapters(arguments["seed"])
    source = texts(SOURCE, _mixed(drawn(SOURCE, arguments["source"] // 2, generator), generator), 20)
    model = trained(copy.deepcopy(fresh), source, epochs=arguments["epochs"], lr=2e-3)
    learned = pt.posterior(model, source, precision=1.0, generator=generator, progress=False).posterior
    values: dict[str, float] = {}
    for target in arguments["targets"]:
        index = drawn(target, arguments["each"], generator)
        shown = texts(target, index)
        test = texts(target, drawn(target, arguments["test"] // 2, generator, without=frozenset(index)))
        labels = torch.cat([batch["labels"] for batch in test])
        for method in METHODS:
            network = copy.deepcopy(fresh if method == "fresh" else model)
            fit = None
            if method in ("learned", "isotropic"):
                shares = (0.0,) if method == "isotropic" else None
                fit = pt.adapt(
                    network, shown, learned, classes=CLASSES, head="keep", shares=shares, generator=generator, progress=False
                )  # fmt: skip
            elif method != "as it is":
                trained(network, shown, epochs=arguments["steps"], lr=2e-3)
            found = pt.metrics.score(probabilities(network, fit, test), labels)
            for measure in ("accuracy", "nll", "ece"):
                values[f"{target} {method} {measure}"] = round(float(getattr(found, measure)), 5)
    return values


def _mixed(index: list[int], generator: torch.Generator) -> list[int]:
    return [index[i] for i in torch.randperm(len(index), generator=generator).tolist()]
