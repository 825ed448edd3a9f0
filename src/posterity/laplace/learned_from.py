"""What training is about to make a network's weights depend on."""

from __future__ import annotations

from torch import nn

from posterity.curvature import Data
from posterity.curvature.past import past_of
from posterity.curvature.provenance import Provenance, together
from posterity.gaussian import Gaussian


def data_seen(*data: Data | None) -> Provenance:
    """The examples of all the data that there is."""
    return together(Provenance.of(part) for part in data if part is not None)


def start_seen(model: nn.Module, prior: Gaussian | None) -> Provenance:
    """What the first weights and the prior have seen."""
    if prior is None:
        return past_of(model)
    return past_of(model, prior.mean, prior.provenance).joined(prior.provenance)
