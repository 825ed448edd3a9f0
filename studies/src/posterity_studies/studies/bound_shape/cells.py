"""The bound over α and β of one posterior: approximated from curvature alone, and with the measured error of draws."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from posterity.curvature import KFOC, estimate
from posterity.laplace import Scales, update
from posterity.pacbayes import Landscape, catoni_best, one_number
from posterity_studies.engine.declaration import Arguments, Values
from posterity_studies.shared.drawing import draw_noise
from posterity_studies.shared.priors import build_prior, start, train_to_mode
from posterity_studies.shared.published import DELTA
from posterity_studies.shared.sources import Recipe, data_set, learned_prior
from posterity_studies.shared.tempering import drawn_outputs


def source(arguments: Arguments) -> Recipe:
    return Recipe("mnist", arguments["examples"], 1e-5)


def cell(arguments: Arguments, generator: torch.Generator) -> Values:
    """Two tables over (α, β) and the β of the one-number optimum. α and β are shared by all layers, τ = 1, as in the paper."""
    seed = arguments["seed"]
    learned = learned_prior(source(arguments))
    x, y = data_set("notmnist").train
    model = start("learned", learned, seed)
    prior = build_prior("learned", learned, arguments["weight"], arguments["gamma"], seed).compress()
    train_to_mode(model, (x, y), prior, seed, steps=arguments["steps"])
    curvature = estimate(model, (x, y), KFOC(), generator=generator, progress=False)
    landscape = Landscape.of(prior, model, curvature)
    kept = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[: arguments["measured"]]
    approximate, true = [], []
    for alpha in arguments["alphas"]:
        lines: tuple[list[float], list[float]] = ([], [])
        for beta in arguments["betas"]:
            scales = Scales(alpha, beta)
            kl = landscape.kl(scales)
            risk = gibbs_error(
                model,
                update(model, curvature, prior, scales, join="sum"),
                x[kept],
                y[kept],
                arguments["draws"],
                generator,
            )
            for line, error in zip(lines, (landscape.aer(scales), risk), strict=True):
                line.append(round(catoni_best(error, kl, curvature.count, DELTA)[0], 5))
        approximate.append(lines[0])
        true.append(lines[1])
    best = one_number(landscape)
    beta = best.scales.beta
    assert isinstance(beta, float)
    return {
        "approximate": approximate,
        "true": true,
        "count": curvature.count,
        "beta": float(f"{beta:.5g}"),
        "best": best.bound,
    }


def gibbs_error(
    model: nn.Module, posterior: Any, x: Tensor, y: Tensor, draws: int, generator: torch.Generator
) -> float:
    """The mean error of single draws, which the theorem bounds; not the error of their average."""
    noise = draw_noise("free", posterior, {}, draws, generator)
    wrong = [float((outputs.argmax(-1) != y).double().mean()) for outputs in drawn_outputs(model, noise, x)]
    return sum(wrong) / len(wrong)
