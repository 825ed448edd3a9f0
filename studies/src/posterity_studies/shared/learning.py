"""Learning a task as the paper does: a tenth held out, K-FOC, and sums joined to Kronecker pairs.

The library's own `learn` has gone further (one frame with values, leave-one-out): the paper's studies keep the published way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from posterity.blocks import named
from posterity.curvature import KFOC, estimate
from posterity.data import Data
from posterity.gaussian import Gaussian
from posterity.laplace import Scales, train, tune_strength, update
from posterity.laplace.run import split


def learn_as_published(
    model: nn.Module,
    data: Data,
    prior: Gaussian,
    scales: Scales | None,
    training: Mapping[str, Any],
    generator: torch.Generator,
    progress: bool = False,
) -> Gaussian:
    """MAP training, K-FOC at the mode, and the posterior; without scales the prior's strength is that of greatest evidence."""
    own = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
    options: dict[str, Any] = {"validation": 0.1, "batch_size": 256, "epochs": 100, "start": "model"} | dict(training)
    history = train(model, data, prior, generator=own, progress=progress, **options)
    part, _ = split(data, options["validation"], torch.Generator().manual_seed(history.seed))
    curvature = estimate(model, part, KFOC(), blocks=named(prior.mean), generator=own, progress=progress)
    single = prior if prior.is_compressed else prior.compress()
    return update(model, curvature, single, scales or tune_strength(model, curvature, single), join="sum")
