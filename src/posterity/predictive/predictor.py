"""The protocol of everything that predicts: normal outputs at new inputs, and what they mean.

A predictor is a value: it holds no network. It is given a replica of the fit's own to run, so that any number of threads can
use it at once. It is stored as plain values and tensors; what it refers to and does not hold is the file's `Context`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.blocks import Replica
from posterity.brief import brief
from posterity.curvature import Likelihood
from posterity.data import Batch
from posterity.data.examples import TrainingSet
from posterity.errors import DamagedFile, NotStorable
from posterity.gaussian import Gaussian
from posterity.kernel import Link, StrengthChoice, normal_draws
from posterity.kernel.storing import Plain, Stored, above, below, likelihood_of, link_of, plain_likelihood
from posterity.novelty import Reference
from posterity.novelty.watching import INPUT, Watch
from posterity.predictive.prediction import Moments, Prediction, first_draws, from_moments


@dataclass(frozen=True, eq=False)
class Context:
    """What stored predictors refer to, and do not hold themselves."""

    network: Replica
    prior: Gaussian
    posterior: Gaussian
    examples: TrainingSet | None

    def predictor(self, plain: Plain, tensors: Mapping[str, Tensor]) -> Predictor:
        """The predictor that was stored."""
        if plain["kind"] not in KINDS:
            raise DamagedFile(f"no predictor is called {plain['kind']!r}.")
        return KINDS[plain["kind"]].load(plain, tensors, self)


class Predictor(ABC):
    """Normal outputs for new inputs, as one or several parts of an average."""

    likelihood: Likelihood
    link: Link
    kind: ClassVar[str] = ""
    """What files call it."""

    def __init_subclass__(cls, kind: str = "") -> None:
        if kind:
            cls.kind, KINDS[kind] = kind, cls

    @abstractmethod
    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        """Mean and covariance of the outputs of a batch under every part, with its weight and calibration."""

    @property
    def needs_examples(self) -> bool:
        """Whether predictions are computed from the training examples."""
        return False

    def chosen(self) -> StrengthChoice | None:
        """The strengths of the prior that were chosen, and from how many; None where nothing was chosen."""
        return None

    def without_examples(self) -> tuple[Predictor, float]:
        """The same predictor without its training examples, and the largest relative change of a variance.

        Raises:
            NotStorable: if predictions cannot do without them.
        """
        return self, 0.0

    def save(self) -> Stored:
        """As plain values and tensors."""
        raise NotStorable(f"a {type(self).__name__} has no place in a file.")

    @classmethod
    def load(cls, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Self:
        """The predictor again, to the last bit."""
        raise NotImplementedError

    def about(self) -> Plain:
        """The plain values that nearly every kind has."""
        return {"kind": self.kind, "likelihood": plain_likelihood(self.likelihood), "link": self.link}

    def predict(
        self,
        network: Replica,
        inputs: Sequence[Batch],
        *,
        reference: Reference | None = None,
        link: Link | None = None,
        samples: int = 100,
        generator: torch.Generator | None = None,
        keep_draws: bool = False,
    ) -> Prediction:
        """Probabilities, or numbers with their variance. No option changes which predictor speaks.

        Unknown inputs are found by what the first part of the predictor says, and its network's layers are given on the way.
        """
        if samples < 1:
            raise ValueError(f"samples is at least 1, not {samples}")
        link, like = link or self.link, network.like
        later = generator is None and not keep_draws and link != "sampled" and len(inputs) == 1
        with torch.inference_mode(False), torch.no_grad():
            parts: list[list[Moments]] = []
            unknown: list[Any] = []
            for batch in inputs:
                if reference is None:
                    parts.append(self.moments(network, batch))
                    continue
                layers = tuple(name for name in reference.layers if name != INPUT)
                with network.hooked(("watch", *layers), partial(Watch, network.module, layers)) as watch:
                    watch.begin(batch.count)
                    if INPUT in reference.layers:
                        watch.given(batch.positional, batch.named)
                    parts.append(self.moments(network, batch))
                    # Batch by batch, so that features of many inputs are never held at once.
                    features = reference.checked(watch.features)
                    watch.end()
                scores = partial(_unknown, reference, features, parts[-1][0].mean, self.likelihood)
                unknown.append(scores if later else scores())
            moments = joined(parts)
            later = later and sum(m.covariance.numel() for m in moments) <= HELD
            dice = None if later else generator or first_draws(like.device)
            found = from_moments(moments, self.likelihood, link, samples, dice, later=later)
            draws = _draws(moments, samples, dice) if keep_draws and dice else None
            found = _shaped(found, moments[0], draws)
            if unknown:
                found = found.but(unknown=unknown[0] if len(unknown) == 1 else torch.cat(unknown))
            return found.to(like.dtype) if later else found.to(like.dtype).at_once()


def _unknown(reference: Reference, features: Mapping[str, Tensor], mean: Tensor, likelihood: Likelihood) -> Tensor:
    return reference.of_outputs(features, mean, likelihood).to(mean.device)


def joined(batches: Sequence[Sequence[Moments]]) -> list[Moments]:
    """The moments of several batches as those of one."""
    if len(batches) == 1:
        return list(batches[0])
    return [
        replace(parts[0], **{name: torch.cat([getattr(m, name) for m in parts]) for name in _tensors(parts[0])})
        for parts in zip(*batches, strict=True)
    ]


def _tensors(moments: Moments) -> list[str]:
    return [name for name, value in vars(moments).items() if isinstance(value, Tensor)]


def meaning(plain: Plain) -> tuple[Likelihood, Link]:
    """The likelihood and the link of `about`."""
    return likelihood_of(plain["likelihood"]), link_of(plain)


HELD = 1 << 20
"""Numbers of covariances up to which a prediction holds them, and is taken apart when that is asked for."""
KINDS: dict[str, type[Predictor]] = {}
"""By the names that files have for them."""


@dataclass(frozen=True, eq=False)
class Stack(Predictor, kind="stack"):
    """Several predictors, each with its weight: what left-out examples say of candidates."""

    __repr__ = brief

    parts: tuple[tuple[float, Predictor], ...]
    said: str = field(default="", repr=False)
    """The weights in words, for a plan."""

    @property
    def likelihood(self) -> Likelihood:  # type: ignore[override]
        return self.parts[0][1].likelihood

    @property
    def link(self) -> Link:  # type: ignore[override]
        return self.parts[0][1].link

    @property
    def needs_examples(self) -> bool:
        return any(part.needs_examples for _, part in self.parts)

    def chosen(self) -> StrengthChoice | None:
        return next((choice for _, part in self.parts if (choice := part.chosen()) is not None), None)

    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        return [
            replace(m, weight=weight * m.weight) for weight, part in self.parts for m in part.moments(network, batch)
        ]

    def without_examples(self) -> tuple[Stack, float]:
        parts = [(weight, *part.without_examples()) for weight, part in self.parts]
        return Stack(tuple((weight, part) for weight, part, _ in parts)), max(change for *_, change in parts)

    def save(self) -> Stored:
        stored = [part.save() for _, part in self.parts]
        plain = {"kind": self.kind, "weights": [w for w, _ in self.parts], "parts": [part for part, _ in stored]}
        return plain, {name: x for i, (_, own) in enumerate(stored) for name, x in above(i, own).items()}

    @classmethod
    def load(cls, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Self:
        parts = [context.predictor(part, below(tensors, str(i))) for i, part in enumerate(plain["parts"])]
        if not parts:
            raise DamagedFile("an average has no parts.")
        return cls(tuple(zip(map(float, plain["weights"]), parts, strict=True)))


def _draws(moments: Sequence[Moments], samples: int, generator: torch.Generator) -> Float[Tensor, "draws n outputs"]:
    """Draws of the outputs, each from a part of the average that is drawn first."""
    weights = torch.tensor([m.weight for m in moments], dtype=torch.float64, device=generator.device)
    which = torch.multinomial(weights, samples, replacement=True, generator=generator).tolist()
    drawn: list[Tensor] = []
    for k, m in enumerate(moments):
        if count := which.count(k):
            drawn.append(normal_draws(m.mean, m.calibration.tau * m.covariance, count, generator))
    return torch.cat(drawn)


def _shaped(prediction: Prediction, like: Moments, draws: Tensor | None) -> Prediction:
    """As the network's outputs are shaped: one number an output, or one for all classes of a position."""
    if like.shape is None:
        return prediction if draws is None else prediction.but(draws=draws)
    n = prediction.mean.numel() // torch.Size(like.shape).numel()
    whole, rows = (n, *like.shape), (n, *like.shape[:-1])

    def shaped(x: Tensor) -> Tensor:
        return x.reshape(whole if x.numel() == torch.Size(whole).numel() else rows)

    fields = {name: shaped(getattr(prediction, name)) for name in ("mean", "epistemic", "aleatoric", "logits")}
    return replace(prediction, **fields, draws=None if draws is None else draws.reshape(len(draws), *whole))  # type: ignore[arg-type]
