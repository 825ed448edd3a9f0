"""Ways to predict from a Gaussian around a mode, each over temperatures: by drawn networks, and by the network made linear."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.curvature import Categorical
from posterity.data.batches import input_batches
from posterity.kernel.latent import link
from posterity.laplace import fitted
from posterity.predictive.draws import linear_draws
from posterity_studies.shared.drawing import draw_noise
from posterity_studies.shared.function_space import AT_ONCE
from posterity_studies.shared.last_stage import HEAD
from posterity_studies.shared.tempering import tempered_probabilities

PRIORS = {"learned": "learned", "mean": "isotropic"}
"""Both around ImageNet's weights."""
SHARES = {"learned": 1.0, "mean": 0.0}
"""Of the curvature on ImageNet in the prior's precision, beside γ: Bayes' rule, as in the paper, or nothing."""

WAYS = {
    "free": "draws",
    "below": "draws, head at its mode",
    "shrunk 0.3": "draws, factors shrunk by 30 %",
    "jvp": "linear, draws by JVP",
    "probit": "linear, probit",
}
"""Draws of all weights; of all below the head; with eigenvalues moved towards their mean. Draws of the network that is linear
around its mode, mirrored; and the same with the variance of those draws in MacKay's closed form, which has no noise of sampling
in its mean."""

Tempered = dict[float, Tensor]
"""Probabilities by temperature."""
Taus = Mapping[str, Sequence[float]]
"""Temperatures by way."""
AT_A_TIME = 10
"""Draws in memory."""


def prior_of(kind: str, learned: pt.Gaussian, model: nn.Module, gamma: float) -> pt.Gaussian:
    """share · curvature + γ · identity below the head, γ · identity around zero for the head, which is new.

    The isotropic prior has the same eigenvectors with a share of zero: curvatures of the data are comparable.
    """
    return fitted(learned.adjusted(SHARES[kind], gamma), model, gamma, new_head=True)


def tempered(
    model: nn.Module, posterior: pt.Gaussian, x: Tensor, taus: Taus, draws: int, generator: torch.Generator
) -> dict[str, Tempered]:
    """Every way that temperatures are given for. One set of draws serves all temperatures of a way."""
    found: dict[str, Tempered] = {}
    for count in _parts(draws):
        for way, curve in _drawn(model, posterior, x, taus, count, generator):
            so_far = found.setdefault(way, {})
            for tau, probs in curve.items():
                so_far[tau] = so_far.get(tau, 0) + probs * (count / draws)
    return found | _linear(model, posterior, x, taus, draws, generator)


def _parts(draws: int) -> list[int]:
    """A few at a time: each is as large as the network."""
    return [min(AT_A_TIME, draws - first) for first in range(0, draws, AT_A_TIME)]


def _drawn(
    model: nn.Module, posterior: pt.Gaussian, x: Tensor, taus: Taus, draws: int, generator: torch.Generator
) -> Iterator[tuple[str, Tempered]]:
    """By drawn networks. The draws below the head are those of all weights."""
    noise = draw_noise("free", posterior, {}, draws, generator)
    yield "free", tempered_probabilities(model, noise, x, taus["free"])
    del noise[HEAD]
    yield "below", tempered_probabilities(model, noise, x, taus["below"])
    del noise
    for way in (way for way in taus if way.startswith("shrunk")):
        yield way, tempered_probabilities(model, draw_noise(way, posterior, {}, draws, generator), x, taus[way])


def _linear(
    model: nn.Module, posterior: pt.Gaussian, x: Tensor, taus: Taus, draws: int, generator: torch.Generator
) -> dict[str, Tempered]:
    """f + √τ · J(θ_s − θ̂): one derivative a draw and its mirror image, whatever the temperature."""
    mean, shifts = linear_draws(model, posterior, list(input_batches(x, AT_ONCE, x.device)), draws, generator)
    mean, shifts = mean.double(), shifts.double()
    covariance = torch.einsum("snc,snd->ncd", shifts, shifts) / len(shifts)
    drawn = {tau: _mirrored(mean, math.sqrt(tau) * shifts) for tau in taus["jvp"]}
    closed = {tau: link(mean, tau * covariance, Categorical(), "probit") for tau in taus["probit"]}
    return {"jvp": drawn, "probit": closed}


def _mirrored(mean: Tensor, shifts: Tensor) -> Tensor:
    return torch.cat((mean + shifts, mean - shifts)).softmax(-1).mean(0)
