"""Predictions at new inputs from a posterior in function space, in batches, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posterity.blocks import Block
from posterity.curvature import Likelihood
from posterity.curvature.batches import Batch
from posterity.kernel.choose import Choice, Networks
from posterity.kernel.jacobian import BlockFrame, Jacobian, jacobian, outputs_at
from posterity.kernel.leave_one_out import Calibration
from posterity.kernel.links import Link


@dataclass(frozen=True, eq=False)
class Moments:
    """Normal outputs at new inputs under one member of the average."""

    weight: float
    mean: Float[Tensor, "m outputs"]
    covariance: Float[Tensor, "m outputs outputs"]
    calibration: Calibration
    in_unknown: float | None = None
    """Its weight in scores for unknown inputs, where that is another."""


@dataclass(frozen=True, eq=False)
class FunctionSpace:
    """The exact posterior of few examples over a network's outputs: what a `Fit` predicts with.

    It speaks of the network made linear in its weights at `point`, not of draws of the weights.
    """

    blocks: Mapping[str, Block]
    point: Mapping[str, Tensor]
    frames: Mapping[str, BlockFrame]
    choice: Choice
    likelihood: Likelihood
    link: Link = "probit"
    siblings: tuple[FunctionSpace, ...] = ()
    """Posteriors around other networks, averaged with this one: the weights of all members add up to 1."""

    def moments(self, model: nn.Module, inputs: Iterable[Batch]) -> list[Moments]:
        """Each member's normal outputs, and those of the loose posterior that scores unknown inputs. A batch at a time."""
        parts = zip(*(self._moments(model, batch) for batch in inputs), strict=True)
        return [
            replace(
                members[0],
                mean=torch.cat([m.mean for m in members]),
                covariance=torch.cat([m.covariance for m in members]),
            )
            for members in parts
        ]

    def _moments(self, model: nn.Module, batch: Batch) -> list[Moments]:
        new, loose = self.jacobian(model, [batch]), self.choice.loose
        outside = None if loose is None else 0.0
        found = [Moments(m.weight, *m.posterior.moments(new), m.calibration, outside) for m in self.choice.members]
        if self.choice.networks is not None:
            found += _of_networks(self.choice.networks, model, batch)
        if loose is not None:
            found.append(Moments(0.0, *loose.moments(new), Calibration(), 1.0))
        for sibling in self.siblings:
            found += sibling._moments(model, batch)
        return found

    def jacobian(self, model: nn.Module, inputs: Iterable[Batch]) -> Jacobian:
        """Outputs at the point of linearisation, and how they depend on the weights."""
        return jacobian(model, self.blocks, self.point, self.frames, inputs)


def _of_networks(networks: Networks, model: nn.Module, batch: Batch) -> Iterator[Moments]:
    """Outputs without any variance. They say nothing of inputs unlike all others: that is left to the posteriors."""
    for share, weights in networks.weights:
        mean = outputs_at(model, weights, batch).double()
        certain = mean.new_zeros(*mean.shape, mean.shape[1])
        yield Moments(networks.weight * share, mean, certain, networks.calibration, in_unknown=0.0)
