"""What a posterior in function space says of new inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from posterity.curvature import Bernoulli, GaussianNoise, Likelihood
from posterity.curvature.batches import Batch
from posterity.kernel import FunctionSpace, Link, Moments, link, normal_draws
from posterity.predictive.prediction import Prediction, binary_entropy, categorical_entropy


def in_function_space(
    model: nn.Module,
    space: FunctionSpace,
    inputs: Sequence[Batch],
    samples: int = 100,
    generator: torch.Generator | None = None,
) -> Prediction:
    """Calibrated probabilities, or means and variances, with uncertainty taken apart."""
    batches = list(space.moments(model, inputs))
    whole = [
        Moments(
            members[0].weight,
            torch.cat([m.mean for m in members]),
            torch.cat([m.covariance for m in members]),
            members[0].calibration,
            members[0].in_unknown,
        )
        for members in zip(*batches, strict=True)
    ]
    found = from_moments(whole, space.likelihood, space.link, samples, generator)
    return found.to(next(model.parameters()).dtype)


def from_moments(
    moments: Sequence[Moments],
    likelihood: Likelihood,
    kind: Link,
    samples: int = 100,
    generator: torch.Generator | None = None,
) -> Prediction:
    """A prediction from normal outputs: of one posterior, or of several averaged by their weights.

    The share of uncertainty that more data would settle is measured over `samples` draws of the outputs.
    """
    if isinstance(likelihood, GaussianNoise):
        return _regression(moments, likelihood)
    entropy = binary_entropy if isinstance(likelihood, Bernoulli) else categorical_entropy
    probs, unknown, logits = (torch.zeros_like(moments[0].mean) for _ in range(3))
    within = torch.zeros_like(entropy(probs))
    shares = [m.weight if m.in_unknown is None else m.in_unknown for m in moments]
    for m, strange in zip(moments, shares, strict=True):
        if strange > 0:
            # Scores for unknown inputs want the covariance as it is: the temperature is for probabilities.
            closed = "probit" if kind == "sampled" else kind
            unknown = unknown + strange / sum(shares) * link(m.mean, m.covariance, likelihood, closed)
        if m.weight == 0:
            continue
        tau, t = m.calibration.tau, m.calibration.temperature
        mean, covariance = m.mean / t, tau * m.covariance / t**2
        probs = probs + m.weight * link(mean, covariance, likelihood, kind, samples=samples, generator=generator)
        draws = normal_draws(mean, covariance, samples, generator)
        single = draws.sigmoid() if isinstance(likelihood, Bernoulli) else draws.softmax(-1)
        within = within + m.weight * entropy(single).mean(0)
        logits = logits + m.weight * m.mean
    total = entropy(probs)
    # A closed form beside sampled draws can leave a hair below zero.
    epistemic, aleatoric = (total - within).clamp_min(0), torch.minimum(within, total)
    return Prediction(probs, epistemic, aleatoric, likelihood, logits, unknown=entropy(unknown))


def _regression(moments: Sequence[Moments], likelihood: GaussianNoise) -> Prediction:
    mean = torch.stack([m.weight * m.mean for m in moments]).sum(0)
    spread = torch.stack(
        [
            m.weight * (m.calibration.tau * m.covariance.diagonal(dim1=-2, dim2=-1) + (m.mean - mean).square())
            for m in moments
        ]
    ).sum(0)
    untempered = torch.stack([m.weight * m.covariance.diagonal(dim1=-2, dim2=-1) for m in moments]).sum(0)
    noise = torch.full_like(mean, 1 / likelihood.value)
    return Prediction(
        mean,
        spread.clamp_min(0),
        noise,
        likelihood,
        mean,
        unknown=untempered.clamp_min(0).sum(-1),
    )
