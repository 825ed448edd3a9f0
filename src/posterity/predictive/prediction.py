"""What a Bayesian network says of new inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.curvature import Bernoulli, Categorical, GaussianNoise, Likelihood
from posterity.errors import BadData, NoData
from posterity.kernel import Calibration, Link, link, normal_draws
from posterity.novelty import ABSENT, alarm
from posterity.predictive.sets import LeftOutScores, class_sets, split_intervals


@dataclass(frozen=True, eq=False)
class Moments:
    """Normal outputs at new inputs under one part of an average."""

    weight: float
    mean: Float[Tensor, "m outputs"]
    covariance: Float[Tensor, "m outputs outputs"]
    calibration: Calibration
    shape: tuple[int, ...] | None = None
    """Of one example's outputs, where each has several rows of them (a row for every token, say)."""
    noise: Float[Tensor, "m outputs"] | None = None
    """The variance of a number's noise under this part, where it is not the likelihood's."""

    @property
    def softened(self) -> tuple[Float[Tensor, "m outputs"], Float[Tensor, "m outputs outputs"]]:
        """Mean and covariance as wide and as soft as probabilities want them."""
        tau, t = self.calibration.tau, self.calibration.temperature
        return (self.mean, self.covariance) if tau == t == 1 else (self.mean / t, tau / t**2 * self.covariance)


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
    """How unlike the known inputs each input is, from 0 to 1: one minus its p-value among known inputs that were left out
    (`posterity.novelty`). None where nothing is known of known inputs."""
    left_out: LeftOutScores | None = field(default=None, repr=False)
    """How little left-out examples conformed, for sets and intervals."""
    names: tuple[str, ...] = ()
    """Of the classes, in the order of `probs`, where they are known."""

    def to(self, dtype: torch.dtype) -> Prediction:
        """The same in another precision, float32 at least."""
        wide = dtype if dtype == torch.float32 else torch.promote_types(dtype, torch.float32)

        def narrowed(name: str, value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(wide)
            return (lambda: value().to(wide)) if name in LATER and value else value

        return Prediction(**{name: narrowed(name, value) for name, value in vars(self).items()})

    def at_once(self) -> Prediction:
        """The prediction with all deferred fields computed."""
        return replace(self)

    def but(self, **changed: Any) -> Prediction:
        """The same with other fields; what is computed when it is asked for stays so."""
        return Prediction(**vars(self) | changed)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

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

    def alarm(self, rate: float = 0.05) -> Tensor:
        """Which inputs to call unknown, if a share of `rate` of the known ones may be called so.

        Raises:
            NoData: if nothing is known of known inputs.
        """
        if self.unknown is None:
            raise NoData(ABSENT)
        return alarm(self.unknown, rate)

    def sets(self, coverage: float = 0.9) -> Tensor:
        """Which classes are in the set of each input, [inputs, classes]: the truth is among them with about this probability.

        The threshold is that of left-out examples (whole groups, where there are groups), so no calibration data is needed. No
        theorem holds without further assumptions; study sets has the coverage that was reached. All classes are in the set where
        there are too few examples for the coverage.

        Raises:
            NoData: if the fit has no left-out examples.
        """
        if not isinstance(self.likelihood, Categorical):
            raise BadData("sets are of classes that exclude each other: use .interval for numbers.")
        return class_sets(self.probs, self._threshold(coverage))

    def interval(self, coverage: float = 0.9) -> Tensor:
        """Lower and upper end for each input, [inputs, 2]: the target lies between them with about this probability.

        As `sets`, with deviations of the prediction: intervals are wider where it is less sure.

        Raises:
            NoData: if the fit has no left-out examples.
        """
        if not isinstance(self.likelihood, GaussianNoise) or self.mean[0].numel() != 1:
            raise BadData("an interval is of one number for each input: use .sets for classes.")
        mean, deviation = self.mean.flatten(), self.variance.flatten().sqrt()
        return split_intervals(mean, deviation, self._threshold(coverage))

    def _threshold(self, coverage: float) -> float:
        if self.left_out is None:
            raise NoData(
                "no examples were left out when this was learned: give calibration data to "
                "posterity.predictive.sets.split_threshold."
            )
        return self.left_out.threshold(coverage)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.mean.shape))
        unknown = "" if self.unknown is None else f", unknown {_range(self.unknown)}"
        names = f", classes {', '.join(self.names[:8])}{' …' if len(self.names) > 8 else ''}" if self.names else ""
        what = "targets" if isinstance(self.likelihood, GaussianNoise) else "probabilities"
        return f"Prediction({shape} {what}, epistemic {_range(self.epistemic)}{unknown}{names}, {self.likelihood})"

    @property
    def variance(self) -> Tensor:
        """The variance of the targets: uncertainty of the weights plus the noise."""
        return self.epistemic + self.aleatoric

    @property
    def entropy(self) -> Tensor:
        """The entropy of the predictive distribution, in nats."""
        return self.epistemic + self.aleatoric

    @property
    def mutual_information(self) -> Tensor:
        """Between targets and weights, in nats: the same as `epistemic`."""
        return self.epistemic


class _DeferredField:
    """A field that may be given as a function, which is called when the field is first asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, of: Any, owner: type) -> Any:
        if of is None:
            return self
        value = vars(of)[self.name]
        if callable(value):
            with torch.inference_mode(False), torch.no_grad():
                vars(of)[self.name] = value = value()
        return value

    def __set__(self, of: Any, value: Any) -> None:
        vars(of)[self.name] = value


LATER = ("epistemic", "aleatoric", "unknown")
"""Fields that take longer than all others of few inputs, and are often not looked at."""
for _name in LATER:
    setattr(Prediction, _name, _DeferredField(_name))


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
    *,
    later: bool = False,
) -> Prediction:
    """A prediction from normal outputs: of one posterior, or of several averaged by their weights.

    The share of uncertainty that more data would settle is measured over `samples` draws of the outputs; `later` only when it
    is asked for.
    """
    if isinstance(likelihood, GaussianNoise):
        return regression(moments, likelihood)
    entropy = _entropy(likelihood)
    probs = probabilities(moments, likelihood, kind, samples, generator)
    logits = _averaged(moments, [m.mean for m in moments])

    @cache
    def apart() -> tuple[Tensor, Tensor]:
        # Later on a generator would be elsewhere, and several threads may ask.
        dice = first_draws(probs.device) if later else generator
        total = entropy(probs)
        within = torch.zeros_like(total)
        for m in moments:
            if m.weight:
                draws = normal_draws(*m.softened, samples, dice)
                single = draws.sigmoid() if isinstance(likelihood, Bernoulli) else draws.softmax(-1)
                within = within + m.weight * entropy(single).mean(0)
        # A closed form beside sampled draws can leave a hair below zero.
        return (total - within).clamp_min(0), torch.minimum(within, total)

    parts: tuple[Any, Any] = lambda: apart()[0], lambda: apart()[1]
    found = Prediction(probs, *parts, likelihood, logits)
    return found if later else found.at_once()


def first_draws(device: torch.device) -> torch.Generator:
    """The same draws of outputs for the same inputs, unless another generator is given."""
    return torch.Generator(device).manual_seed(0)


def probabilities(
    moments: Sequence[Moments],
    likelihood: Likelihood,
    kind: Link,
    samples: int = 100,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Probabilities of the classes, averaged over all parts: without draws but for link="sampled"."""
    counted = [m for m in moments if m.weight]
    own = [link(*m.softened, likelihood, kind, samples=samples, generator=generator) for m in counted]
    return _averaged(counted, own)


def _averaged(moments: Sequence[Moments], values: Sequence[Tensor]) -> Tensor:
    """Σ weight · value over the parts that count."""
    parts = [value if m.weight == 1 else m.weight * value for m, value in zip(moments, values, strict=True) if m.weight]
    return sum(parts[1:], parts[0])


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
    return Prediction(mean, spread.clamp_min(0), noise, likelihood, mean)


def _entropy(likelihood: Likelihood) -> Callable[[Tensor], Tensor]:
    return binary_entropy if isinstance(likelihood, Bernoulli) else categorical_entropy


def categorical_entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum(-1)


def binary_entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p) - torch.special.xlogy(1 - p, 1 - p)
