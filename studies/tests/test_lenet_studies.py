"""The pieces that the LeNet studies share: small tasks, the three priors, tempered draws, dead units."""

import math

import pytest
import torch
from torch import nn

from posterity.curvature import KFOC, estimate
from posterity.laplace import isotropic, update
from posterity.predictive import predict
from posterity_studies import Record
from posterity_studies.shared import published
from posterity_studies.shared.dead_units import dead_units
from posterity_studies.shared.drawing import draw_noise
from posterity_studies.shared.networks import SlicedMaxPool, fresh, with_fast_pooling
from posterity_studies.shared.priors import PRIORS
from posterity_studies.shared.tempering import tempered_probabilities
from posterity_studies.studies.small_data.reading import images_needed, paper_factors, samples, times_fewer


def small():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    x, y = torch.rand(40, 4), torch.randint(3, (40,))
    return model, (x, y), update(model, estimate(model, (x, y), KFOC(), progress=False), isotropic(model, 1.0))


def test_quick_network_gives_the_same_outputs_and_gradients():
    model, x = fresh(0), torch.rand(5, 1, 28, 28)
    twin = with_fast_pooling(model)
    torch.testing.assert_close(twin(x), model(x), rtol=0, atol=0)
    for network in (model, twin):
        network(x).square().sum().backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 1, 5, 7)])
def test_maximum_by_slices_is_torchs_pooling(shape):
    x = torch.randn(shape)
    torch.testing.assert_close(SlicedMaxPool()(x), nn.functional.max_pool2d(x, 2), rtol=0, atol=0)


def test_tempered_probabilities_are_those_of_the_tempered_posterior():
    model, (x, _), posterior = small()
    model, x, posterior = model.double(), x.double(), posterior.to(dtype=torch.float64)
    noise = draw_noise("free", posterior, {}, 30, torch.Generator().manual_seed(3))
    ours = tempered_probabilities(model, noise, x, [1.0, 0.01])
    for tau, probabilities in ours.items():
        theirs = predict(
            model, posterior.tempered(tau), x, method="sampled", samples=30, generator=torch.Generator().manual_seed(3)
        ).probs
        torch.testing.assert_close(probabilities, theirs, rtol=1e-4, atol=1e-5)


def test_at_temperature_zero_the_mode_is_left():
    model, (x, _), posterior = small()
    noise = draw_noise("free", posterior, {}, 4, torch.Generator().manual_seed(0))
    probabilities = tempered_probabilities(model, noise, x, [0.0])[0.0]
    torch.testing.assert_close(probabilities, model(x).softmax(-1).detach(), rtol=1e-5, atol=1e-6)


def test_unit_is_dead_when_no_input_lets_it_through_and_draws_leave_it_so():
    model, (x, y), _ = small()
    with torch.no_grad():
        model[0].weight[2], model[0].bias[2] = -1.0, -1.0
    dead = dead_units(model, x)
    expected = (model[0](x) <= 0).all(0)
    assert expected[2]
    assert torch.equal(dead["0"], expected)
    assert "2" not in dead
    posterior = update(model, estimate(model, (x, y), KFOC(), progress=False), isotropic(model, 1e-6))
    noise = draw_noise("pinned", posterior, dead, 5, torch.Generator().manual_seed(0))
    assert not noise["0"][:, dead["0"]].any()
    assert noise["0"][:, ~dead["0"]].all()
    assert noise["2"].all()


def test_shrunk_and_joined_draws_leave_a_dead_unit_no_wider_than_a_share_of_the_others():
    """Nothing but γ holds it in the exact sum; a share of the mean eigenvalue does where factors are shrunk or jittered."""
    model, (x, y), _ = small()
    with torch.no_grad():
        model[0].weight[2], model[0].bias[2] = -1.0, -1.0
    posterior = update(model, estimate(model, (x, y), KFOC(), progress=False), isotropic(model, 1e-8))
    spread = {}
    for treatment in ("free", "shrunk 0.3", "joined 0.3"):
        noise = draw_noise(treatment, posterior, {}, 400, torch.Generator().manual_seed(0))
        spread[treatment] = noise["0"].square().mean((0, 2))
    assert spread["free"][2] == pytest.approx(1e8, rel=0.2)
    for treatment in ("shrunk 0.3", "joined 0.3"):
        assert spread[treatment][2] < 10 * spread[treatment].median()
    with pytest.raises(ValueError, match="no treatment 'wild'"):
        draw_noise("wild", posterior, {}, 1, torch.Generator())


def test_curvature_says_nothing_of_a_dead_unit():
    model, (x, y), _ = small()
    with torch.no_grad():
        model[0].weight[2], model[0].bias[2] = -1.0, -1.0
    curvature = estimate(model, (x, y), KFOC(), progress=False)
    assert curvature["0"].left[2].abs().max() == 0


def test_images_needed_lie_between_sizes_on_a_logarithmic_line():
    assert images_needed({1: 10.0, 100: 90.0}, 50) == pytest.approx(10)
    assert images_needed({1: 60.0, 10: 90.0}, 50) == 1
    assert math.isinf(images_needed({1: 10.0, 10: 20.0}, 50))
    assert times_fewer({1: 10.0, 100: 90.0}, {10: 10.0, 1000: 90.0}, 50) == pytest.approx(10)
    assert math.isnan(times_fewer({1: 1.0}, {1: 1.0}, 50))


def test_published_figures_are_the_papers():
    grid = [f"{10.0**-g:g} {10.0**-t:g} {kind}" for g in range(2, 10) for t in (3, 5, 7, 9, 11) for kind in PRIORS]
    assert all(published.curve("figure 7", name) for name in grid)
    # Figure 2b is the panel γ = τ = 1e-5 of Figure 7.
    whole, panel = (published.curve(*name) for name in (("figure 7", "1e-05 1e-05 learned"), ("figure 2b", "learned")))
    assert panel.items() <= whole.items()
    assert [round(f, 1) for f in paper_factors()["mean"]] == [11.5, 4.2, 1.3]


def test_seed_told_by_two_cells_counts_once():
    cells = [
        Record("small-data", str(i), {"seed": i % 2, "prior": "zero"}, {"map": 5.0 + i % 2}, 1.0, {}) for i in range(4)
    ]
    assert samples(cells, "map", prior="zero") == [5.0, 6.0]
    assert samples(cells, "map", prior="learned") == []


def test_linearised_baseline_never_takes_one_set_of_inputs_for_another():
    from posterity_studies.shared.tasks import Task
    from posterity_studies.studies.calibration.methods import METHODS

    model = fresh(0)
    images = torch.rand(12, 1, 28, 28)
    pair = (images[:4], torch.arange(4))
    predictor = METHODS["mean"].fit(Task(pair, pair, pair), isotropic(model, 1.0, "model"), (0.0, 1.0), 0)
    # Temporary tensors: the second may live where the first has lived.
    apart = [predictor(images[4:8].clone(), 1.0), predictor(images[8:12].clone(), 1.0)]
    together = predictor(images[4:12], 1.0)
    torch.testing.assert_close(torch.cat(apart), together, rtol=1e-4, atol=1e-5)
