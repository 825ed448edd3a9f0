"""What a Bayesian network says of new inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import Bernoulli, Categorical, GaussianNoise, Likelihood
from posterity.errors import BadData
from posterity.kernel import Calibration, Link, link, normal_draws, spread

FAR = 100.0
"""How many times the largest variance at known inputs is beyond all that is known."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Normal outputs at new inputs under one part of an average."""

    weight: float
    mean: Float[Tensor, "m outputs"]
    covariance: Float[Tensor, "m outputs outputs"]
    calibration: Calibration
    in_unknown: float | None = None
    """Its weight in scores for unknown inputs, where that is another."""
    usual: float | None = None
    """The largest variance of outputs at known inputs, where it has been looked at."""
    shape: tuple[int, ...] | None = None
    """Of one example's outputs, where each has several rows of them (a row for every token, say)."""
    noise: Float[Tensor, "m outputs"] | None = None
    """The variance of a number's noise under this part, where it is not the likelihood's."""

    @property
    def softened(self) -> tuple[Float[Tensor, "m outputs"], Float[Tensor, "m outputs outputs"]]:
        """Mean and covariance as wide and as soft as probabilities want them."""
        tau, t = self.calibration.tau, self.calibration.temperature
        return self.mean / t, tau * self.covariance / t**2


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
    or the variance of a regression's outputs. The larger, the more unusual. Entropy ends at log C; where a fit knows the
    variances of its outputs at known inputs, the log of how far this one's is beyond a hundred times their largest is added."""
    names: tuple[str, ...] = ()
    """Of the classes, in the order of `probs`, where they are known."""

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
    def classes(self) -> list[str]:
        """The name of the most probable class of each input."""
        if not self.names or not isinstance(self.likelihood, Categorical):
            raise BadData("the classes have no names here: `.labels` has their numbers; pt.learn(..., classes=names).")
        return [self.names[label] for label in self.labels.flatten().tolist()]

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.mean.shape))
        unknown = "" if self.unknown is None else f", unknown {_range(self.unknown)}"
        names = f", classes {', '.join(self.names[:8])}{' …' if len(self.names) > 8 else ''}" if self.names else ""
        what = "targets" if isinstance(self.likelihood, GaussianNoise) else "probabilities"
        return f"Prediction({shape} {what}, epistemic {_range(self.epistemic)}{unknown}{names}, {self.likelihood})"

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


def _range(x: Tensor) -> str:
    return f"{float(x.min()):.3g} to {float(x.max()):.3g}" if x.numel() else "of no input"


def from_outputs(
    draws: Float[Tensor, "draws n ..."], likelihood: Likelihood, logits: Tensor, keep: bool, mean: Tensor | None = None
) -> Prediction:
    """A prediction from outputs per draw. `mean` replaces the average of the draws where a closed form is at hand."""
    kept = draws if keep else None
    match likelihood:
        case GaussianNoise():
            mean, own, noise = likelihood.predicted(draws.mean(0), draws.var(0, correction=0))
            return Prediction(mean, own, noise, likelihood, logits, kept)
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
        return regression(moments, likelihood)
    entropy = _entropy(likelihood)
    probs, unknown = scores(moments, likelihood, kind, samples, generator)
    within, logits = torch.zeros_like(entropy(probs)), torch.zeros_like(probs)
    for m in moments:
        if m.weight:
            draws = normal_draws(*m.softened, samples, generator)
            single = draws.sigmoid() if isinstance(likelihood, Bernoulli) else draws.softmax(-1)
            within = within + m.weight * entropy(single).mean(0)
            logits = logits + m.weight * m.mean
    total = entropy(probs)
    # A closed form beside sampled draws can leave a hair below zero.
    epistemic, aleatoric = (total - within).clamp_min(0), torch.minimum(within, total)
    return Prediction(probs, epistemic, aleatoric, likelihood, logits, unknown=unknown)


def scores(
    moments: Sequence[Moments],
    likelihood: Likelihood,
    kind: Link,
    samples: int = 100,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Probabilities, and the score for unknown inputs: without draws but for link="sampled"."""
    probs, unknown = (torch.zeros_like(moments[0].mean) for _ in range(2))
    beyond = torch.zeros_like(_entropy(likelihood)(probs))
    shares = [m.weight if m.in_unknown is None else m.in_unknown for m in moments]
    for m, share in zip(moments, shares, strict=True):
        if share > 0:
            # Scores for unknown inputs want the covariance as it is: the temperature is for probabilities.
            closed = "probit" if kind == "sampled" else kind
            unknown = unknown + share / sum(shares) * link(m.mean, m.covariance, likelihood, closed)
            beyond = beyond + share / sum(shares) * _beyond(m, likelihood)
        if m.weight:
            spoken = link(*m.softened, likelihood, kind, samples=samples, generator=generator)
            probs = probs + m.weight * spoken
    return probs, _entropy(likelihood)(unknown) + beyond


def _beyond(m: Moments, likelihood: Likelihood) -> Tensor:
    """ln of how many times wider outputs are than any that are known; zero for all but inputs very far away.

    Far along a ray the mean and the deviation of a ReLU network's logits grow alike. Their ratio, and with it the entropy, comes
    to rest anywhere between 0 and log C, while the variance grows on. Nearer by, the variance says little: large signals have
    large variances, known or not.
    """
    wide = spread(m.covariance, likelihood)
    return torch.zeros_like(wide) if not m.usual else (wide / (FAR * m.usual)).clamp_min(1).log()


def regression(moments: Sequence[Moments], likelihood: GaussianNoise) -> Prediction:
    """Means and variances of the targets, over all parts of the average; what their means disagree by is open too."""
    variances = [m.covariance.diagonal(dim1=-2, dim2=-1) for m in moments]
    parts = [likelihood.predicted(m.mean, m.calibration.tau * v) for m, v in zip(moments, variances, strict=True)]
    parts = [part if m.noise is None else (*part[:2], m.noise) for m, part in zip(moments, parts, strict=True)]
    weights = [m.weight for m in moments]
    mean = torch.stack([w * part[0] for w, part in zip(weights, parts, strict=True)]).sum(0)
    spread = torch.stack(
        [w * (own + (centre - mean).square()) for w, (centre, own, _) in zip(weights, parts, strict=True)]
    ).sum(0)
    noise = torch.stack([w * part[2] for w, part in zip(weights, parts, strict=True)]).sum(0) / sum(weights)
    shares = [m.weight if m.in_unknown is None else m.in_unknown for m in moments]
    plain = [likelihood.predicted(m.mean, v)[1] for m, v in zip(moments, variances, strict=True)]
    untempered = torch.stack([share * v for share, v in zip(shares, plain, strict=True)]).sum(0)
    score = untempered.clamp_min(0).sum(-1)
    return Prediction(mean, spread.clamp_min(0), noise, likelihood, mean, unknown=score)


def _entropy(likelihood: Likelihood) -> Callable[[Tensor], Tensor]:
    return binary_entropy if isinstance(likelihood, Bernoulli) else categorical_entropy


def categorical_entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum(-1)


def binary_entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p) - torch.special.xlogy(1 - p, 1 - p)
