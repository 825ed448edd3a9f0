"""The exact posterior of a network made linear at its prior's mean, learned or isotropic: no training, all labels."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.curvature import Categorical
from posterity.curvature.batches import input_batches
from posterity.kernel import Calibration, FunctionSpace
from posterity.kernel.kernels import gather
from posterity.laplace import fitted
from posterity.predictive import Prediction
from posterity.predictive.prediction import from_moments
from posterity.workflow.handed_down import around_prior
from posterity_studies.shared.last_stage import HEAD
from posterity_studies.shared.rivals.training import Pair

LEARNED = 1e-3
"""The share of ImageNet's curvature, which counts 1.28 million pictures and has eigenvalues up to ten millions, beside a floor
that is chosen over many powers of ten: from almost isotropic to almost the curvature alone."""
AT_ONCE, NEW = 50, 300
"""Pictures a batch, and new ones whose kernel with the training pictures is computed at a time."""


def function_space(model: nn.Module, learned: pt.Gaussian, data: Pair, share: float) -> FunctionSpace:
    """Strengths of prior and head, width and softness by leave-one-out; a share of zero is the isotropic prior."""
    likelihood = Categorical()
    examples = gather(model, data, likelihood, AT_ONCE, len(data[1]))
    assert examples is not None
    prior = fitted(learned, model, new_head=True)
    return around_prior(model, prior, learned, HEAD, examples, likelihood, shares=(share,), still=False)


@torch.no_grad()
def predicted(space: FunctionSpace, model: nn.Module, x: Tensor, *, calibrated: bool = True) -> Prediction:
    """For new inputs: with the width and softness that were chosen, or with the covariance as it is."""
    moments = space.moments(model, input_batches(x, NEW, x.device))
    if not calibrated:
        moments = [replace(m, calibration=Calibration()) for m in moments]
    return from_moments(moments, space.likelihood, space.link, generator=torch.Generator().manual_seed(0))
