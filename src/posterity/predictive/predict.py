"""The verb: what the network says of new inputs, over all weights the Gaussian holds for possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posterity.blocks.modes import evaluating
from posterity.curvature import Categorical, Likelihood
from posterity.curvature.batches import Batch
from posterity.errors import BadData
from posterity.gaussian import Gaussian
from posterity.predictive.linearised import linearised
from posterity.predictive.prediction import Prediction
from posterity.predictive.sampled import sampled


@torch.inference_mode(False)
@torch.no_grad()
def predict(
    model: nn.Module,
    gaussian: Gaussian,
    x: Tensor | Mapping[str, Any],
    likelihood: Likelihood | None = None,
    *,
    samples: int = 100,
    method: Literal["sampled", "linearised"] = "sampled",
    link: Literal["probit", "sampled"] = "probit",
    batch_size: int = 250,
    generator: torch.Generator | None = None,
    keep_draws: bool = False,
) -> Prediction:
    """The predictive distribution for inputs x, a tensor or what the network takes by name.

    "sampled": the average over draws of the weights. "linearised": the network made linear in its weights around the mean,
    which removes the underfitting that makes sampled predictives want cold temperatures; through the `link` by the probit
    approximation, or by drawing outputs. Classes are the last dimension of the outputs. The model is run in evaluation mode
    and comes out as it went in; `batch_size` inputs at a time, few enough for a processor's cache.
    """
    if samples < 1:
        raise ValueError(f"samples is at least 1, not {samples}")
    if link not in ("probit", "sampled"):
        raise ValueError(f'link is "probit" or "sampled", not "{link}"')
    inputs = input_batches(x, batch_size, next(model.parameters()).device)
    with evaluating(model):
        likelihood = likelihood or Categorical()
        if method == "sampled":
            return sampled(model, gaussian, inputs, likelihood, samples, generator, keep_draws)
        if method == "linearised":
            return linearised(model, gaussian, inputs, likelihood, samples, link, generator, keep_draws)
        raise ValueError(f'method is "sampled" or "linearised", not "{method}"')


def input_batches(x: Tensor | Mapping[str, Any], batch_size: int, device: torch.device) -> list[Batch]:
    """Inputs alone as batches; the targets are stand-ins that tell how many there are."""
    if isinstance(x, Tensor):
        pieces: list[tuple[tuple[Tensor, ...], dict[str, Any], int]] = [((p,), {}, len(p)) for p in x.split(batch_size)]
    else:
        lengths = {len(v) for v in x.values() if isinstance(v, Tensor)}
        if len(lengths) != 1:
            raise BadData(f"the inputs by name have {sorted(lengths)} examples: they must agree.")
        n = lengths.pop()
        pieces = [
            (
                (),
                {k: v[i : i + batch_size] if isinstance(v, Tensor) else v for k, v in x.items()},
                min(batch_size, n - i),
            )
            for i in range(0, n, batch_size)
        ]
    if not pieces or not pieces[0][2]:
        raise BadData("there is no input to predict for.")
    return [Batch(args, kwargs, torch.zeros(count, dtype=torch.int64)).to(device) for args, kwargs, count in pieces]
