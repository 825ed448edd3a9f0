"""What a Bayesian network says of new inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import Bernoulli, Categorical, GaussianNoise, Likelihood
from posterity.errors import BadData
from posterity.kernel import Link, Moments, link, normal_draws, spread

FAR = 100.0
"""How many times the largest variance at known inputs is beyond all that is known."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predictive distribution, with its uncertainty taken apart.

    For classes, uncertainty is in nats: `entropy` = `aleatoric` (the data's own) + `epistemic` (what more data would settle,
    the mutual information). For regression it is variance, split likewise.
    """

    mean: Tensor
    """Probabilities for classes, expected targets for regression."""
    epistemic: Tensor
    aleatoric: Tensor
    likelihood: Likelihood
    logits: Tensor
    """The outputs averaged over draws (sampled), or at the mean of the weights (linearised)."""
    draws: Tensor | None = None
    """[draws, examples, ...]: outputs per draw, if asked for."""
    unknown: Tensor | None = None
    """A score for inputs unlike the training data, from the covariance as it is, without any temperature: the entropy of classes,
    or the variance of a regression's outputs. The larger, the stranger. Entropy ends at log C; where a fit knows the variances
    of its outputs at known inputs, the log of how far this one's is beyond a hundred times the largest of them is added."""

    def to(self, dtype: torch.dtype) -> Prediction:
        """The same in another precision, float32 at least."""
        wide = torch.promote_types(dtype, torch.float32)
        tensors = {name: value.to(wide) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[arg-type]

    @property
    def probs(self) -> Tensor:
        """Probabilities of the classes, averaged over the posterior."""
        if isinstance(self.likelihood, GaussianNoise):
            raise BadData("a regression predicts numbers, not probabilities: use .mean and .variance.")
        return self.mean

    @property
    def labels(self) -> Tensor:
        """The most probable class, or for independent labels those more probable than not."""
        return self.probs.argmax(-1) if isinstance(self.likelihood, Categorical) else (self.probs > 0.5).long()

    @property
    def variance(self) -> Tensor:
        """Of the targets: what the weights leave open plus the noise."""
        return self.epistemic + self.aleatoric

    @property
    def entropy(self) -> Tensor:
        """Of the predictive distribution, in nats."""
        return self.epistemic + self.aleatoric

    @property
    def mutual_information(self) -> Tensor:
        """Between targets and weights, in nats: the same as `epistemic`."""
        return self.epistemic


def from_outputs(
    draws: Float[Tensor, "draws n ..."], likelihood: Likelihood, logits: Tensor, keep: bool, mean: Tensor | None = None
) -> Prediction:
    """A prediction from outputs per draw. `mean` replaces the average of the draws where a closed form is at hand."""
    kept = draws if keep else None
    match likelihood:
        case GaussianNoise():
            noise = torch.full_like(logits, 1 / likelihood.value)
            return Prediction(draws.mean(0), draws.var(0, correction=0), noise, likelihood, logits, kept)
        case Categorical():
            p = draws.softmax(-1)
            average = p.mean(0) if mean is None else mean
            within = categorical_entropy(p).mean(0)
            total = categorical_entropy(average)
        case Bernoulli():
            p = draws.sigmoid()
            average = p.mean(0) if mean is None else mean
            within, total = binary_entropy(p).mean(0), binary_entropy(average)
        case _:
            raise BadData(f"no predictive is known for {likelihood}")
    # Rounding, or a closed form beside sampled draws, can leave a hair below zero.
    return Prediction(average, (total - within).clamp_min(0), torch.minimum(within, total), likelihood, logits, kept)


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
    within, beyond = (torch.zeros_like(entropy(probs)) for _ in range(2))
    shares = [m.weight if m.in_unknown is None else m.in_unknown for m in moments]
    for m, strange in zip(moments, shares, strict=True):
        if strange > 0:
            # Scores for unknown inputs want the covariance as it is: the temperature is for probabilities.
            closed = "probit" if kind == "sampled" else kind
            unknown = unknown + strange / sum(shares) * link(m.mean, m.covariance, likelihood, closed)
            beyond = beyond + strange / sum(shares) * _beyond(m, likelihood)
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
    return Prediction(probs, epistemic, aleatoric, likelihood, logits, unknown=entropy(unknown) + beyond)


def _beyond(m: Moments, likelihood: Likelihood) -> Tensor:
    """ln of how many times wider outputs are than any that are known; zero for all but inputs very far away.

    Far along a ray the mean and the deviation of a ReLU network's logits grow alike. Their ratio, and with it the entropy, comes
    to rest anywhere between 0 and log C, while the variance grows on. Nearer by, the variance says little: large signals have
    large variances, known or not.
    """
    wide = spread(m.covariance, likelihood)
    return torch.zeros_like(wide) if not m.usual else (wide / (FAR * m.usual)).clamp_min(1).log()


def _regression(moments: Sequence[Moments], likelihood: GaussianNoise) -> Prediction:
    mean = torch.stack([m.weight * m.mean for m in moments]).sum(0)
    spread = torch.stack(
        [
            m.weight * (m.calibration.tau * m.covariance.diagonal(dim1=-2, dim2=-1) + (m.mean - mean).square())
            for m in moments
        ]
    ).sum(0)
    shares = [m.weight if m.in_unknown is None else m.in_unknown for m in moments]
    untempered = torch.stack(
        [share * m.covariance.diagonal(dim1=-2, dim2=-1) for share, m in zip(shares, moments, strict=True)]
    ).sum(0)
    noise = torch.full_like(mean, 1 / likelihood.value)
    return Prediction(
        mean,
        spread.clamp_min(0),
        noise,
        likelihood,
        mean,
        unknown=untempered.clamp_min(0).sum(-1),
    )


def categorical_entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum(-1)


def binary_entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p) - torch.special.xlogy(1 - p, 1 - p)
