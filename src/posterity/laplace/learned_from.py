"""What training is about to make a network's weights depend on."""

from __future__ import annotations

from torch import nn

from posterity.curvature import Data
from posterity.curvature.past import past_of
from posterity.curvature.provenance import Provenance
from posterity.gaussian import Gaussian


def learned_from(model: nn.Module, prior: Gaussian | None, *data: Data | None) -> Provenance:
    """What the first weights, the prior and the data have seen, all together."""
    told = [Provenance.of(part) for part in data if part is not None]
    if prior is None:
        return past_of(model).joined(*told)
    return past_of(model, prior.mean, prior.provenance).joined(prior.provenance, *told)
