"""A head on a network's features, the layers below it as a prior has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.blocks import Replica
from posterity.brief import brief
from posterity.curvature import Likelihood
from posterity.data import Batch
from posterity.errors import DamagedFile
from posterity.heads import ClassHead, from_tensors, to_tensors
from posterity.kernel import Calibration, Link, outputs_at
from posterity.kernel.storing import Plain, Stored, above, below, calibration_of, numbers_of
from posterity.predictive.prediction import Moments
from posterity.predictive.predictor import Context, Predictor, meaning


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
    seen: list[Tensor] = []
    handle = network.module.get_submodule(layer).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        outputs_at(network.module, network.blocks(point), point, batch)
    finally:
        handle.remove()
    return seen[-1].double()
