"""Labels that no one chose: exact where that costs no more than sampling."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt


@pytest.mark.parametrize("estimator", [pt.KFAC, pt.EKFAC, pt.KFOC, pt.Diagonal, pt.curvature.Dense])
@pytest.mark.parametrize(
    ("outputs", "likelihood"), [(1, pt.GaussianNoise(3.0)), (1, pt.Bernoulli()), (2, pt.Categorical())]
)
def test_one_backward_pass_is_enough_for_exact_curvature(estimator, outputs, likelihood):
    torch.manual_seed(0)
    model, x = nn.Linear(4, outputs).double(), torch.randn(30, 4, dtype=torch.float64)
    y = torch.randint(2, (30,)) if outputs == 2 else torch.randint(2, (30, 1)).double()
    found, exact = (
        pt.estimate(model, (x, y), made, likelihood, progress=False, generator=torch.Generator().manual_seed(s))
        for s, made in ((0, estimator()), (1, estimator(pt.curvature.ExactLabels())))
    )
    torch.testing.assert_close(found[""].dense(), exact[""].dense(), rtol=1e-9, atol=1e-9)


def test_more_outputs_are_sampled():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3).double(), torch.randn(30, 4, dtype=torch.float64)
    y = torch.randint(3, (30,))
    first, sampled = (
        pt.estimate(model, (x, y), made, progress=False, generator=torch.Generator().manual_seed(0))
        for made in (pt.KFAC(), pt.KFAC(pt.curvature.SampledLabels(1)))
    )
    assert torch.equal(first[""].dense(), sampled[""].dense())
