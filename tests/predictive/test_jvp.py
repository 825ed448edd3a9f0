"""Draws of the linear network by forward-mode derivatives are exact, and average to the linearised predictive."""

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.blocks import find_blocks, write_blocks
from posterity.data.batches import input_batches
from posterity.predictive.draws import linear_draws


def network():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(27, 4),
    ).double()  # fmt: skip
    model[1].running_mean.normal_(), model[1].running_var.uniform_(0.5, 2)
    for p in model[1].parameters():
        p.requires_grad_(False)
    model.eval()
    x, y = torch.randn(12, 1, 6, 6, dtype=torch.float64), torch.arange(12) % 4
    curvature = pt.estimate(model, (x, y), pt.KFAC(), generator=torch.Generator().manual_seed(0), progress=False)
    prior = pt.isotropic(model, 5.0, mean="model")
    return model, pt.update(model, curvature, prior), x


def test_shifts_are_the_jacobian_times_the_draw():
    model, posterior, x = network()
    blocks = find_blocks(model, list(posterior.blocks))
    mean, shifts = linear_draws(model, posterior, input_batches(x, 5, x.device), 3, torch.Generator().manual_seed(4))
    torch.testing.assert_close(mean, model(x).detach())
    generator = torch.Generator().manual_seed(4)
    names = {full for block in blocks.values() for full in block.parameters.values()}
    own = {n: p.detach() for n, p in model.named_parameters() if n in names}
    jacobian = torch.func.jacrev(lambda ps: torch.func.functional_call(model, ps, (x,)))(own)
    for shift in shifts:
        drawn = {n: posterior.spread(n, torch.float64).draw(1, generator)[0] for n in posterior.blocks}
        delta = {n: v - own[n] for n, v in write_blocks(blocks, drawn).items()}
        dense = sum((jacobian[n].flatten(2) @ delta[n].flatten()) for n in delta)
        torch.testing.assert_close(shift, dense, rtol=1e-9, atol=1e-9)


def test_many_draws_are_the_linearised_predictive():
    model, posterior, x = network()
    generator = torch.Generator().manual_seed(1)
    closed = pt.predict(model, posterior, x, link="sampled", samples=20_000, generator=generator)
    drawn = pt.predict(model, posterior, x, method="jvp", samples=400, generator=generator)
    torch.testing.assert_close(drawn.probs, closed.probs, rtol=0, atol=0.05)
    torch.testing.assert_close(drawn.logits, closed.logits)
    assert drawn.unknown is closed.unknown is None  # this Gaussian carries nothing of known inputs
    assert float(drawn.epistemic.min()) > 0


@pytest.mark.parametrize(("samples", "expected"), [(1, 1), (5, 5), (6, 6)])
def test_draws_come_in_mirrored_pairs(samples, expected):
    model, posterior, x = network()
    found = pt.predict(model, posterior, x, method="jvp", samples=samples, keep_draws=True)
    assert len(found.draws) == expected
    if samples > 1:
        torch.testing.assert_close((found.draws[0] + found.draws[1]) / 2, found.logits)


def test_calibration_makes_draws_narrower_and_softer():
    model, posterior, x = network()
    options = {"method": "jvp", "samples": 4, "keep_draws": True}
    wide, soft = (
        pt.predict(model, posterior, x, calibration=c, generator=torch.Generator().manual_seed(0), **options)
        for c in (pt.kernel.Calibration(), pt.kernel.Calibration(0.25, 2.0))
    )
    torch.testing.assert_close(soft.draws, (wide.logits + 0.5 * (wide.draws - wide.logits)) / 2)
