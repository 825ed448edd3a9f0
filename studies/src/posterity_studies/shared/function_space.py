"""The exact posterior of a network made linear at its prior's mean, learned or isotropic: no training, all labels."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.blocks import Replica
from posterity.curvature import Categorical
from posterity.data.batches import batches, input_batches
from posterity.data.examples import TrainingSet
from posterity.data.leave_out import LeaveOut
from posterity.kernel import Calibration
from posterity.laplace import fitted
from posterity.predictive import Prediction
from posterity.predictive.exact import ExactLinear
from posterity.predictive.prediction import from_moments
from posterity.predictive.predictor import joined
from posterity.workflow.ways.around_prior import exact_posterior
from posterity.workflow.ways.candidate import Options
from posterity_studies.shared.last_stage import HEAD
from posterity_studies.shared.rivals.training import Pair

LEARNED = 1e-3
"""The share of ImageNet's curvature, which counts 1.28 million pictures and has eigenvalues up to ten millions, beside a floor
that is chosen over many powers of ten: from almost isotropic to almost the curvature alone."""
AT_ONCE, NEW = 50, 300
"""Pictures a batch, and new ones whose kernel with the training pictures is computed at a time."""


def function_space(model: nn.Module, learned: pt.Gaussian, data: Pair, share: float) -> ExactLinear:
    """Strengths of prior and head, width and softness by leave-one-out; a share of zero is the isotropic prior."""
    likelihood = Categorical()
    prior = fitted(learned, model, new_head=True)
    inputs = list(batches(data, AT_ONCE))
    examples = TrainingSet(inputs, data[1].long(), len(prior.mean[HEAD]))
    options = Options(shares=(share,), head_alone=False)
    return exact_posterior(model, prior, learned, HEAD, examples, likelihood, LeaveOut.of(examples.targets), options)


@torch.no_grad()
def predicted(space: ExactLinear, model: nn.Module, x: Tensor, *, calibrated: bool = True) -> Prediction:
    """For new inputs: with the width and softness that were chosen, or with the covariance as it is."""
    network = Replica(model)
    moments = joined([space.moments(network, batch) for batch in input_batches(x, NEW, x.device)])
    if not calibrated:
        moments = [replace(m, calibration=Calibration()) for m in moments]
    return from_moments(moments, space.likelihood, space.link, generator=torch.Generator().manual_seed(0))
