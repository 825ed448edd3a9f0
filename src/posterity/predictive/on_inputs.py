"""A model of the inputs themselves as a predictor: linear, a Gaussian process or trees. The network is not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.blocks import Replica
from posterity.brief import brief
from posterity.curvature import Likelihood
from posterity.data import Batch
from posterity.errors import NotStorable
from posterity.kernel import Calibration, Link
from posterity.kernel.storing import Plain, Stored
from posterity.predictive.prediction import Moments
from posterity.predictive.predictor import Context, Predictor, meaning
from posterity.tables import ClassModel, NumberModel, Process, ProcessClasses, from_plain, to_plain


@dataclass(frozen=True, eq=False)
class InputModelPredictor(Predictor, kind="on inputs"):
    """It gives probabilities, or normal numbers; unknown inputs are found by the inputs themselves."""

    __repr__ = brief

    model: ClassModel | NumberModel
    likelihood: Likelihood
    link: Link = "probit"

    @property
    def needs_examples(self) -> bool:
        return isinstance(self.model, Process | ProcessClasses)

    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        x = batch.positional[0]
        found = self.of_rows(x.cpu())
        noise = None if found.noise is None else found.noise.to(x.device)
        return [replace(found, mean=found.mean.to(x.device), covariance=found.covariance.to(x.device), noise=noise)]

    def of_rows(self, x: Float[Tensor, "m d"]) -> Moments:
        """The same for a matrix of inputs."""
        rows = x.double()
        if isinstance(self.model, ClassModel):
            mean = self.model.logits(rows)
            own, noise = torch.zeros_like(mean), None
        else:
            mean, own, noise = (part[:, None] for part in self.model.numbers(rows))
        return Moments(1.0, mean, torch.diag_embed(own), Calibration(), noise=noise)

    def without_examples(self) -> tuple[InputModelPredictor, float]:
        if self.needs_examples:
            raise NotStorable(
                "a Gaussian process on the inputs predicts from its training examples: save with examples=True, or learn "
                'without it, pt.learn(..., candidates="network").'
            )
        return self, 0.0

    def save(self) -> Stored:
        own, tensors = to_plain(self.model)
        return self.about() | {"model": own}, tensors

    @classmethod
    def load(cls, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Self:
        rows = None if context.examples is None else context.examples.whole.positional[0].double().cpu()
        return cls(from_plain(plain["model"], tensors, rows), *meaning(plain))
