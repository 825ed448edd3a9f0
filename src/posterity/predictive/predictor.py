"""The protocol of everything that predicts: normal outputs at new inputs, and what they mean.

A predictor is a value: it holds no network. It is given a replica of the fit's own to run, so that any number of threads can
use it at once. `posterity.predictive.state` turns it into plain values and tensors and back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.blocks import Replica
from posterity.brief import brief
from posterity.curvature import Likelihood
from posterity.data import Batch
from posterity.kernel import Link, StrengthChoice, normal_draws
from posterity.novelty import Reference, watching
from posterity.predictive.prediction import Moments, Prediction, from_moments

Plain = dict[str, Any]
"""Numbers, texts, lists and mappings of them: what JSON has."""


class Predictor(ABC):
    """Normal outputs for new inputs, as one or several parts of an average."""

    likelihood: Likelihood
    link: Link

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
        # The same for the same inputs: who wants other draws of the outputs gives a generator.
        generator = generator or torch.Generator(next(network.module.parameters()).device).manual_seed(0)
        with torch.inference_mode(False), torch.no_grad():
            parts, unknown = [], []
            for batch in inputs:
                with watching(network.module, () if reference is None else reference.layers, batch.count) as watch:
                    part = self.moments(network, batch)
                    watch.given(batch.positional, batch.named)
                parts.append(part)
                if reference is not None:
                    # Batch by batch, so that features of many inputs are never held at once.
                    unknown.append(reference.of_outputs(watch.features, part[0].mean, self.likelihood))
            moments = joined(parts)
            found = from_moments(moments, self.likelihood, link or self.link, samples, generator)
            draws = _draws(moments, samples, generator) if keep_draws else None
            found = _shaped(found, moments[0], draws)
            if unknown:
                found = replace(found, unknown=torch.cat(unknown).to(found.mean.device))
            return found.to(next(network.module.parameters()).dtype)


def joined(batches: Sequence[Sequence[Moments]]) -> list[Moments]:
    """The moments of several batches as those of one."""
    return [
        replace(parts[0], **{name: torch.cat([getattr(m, name) for m in parts]) for name in _tensors(parts[0])})
        for parts in zip(*batches, strict=True)
    ]


def _tensors(moments: Moments) -> list[str]:
    return [name for name, value in vars(moments).items() if isinstance(value, Tensor)]


@dataclass(frozen=True, eq=False)
class Stack(Predictor):
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
        return replace(prediction, draws=draws)
    n = prediction.mean.numel() // torch.Size(like.shape).numel()
    whole, rows = (n, *like.shape), (n, *like.shape[:-1])

    def shaped(x: Tensor) -> Tensor:
        return x.reshape(whole if x.numel() == torch.Size(whole).numel() else rows)

    fields = {name: shaped(getattr(prediction, name)) for name in ("mean", "epistemic", "aleatoric", "logits")}
    return replace(prediction, **fields, draws=None if draws is None else draws.reshape(len(draws), *whole))  # type: ignore[arg-type]
