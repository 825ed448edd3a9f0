"""Predictors beside a network: a head on its features, and models of the inputs themselves, for which it is not run."""

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
from posterity.errors import DamagedFile, NotStorable
from posterity.heads import ClassHead, from_tensors, to_tensors
from posterity.kernel import Calibration, Link, outputs_at
from posterity.kernel.storing import Plain, Stored, above, below, calibration_of, numbers_of
from posterity.predictive.prediction import Moments
from posterity.predictive.predictor import Context, Predictor, meaning
from posterity.tables import ClassModel, NumberModel, Process, ProcessClasses, from_plain, to_plain


@dataclass(frozen=True, eq=False)
class HeadOnFeatures(Predictor, kind="head on features"):
    """What a head says of the inputs of a network's last layer. It has no variance of its own."""

    __repr__ = brief

    point: Mapping[str, Tensor]
    """Weights of the layers below."""
    layer: str
    """The last layer, whose inputs are read and whose outputs are not."""
    head: ClassHead
    calibration: Calibration
    likelihood: Likelihood
    link: Link = "probit"

    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        """Log probabilities in the place of outputs, without any variance."""
        features = features_at(network, self.layer, self.point, batch)
        log_probs = self.head.log_probs(features).to(features.device)
        certain = log_probs.new_zeros(*log_probs.shape, log_probs.shape[1])
        return [Moments(1.0, log_probs, certain, self.calibration)]

    def save(self) -> Stored:
        head, words = to_tensors(self.head)
        own = {"layer": self.layer, "head": words, "calibration": numbers_of(self.calibration)}
        return self.about() | own, above("point", self.point) | above("head", head)

    @classmethod
    def load(cls, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Self:
        head = from_tensors(below(tensors, "head"), plain["head"])
        if not isinstance(head, ClassHead):
            raise DamagedFile("a head on features is for classes, and this one is not.")
        soft = calibration_of(plain["calibration"])
        return cls(below(tensors, "point"), str(plain["layer"]), head, soft, *meaning(plain))


@torch.no_grad()
def features_at(network: Replica, layer: str, point: Mapping[str, Tensor], batch: Batch) -> Float[Tensor, "n inp"]:
    """What a layer reads where the layers below have other weights."""
    with network.call_of(layer) as call:
        outputs_at(network.module, network.blocks(point), point, batch)
        return call.taken()[0].double()


@dataclass(frozen=True, eq=False)
class InputModelPredictor(Predictor, kind="on inputs"):
    """Predictions by models of the inputs alone, without the network; unknown inputs are found by the inputs."""

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
        """Predictions for a matrix of inputs."""
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
