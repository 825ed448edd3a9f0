"""Leave-one-out from any posterior of which the outputs' mean and covariance at some training examples are known."""

from __future__ import annotations

from torch import Tensor

from posterity.curvature import Likelihood
from posterity.kernel.leave_one_out import LeftOut, downdate


def without_themselves(seen: LeftOut, likelihood: Likelihood, targets: Tensor) -> LeftOut:
    """From outputs that have seen an example to those that have not: one downdate and one Newton step.

    Raises:
        Inconsistent: where the posterior is wider at its own examples than one that has seen them can be.
    """
    covariance = downdate(seen.covariance, likelihood.fisher_root(seen.mean))
    gradient = likelihood.residual(seen.mean, targets)
    return LeftOut(seen.mean + (covariance @ gradient[..., None]).squeeze(-1), covariance)
