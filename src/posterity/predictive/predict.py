"""The verb: what the network says of new inputs, over all weights the Gaussian holds for possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from posterity.blocks import Replica, evaluating, find_blocks, named
from posterity.checks import check_likelihood, check_network
from posterity.curvature import Categorical, Likelihood
from posterity.data.batches import Batch, Inputs, input_batches
from posterity.gaussian import Gaussian
from posterity.gaussian.gaussian import check_frozen
from posterity.kernel import Calibration, Link, outputs_at
from posterity.kernel.latent import LINKS
from posterity.novelty import Reference, from_known, watching
from posterity.predictive.draws import by_derivatives, sampled
from posterity.predictive.linearised import StructuredGaussian
from posterity.predictive.prediction import Prediction


@torch.inference_mode(False)
@torch.no_grad()
def predict(
    model: nn.Module,
    gaussian: Gaussian,
    x: Inputs,
    likelihood: Likelihood | None = None,
    *,
    method: Literal["linearised", "jvp", "sampled"] = "linearised",
    calibration: Calibration | None = None,
    link: Link = "probit",
    samples: int = 100,
    batch_size: int = 250,
    generator: torch.Generator | None = None,
    keep_draws: bool = False,
) -> Prediction:
    """The predictive distribution for new inputs, over all weights that a Gaussian holds for possible.

    "linearised" makes the network linear in its weights around the mean: outputs are normal, and the `link` turns them into
    probabilities. It takes a backward pass an output. "jvp" is the same for large networks and many classes: it averages over
    draws of the *linear* network, at one forward-mode derivative (about three forward passes) for two draws. "sampled" averages
    over networks drawn from the Gaussian, which underfits where it is wide. The model is run in evaluation mode and comes out as
    it went in.

    Args:
        model: the network.
        gaussian: a prior or posterior over its weights.
        x: a tensor, an array, what the network takes by name, a Dataset or a DataLoader (targets in it are not looked at).
        likelihood: what outputs mean; classes (`Categorical`) by default.
        method: "linearised", "jvp" or "sampled".
        calibration: how wide (τ) and how soft (T) the linearised predictive is; as the Gaussian says by default.
        link: "probit", "pairwise", "bridge" or "sampled".
        samples: draws of the weights ("sampled", "jvp"), or of the outputs where draws are kept.
        batch_size: inputs at a time, few enough for a processor's cache.
        generator: the source of randomness.
        keep_draws: whether to keep outputs per draw.

    Returns:
        A `Prediction`: probabilities (or mean and variance), uncertainty taken apart, and `.unknown`, if the Gaussian carries
        features of known inputs: those of fits and their files do.

    Raises:
        BadData: if there is nothing to predict for, or inputs do not pair up.
        FrozenMismatch: if the network has other norm statistics or frozen weights than the Gaussian was made with.

    Example:
        >>> pt.predict(model, posterior, x).probs
    """
    if samples < 1:
        raise ValueError(f"samples is at least 1, not {samples}")
    if link not in LINKS:
        raise ValueError(f'link is one of {", ".join(LINKS)}, not "{link}"')
    check_network(model)
    check_likelihood(likelihood)
    check_frozen(gaussian, model)
    like = next(model.parameters())
    inputs = input_batches(x, batch_size, like.device, like.dtype)
    likelihood = likelihood or Categorical()
    reference = _reference(gaussian)
    width = calibration or Calibration()
    with evaluating(model):
        if method == "linearised":
            speaks = StructuredGaussian(gaussian, width, likelihood, link)
            own = {"reference": reference, "samples": samples, "generator": generator, "keep_draws": keep_draws}
            return speaks.predict(Replica(model), inputs, **own)  # type: ignore[arg-type]
        if method == "sampled":
            found = sampled(model, gaussian, inputs, likelihood, samples, generator, keep_draws)
        elif method == "jvp":
            found = by_derivatives(model, gaussian, inputs, likelihood, width, samples, generator, keep_draws)
        else:
            raise ValueError(f'method is "linearised", "jvp" or "sampled", not "{method}"')
        return (
            found if reference is None else found.but(unknown=_at_mean(model, gaussian, inputs, reference, likelihood))
        )


def _reference(gaussian: Gaussian) -> Reference | None:
    """What a Gaussian carries of known inputs, made ready once."""
    known = gaussian.known
    if known and "_ready" not in vars(known):
        vars(known)["_ready"] = from_known(known)
    return vars(known).get("_ready")


def _at_mean(
    model: nn.Module, gaussian: Gaussian, inputs: Sequence[Batch], reference: Reference, likelihood: Likelihood
) -> Tensor:
    """Unknown inputs are found at the mean of the weights, whatever is drawn: one forward pass."""
    blocks, unknown = find_blocks(model, named(gaussian.mean)), []
    for batch in inputs:
        with watching(model, reference.layers, batch.count) as watch:
            outputs = outputs_at(model, blocks, gaussian.mean, batch)
        unknown.append(reference.of_outputs(watch.features, outputs, likelihood))
    return torch.cat(unknown)
