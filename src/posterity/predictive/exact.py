"""Predictors of few examples: the exact posterior of a network made linear in its weights, and networks that are averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posterity.blocks import Block, Replica
from posterity.brief import brief
from posterity.curvature import Likelihood
from posterity.data import Batch
from posterity.errors import DamagedFile
from posterity.kernel import (
    BlockFrame,
    Calibration,
    FunctionPosterior,
    Jacobian,
    Link,
    StrengthChoice,
    jacobian,
    outputs_at,
)
from posterity.kernel.directions import holds_examples, without_examples
from posterity.kernel.kernels import Kept
from posterity.kernel.last_layer import as_jacobian, with_one
from posterity.kernel.latent import SharedLatent
from posterity.kernel.storing import (
    Plain,
    Stored,
    above,
    below,
    calibration_of,
    numbers_of,
    pack_choice,
    unpack_choice,
)
from posterity.predictive.in_features import FeatureGaussian
from posterity.predictive.prediction import Moments
from posterity.predictive.predictor import Context, Predictor, meaning

ROOM = 1 << 27
"""Numbers that directions in weight space may have (half a gigabyte in float32)."""
LOOKED_AT = 200
"""Training examples at which a fit without them is compared with one that has them."""


@dataclass(frozen=True, eq=False)
class ExactLinear(Predictor, kind="exact"):
    """The exact posterior of few examples over a network's outputs.

    It speaks of the network made linear in its weights at `point`, not of draws of the weights.
    """

    __repr__ = brief

    point: Mapping[str, Tensor]
    frames: Mapping[str, BlockFrame]
    choice: StrengthChoice
    likelihood: Likelihood
    link: Link = "probit"
    rows: Int[Tensor, " n"] | None = None
    """Which of the fit's examples it has seen; None: all."""

    @property
    def needs_examples(self) -> bool:
        return holds_examples(self.choice.best.posterior)

    def chosen(self) -> StrengthChoice:
        return self.choice

    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        """Means and variances of each member's outputs."""
        new = self.jacobian(network, [batch])
        kept: Kept = {}
        found = []
        for posterior, own in self.parts():
            mean, covariance = posterior.moments(new, kept)
            found.append(Moments(mean=mean, covariance=covariance, **own))
        return found

    def parts(self) -> list[tuple[FunctionPosterior, dict[str, Any]]]:
        """Every posterior, with the fields of its `Moments` that hold at all inputs."""
        return [(m.posterior, {"weight": m.weight, "calibration": m.calibration}) for m in self.choice.members]

    def without_examples(self) -> tuple[ExactLinear, float]:
        """The same without anything of single training examples, and the largest relative change of a variance at some of them.

        Raises:
            NotStorable: if there is no such form, or not in `ROOM` numbers.
        """
        choice, before = self.choice, [posterior for posterior, _ in self.parts()]
        if not holds_examples(before[0]):
            return self, 0.0
        after = without_examples(before, ROOM, next(iter(self.point.values())).dtype)
        train = before[0].of.train
        some = Jacobian(train.outputs[:LOOKED_AT], {n: b.some(slice(LOOKED_AT)) for n, b in train.blocks.items()})
        changes = []
        for old, new in zip(before, after, strict=True):
            one, other = (p.moments(some)[1].diagonal(dim1=-2, dim2=-1) for p in (old, new))
            changes.append(float((other - one).abs().div(one.abs().clamp_min(1e-12)).max()))
        members = tuple(replace(m, posterior=p, log_probs=None) for m, p in zip(choice.members, after, strict=True))
        return replace(self, choice=replace(choice, members=members), rows=None), max(changes)

    def jacobian(self, network: Replica, inputs: Sequence[Batch]) -> Jacobian:
        """Outputs at the point of linearisation, and how they depend on the weights."""
        blocks = resized(network.blocks(self.point), self.point)
        return jacobian(network.module, blocks, self.point, self.frames, inputs)

    def save(self) -> Stored:
        plain, tensors = pack_choice(self.choice)
        return self.about() | plain, tensors | above("point", self.point) | self._own_tensors()

    def _own_tensors(self) -> dict[str, Tensor]:
        return {} if self.rows is None else {"rows": self.rows}

    @classmethod
    def load(cls, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Self:
        point = below(tensors, "point")
        frames = {name: BlockFrame.of(context.prior.precision[name]) for name in point}
        own: dict[str, Any] = {"head": str(plain["head"])} if "head" in plain else {}
        found = cls(point, frames, StrengthChoice((), 0, ""), *meaning(plain), tensors.get("rows"), **own)
        train = None if "directions" in plain else found._train(plain, tensors, context)
        return replace(found, choice=unpack_choice(plain, tensors, frames, found.likelihood, train))

    @torch.no_grad()
    def _train(self, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Jacobian:
        """How outputs depend on the weights at the training examples."""
        if context.examples is None:
            raise DamagedFile("the training examples are missing, and predictions are computed from them.")
        examples = context.examples if self.rows is None else context.examples.rows(self.rows)
        return self.jacobian(context.network, examples.inputs)


@dataclass(frozen=True, eq=False)
class LastLayer(ExactLinear, kind="last layer"):
    """The exact posterior of a last layer. Predictions take one forward pass."""

    __repr__ = brief

    head: str = field(default="", kw_only=True)

    @property
    def needs_examples(self) -> bool:
        return False  # it holds their features itself

    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        """Means and variances: in the space of features where those are fewer than the examples, else of the examples."""
        if not self._in_features:
            return super().moments(network, batch)
        features, outputs, _ = self._features(network, batch)
        found = []
        for form, (_, own) in zip(self._in_features, self.parts(), strict=True):
            mean, covariance = form(features, outputs)
            found.append(Moments(mean=mean, covariance=covariance, **own))
        return found

    @cached_property
    def _in_features(self) -> list[FeatureGaussian]:
        """Made once, and the same from every thread."""
        posteriors, point = [posterior for posterior, _ in self.parts()], self.point[self.head]
        fewer = all(isinstance(p.latent, SharedLatent) and len(p.latent.weights) > point.shape[1] for p in posteriors)
        return [FeatureGaussian(posterior, self.head, point.dtype) for posterior in posteriors] if fewer else []

    def jacobian(self, network: Replica, inputs: Sequence[Batch]) -> Jacobian:
        """The features of new inputs: all that outputs depend on."""
        parts = [self._features(network, batch) for batch in inputs]
        features = torch.cat([with_one(f.double(), layer) for f, _, layer in parts])
        return as_jacobian(self.head, features, torch.cat([o for _, o, _ in parts]).double())

    def _features(self, network: Replica, batch: Batch) -> tuple[Tensor, Tensor, nn.Module]:
        """What the layer reads, the network's outputs (they were seen to be the layer's), and the layer."""
        with network.call_of(self.head) as call:
            outputs = batch.each(batch.outputs(network.module))
            return call.taken()[0], outputs, call.layer

    def about(self) -> Plain:
        return super().about() | {"head": self.head}

    def _own_tensors(self) -> dict[str, Tensor]:
        """The features of the training examples, in the network's own precision where nothing is lost by it."""
        best = self.choice.best.posterior
        if not holds_examples(best):
            return {}
        x: Tensor = best.of.train.blocks[self.head].a  # type: ignore[union-attr]
        narrow = x.to(next(iter(self.point.values())).dtype)
        return {"features": narrow if torch.equal(narrow.double(), x) else x}

    def _train(self, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Jacobian:
        features = tensors["features"].double()
        return as_jacobian(self.head, features, features.new_zeros(len(features), int(plain["classes"])))


@dataclass(frozen=True, eq=False)
class AveragedNetworks(Predictor, kind="networks"):
    """Trained networks, used as they are, averaged. They have no variance of their own."""

    __repr__ = brief

    networks: tuple[tuple[float, Mapping[str, Tensor]], ...]
    """How much each network counts, and its weights block by block."""
    calibration: Calibration
    likelihood: Likelihood
    link: Link = "probit"

    def moments(self, network: Replica, batch: Batch) -> list[Moments]:
        """Outputs with a variance of zero."""
        found = []
        for share, weights in self.networks:
            mean = outputs_at(network.module, network.blocks(weights), weights, batch).double()
            certain = mean.new_zeros(*mean.shape, mean.shape[1])
            found.append(Moments(share, mean, certain, self.calibration))
        return found

    def save(self) -> Stored:
        own = {"calibration": numbers_of(self.calibration), "shares": [share for share, _ in self.networks]}
        parts = (above(i, network) for i, (_, network) in enumerate(self.networks))
        return self.about() | own, {name: x for part in parts for name, x in part.items()}

    @classmethod
    def load(cls, plain: Plain, tensors: Mapping[str, Tensor], context: Context) -> Self:
        networks = tuple((float(share), below(tensors, str(i))) for i, share in enumerate(plain["shares"]))
        if not all(weights for _, weights in networks):
            raise DamagedFile("a network of an average has no weights.")
        return cls(networks, calibration_of(plain["calibration"]), *meaning(plain))


def resized(blocks: Mapping[str, Block], point: Mapping[str, Float[Tensor, "out inp"]]) -> dict[str, Block]:
    """Blocks with as many outputs as the point has: a new head may be read in more directions than the task has classes."""
    found = {}
    for name, block in blocks.items():
        out = point[name].shape[0]
        layer = block.layer if out == block.layer.out else replace(block.layer, out=out)
        found[name] = replace(block, layer=layer)
    return found
