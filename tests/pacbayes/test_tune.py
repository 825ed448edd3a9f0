"""The optimum is one number: per-layer scales never beat it, and the landscape agrees with Gaussians."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.laplace import Scales
from posterity.pacbayes import Landscape, one_number, per_layer, tune


def random_landscape(seed: int) -> Landscape:
    generator = torch.Generator().manual_seed(seed)
    spectra = {
        f"layer{i}": torch.exp(4 * torch.randn(30, generator=generator, dtype=torch.float64) - 2 * i) for i in range(3)
    }
    quadratics = {name: float(torch.rand((), generator=generator)) * 20 for name in spectra}
    return Landscape(spectra, quadratics, nll=100.0, count=2000)


@pytest.mark.parametrize("bound", ["catoni", "mcallester"])
@pytest.mark.parametrize("seed", range(3))
def test_per_layer_scales_never_beat_the_one_number_optimum(seed, bound):
    landscape = random_landscape(seed)
    best = one_number(landscape, bound)
    published = per_layer(landscape, bound)
    assert best.bound <= published.bound + 1e-9
    assert published.bound <= best.bound * 1.05  # and the search does find its way there


def test_no_single_direction_can_be_improved_either():
    landscape = random_landscape(5)
    best = one_number(landscape, "mcallester")
    for factor in (0.8, 1.25):
        for name in landscape.spectra:
            beta = {n: best.scales.beta * (factor if n == name else 1) for n in landscape.spectra}
            scales = Scales(beta=beta)
            assert (
                pt.pacbayes.mcallester(landscape.aer(scales), landscape.kl(scales), landscape.count, 0.1) >= best.bound
            )


def test_risk_and_divergence_agree_with_the_posterior_itself():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    data = (torch.randn(50, 4, dtype=torch.float64), torch.randint(3, (50,)))
    prior = pt.isotropic(model, 2.0, mean="zero")
    curvature = pt.estimate(model, data, pt.KFAC(labels=pt.Exact()), progress=False)
    landscape = Landscape.of(prior, model, curvature)
    scales = Scales(alpha=1.3, beta=0.7, temperature=0.4)
    posterior = pt.update(prior, model, curvature, scales)
    assert landscape.kl(scales) == pytest.approx(float(posterior.kl(prior)), rel=1e-9)
    trace = sum(float(posterior.precision[n].trace_of(curvature[n])) for n in prior.blocks)
    expected = (curvature.nll + 0.5 * trace) / (50 * torch.log(torch.tensor(2.0)).item())
    assert landscape.aer(scales) == pytest.approx(expected, rel=1e-6)


def test_scaling_all_three_scales_alike_changes_nothing():
    landscape = random_landscape(1)
    one, other = Scales(0.5, 2.0, 0.3), Scales(1.5, 6.0, 0.9)
    assert landscape.aer(one) == pytest.approx(landscape.aer(other), rel=1e-12)
    assert landscape.kl(one) == pytest.approx(landscape.kl(other), rel=1e-12)


def test_tuning_takes_a_prior_that_is_an_exact_sum_and_returns_scales_for_update():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    data = (torch.randn(50, 4, dtype=torch.float64), torch.randint(3, (50,)))
    first = pt.update(pt.isotropic(model, 1.0), model, pt.estimate(model, data, progress=False))
    curvature = pt.estimate(model, data, progress=False)
    tuned = tune(first, model, curvature, "mcallester")
    assert tuned.bound == pytest.approx(pt.pacbayes.mcallester(tuned.aer, tuned.kl, 50, 0.1))
    posterior = pt.update(first.compress(), model, curvature, tuned.scales)
    assert float(posterior.kl(first.compress())) == pytest.approx(tuned.kl, rel=1e-6)
