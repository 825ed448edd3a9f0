"""The optimum is one number: per-layer scales never beat it, and the landscape agrees with Gaussians."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import NotFinite
from posterity.laplace import Scales
from posterity.lenet import lenet5
from posterity.pacbayes import Landscape, one_number, tune
from posterity_studies.shared.grid_search import grid_search
from posterity_studies.shared.per_layer import PerLayer, per_layer


def random_landscape(seed: int) -> Landscape:
    generator = torch.Generator().manual_seed(seed)
    spectra = {
        f"layer{i}": torch.exp(4 * torch.randn(30, generator=generator, dtype=torch.float64) - 2 * i) for i in range(3)
    }
    quadratics = {name: float(torch.rand((), generator=generator)) * 20 for name in spectra}
    return Landscape(spectra, quadratics, nll=100.0, count=2000)


@pytest.mark.parametrize("bound", ["catoni", "mcallester"])
@pytest.mark.parametrize("seed", range(2))
def test_per_layer_scales_never_beat_the_one_number_optimum(seed, bound):
    landscape = random_landscape(seed)
    best = one_number(landscape, bound)
    published = per_layer(landscape, bound, search=PerLayer(600, lr=0.1))
    assert best.bound <= published.bound + 1e-9
    assert published.bound <= best.bound * (1 + 1e-6)  # and the search does find its way there


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
    curvature = pt.estimate(model, data, pt.KFAC(labels=pt.curvature.ExactLabels()), progress=False)
    landscape = Landscape.of(prior, model, curvature)
    scales = Scales(alpha=1.3, beta=0.7, temperature=0.4)
    posterior = pt.update(model, curvature, prior, scales)
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
    first = pt.update(model, pt.estimate(model, data, progress=False), pt.isotropic(model, 1.0), join="sum")
    curvature = pt.estimate(model, data, progress=False)
    tuned = tune(model, curvature, first, "mcallester")
    assert tuned.bound == pytest.approx(pt.pacbayes.mcallester(tuned.aer, tuned.kl, 50, 0.1))
    posterior = pt.update(model, curvature, first.compress(), tuned.scales, join="sum")
    assert float(posterior.kl(first.compress())) == pytest.approx(tuned.kl, rel=1e-6)


def small_problem(seed: int = 0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    x = torch.randn(120, 4)
    data = (x, (x[:, :3]).argmax(1))
    prior = pt.isotropic(model, 1.0)
    pt.train(model, data, prior, epochs=30, lr=0.02, validation=None, progress=False)
    return model, data, prior, pt.estimate(model, data, pt.KFAC(), progress=False)


def test_fewer_free_scales_never_find_more():
    model, _, prior, curvature = small_problem()
    landscape = Landscape.of(prior, model, curvature)
    for search in (PerLayer(300, free=("beta",)), PerLayer(300, shared=True), PerLayer(300, free=("temperature",))):
        found = per_layer(landscape, "mcallester", search=search)
        assert found.bound >= one_number(landscape, "mcallester").bound - 1e-9
    fixed = per_layer(landscape, "mcallester", search=PerLayer(50, free=("beta",))).scales
    assert set(fixed.alpha.values()) == {1.0} == set(fixed.temperature.values())
    shared = per_layer(landscape, "mcallester", search=PerLayer(50, shared=True)).scales
    assert len(set(shared.beta.values())) == 1
    with pytest.raises(ValueError, match="free"):
        PerLayer(free=())


def test_one_shared_scale_finds_the_one_number():
    model, _, prior, curvature = small_problem()
    landscape = Landscape.of(prior, model, curvature)
    found = per_layer(landscape, "mcallester", search=PerLayer(1000, free=("beta",), shared=True))
    assert found.bound == pytest.approx(one_number(landscape, "mcallester").bound, rel=1e-4)


def test_evidence_is_an_objective_too():
    model, _, prior, curvature = small_problem()
    assert tune(model, curvature, prior, "evidence").scales == pt.laplace.tune_strength(model, curvature, prior)


def test_a_source_prior_is_tuned_on_its_own_data():
    """The paper scales the isotropic prior and the curvature of the source before handing them down."""
    model, _, start, curvature = small_problem()
    tuned = tune(model, curvature, start, "catoni")
    learned = pt.update(model, curvature, start, tuned.scales)
    assert float(learned.kl(start)) == pytest.approx(tuned.kl, rel=1e-6)
    assert learned.card.scales["0"] == tuned.scales.of("0")


def test_the_papers_baselines_say_where_they_are_now():
    for name in ("grid_search", "PerLayer", "Catoni"):
        with pytest.raises(ImportError, match=rf"posterity_studies\.shared\.\w+\.{name}"):
            getattr(pt.pacbayes, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pt.pacbayes.nonsense


def test_grid_search_passes_over_scales_whose_draws_overflow():
    model, data, prior, curvature = small_problem()
    options = {"alphas": (1.0,), "betas": (1.0,), "generator": torch.Generator().manual_seed(0), "progress": False}
    found = grid_search(prior, model, curvature, data, temperatures=(1e76, 1e-4), **options)
    assert found.scales.temperature == 1e-4
    with pytest.raises(NotFinite, match="colder temperatures"):
        grid_search(prior, model, curvature, data, temperatures=(1e76,), **options)


def test_grid_search_finds_what_trying_one_by_one_finds():
    model, data, prior, curvature = small_problem()
    generator = torch.Generator().manual_seed(0)
    found = grid_search(
        prior,
        model,
        curvature,
        data,
        alphas=(0.1, 1.0),
        betas=(0.1, 1.0),
        temperatures=(10.0, 1e-4),
        passes=4,
        generator=generator,
        progress=False,
    )
    assert found.scales.temperature == 1e-4
    posterior = pt.update(model, curvature, prior, found.scales)
    again = pt.pacbayes.gibbs_risk(model, posterior, data, passes=20, generator=generator, progress=False)
    assert 1 - again.error == pytest.approx(found.accuracy, abs=0.05)
    wild = pt.update(model, curvature, prior, Scales(0.1, 0.1, 10.0))
    assert pt.pacbayes.gibbs_risk(model, wild, data, generator=generator, progress=False).error > again.error + 0.1


def test_on_lenet5_too_per_layer_scales_never_beat_the_one_number():
    torch.manual_seed(0)
    model = lenet5()
    data = (torch.rand(300, 1, 28, 28), torch.randint(10, (300,)))
    source = pt.update(model, pt.estimate(model, data, pt.KFAC(), progress=False), pt.isotropic(model, 10.0))
    prior = source.compress()
    other = (torch.rand(300, 1, 28, 28), torch.randint(10, (300,)))
    landscape = Landscape.of(prior, model, pt.estimate(model, other, progress=False))
    best = one_number(landscape, "mcallester")
    published = per_layer(landscape, "mcallester", search=PerLayer(600, lr=0.1))
    assert best.bound <= published.bound + 1e-9
    assert published.bound <= best.bound * 1.05
