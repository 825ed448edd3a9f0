"""What exact sums and one number change: bounds for each choice of scales, and what a single pair costs."""

from __future__ import annotations

from typing import Any

import torch

from posterity.algebra import relative_error
from posterity.curvature import KFOC, estimate
from posterity.laplace import Scales, update
from posterity.pacbayes import Landscape, catoni_best, mcallester, one_number
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.drawing import draw_noise
from posterity_studies.shared.per_layer import PerLayer, per_layer
from posterity_studies.shared.priors import build_prior, start, train_to_mode
from posterity_studies.shared.published import DELTA
from posterity_studies.shared.sources import Recipe, data_set, learned_prior
from posterity_studies.shared.tempering import accuracy, tempered_probabilities

GRID = [0.01, 0.1, 0.3, 0.5, 0.8, 0.9, 0.99, 1.0, 2.0]
"""The paper's α and β."""


def source(arguments: Arguments) -> Recipe:
    return Recipe("mnist", arguments["examples"], 1e-5)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Catoni and McAllester values by choice of scales; errors, KL and accuracy of the nearest pair beside the sum."""
    seed = arguments["seed"]
    learned = learned_prior(source(arguments))
    data = data_set("notmnist")
    model = start("learned", learned, seed)
    prior = build_prior("learned", learned, 0.01, arguments["gamma"], seed).compress()
    train_to_mode(model, data.train, prior, seed, steps=arguments["steps"])
    curvature = estimate(model, data.train, KFOC(), generator=generator, progress=False)
    landscape = Landscape.of(prior, model, curvature)
    found = {
        "untuned": Scales(),
        "grid": min((Scales(a, b) for a in GRID for b in GRID), key=lambda s: _catoni(landscape, s)),
        "per layer": per_layer(landscape, search=PerLayer(arguments["adam"])).scales,
        "one number": one_number(landscape).scales,
    }
    values: dict[str, Any] = {"count": curvature.count}
    for name, scales in found.items():
        values[f"{name} catoni"] = round(_catoni(landscape, scales), 6)
        values[f"{name} mcallester"] = round(
            mcallester(landscape.aer(scales), landscape.kl(scales), landscape.count, DELTA), 6
        )
    return values | _single_pair(model, prior, curvature, found["one number"], arguments, generator)


def _single_pair(
    model: Any, prior: Any, curvature: Any, scales: Scales, arguments: Arguments, generator: torch.Generator
) -> dict[str, Any]:
    exact = update(model, curvature, prior, scales, join="sum")
    pair = exact.compress()
    data = data_set("notmnist")
    kept = torch.randperm(len(data.test[0]), generator=torch.Generator().manual_seed(arguments["seed"]))[
        : arguments["tested"]
    ]
    x, y = data.test[0][kept], data.test[1][kept]
    values: dict[str, Any] = {}
    for name, posterior in (("exact", exact), ("pair", pair)):
        values[f"{name} kl"] = round(float(posterior.kl(prior)), 2)
        noise = draw_noise("free", posterior, {}, arguments["draws"], generator)
        values[f"{name} sampled"] = accuracy(tempered_probabilities(model, noise, x, [1.0])[1.0], y)
    for block in exact.blocks:
        a, b = exact.precision[block], pair.precision[block]
        values[f"error {block}"] = float(f"{float(relative_error(a, b)):.4g}")  # type: ignore[arg-type]
        values[f"logdet {block}"] = float(f"{float(b.logdet() - a.logdet()) / a.size:.4g}")
    return values


def _catoni(landscape: Landscape, scales: Scales) -> float:
    return catoni_best(landscape.aer(scales), landscape.kl(scales), landscape.count, DELTA)[0]
