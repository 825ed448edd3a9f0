"""Scores of unknown inputs grow as an input moves away, and are the entropy near the data."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import Memorised

FAR = torch.tensor([200.0, 400.0, 1e3, 1e4, 1e5])


def network(classes=3, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, classes))


def clouds(each, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    angles = torch.arange(classes).repeat_interleave(each) * 2 * math.pi / classes
    x = 1.5 * torch.stack([angles.cos(), angles.sin()], 1) + 0.7 * torch.randn(each * classes, 2, generator=generator)
    return x, torch.arange(classes).repeat_interleave(each)


def rays(count=8):
    angles = torch.arange(count) * 2 * math.pi / count + 0.1
    return torch.stack([angles.cos(), angles.sin()], 1)


def learned():
    return pt.learn(network(), clouds(10), training={"epochs": 30}, progress=False)


def learned_from_many():
    return pt.learn(network(), clouds(400), training={"epochs": 3}, progress=False)


def prior():
    return pt.learn(
        network(), clouds(100, seed=1), classes=list("abc"), training={"epochs": 5}, progress=False
    ).posterior


def adapted_with_its_head():
    return pt.adapt(network(), clouds(5), prior(), classes=list("abc"), progress=False)


def adapted_with_a_new_head():
    return pt.adapt(network(4), clouds(5, 4), prior(), classes=list("defg"), progress=False)


def of_a_trained_network(**options):
    model = network()
    pt.train(model, clouds(60), pt.isotropic(model), epochs=10, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Memorised)
        return pt.posterior(model, clouds(60), progress=False, **options)


def of_its_last_layer():
    return of_a_trained_network(blocks=["4"])


FITS = [
    learned,
    learned_from_many,
    adapted_with_its_head,
    adapted_with_a_new_head,
    of_a_trained_network,
    of_its_last_layer,
]


@pytest.mark.parametrize("make", FITS)
def test_the_score_grows_along_every_ray_and_is_the_entropy_near_the_data(make):
    fit = make()
    scores = torch.stack([fit.predict(t * rays()).unknown for t in FAR])
    assert bool((scores.diff(dim=0) > 0).all())
    # The variance of a ReLU network's outputs grows with the square of the distance.
    torch.testing.assert_close(scores[-1] - scores[-2], torch.full((8,), 2 * math.log(10)), rtol=0.02, atol=0)
    near = fit.predict(clouds(20, seed=5)[0]).unknown
    assert float(near.max()) <= math.log(4)


def test_without_what_is_usual_the_score_ends_at_the_entropy_of_all_classes():
    """A Gaussian alone has met no inputs: this is what the addition is for."""
    fit = of_a_trained_network()
    bare = torch.stack([pt.predict(fit.model, fit.posterior, t * rays()).unknown for t in FAR])
    assert float(bare.max()) <= math.log(3) + 1e-6
    torch.testing.assert_close(bare[-1], bare[-2], rtol=1e-3, atol=1e-3)


def test_inputs_like_the_known_ones_have_no_addition():
    fit = of_a_trained_network()
    x = clouds(20, seed=5)[0]
    torch.testing.assert_close(fit.predict(x).unknown, pt.predict(fit.model, fit.posterior, x).unknown)


def test_yes_or_no_targets_grow_each_by_itself():
    x, y = clouds(60)
    model = network()
    targets = nn.functional.one_hot(y, 3).float()
    pt.train(model, (x, targets), pt.isotropic(model), pt.Bernoulli(), epochs=10, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Memorised)
        fit = pt.posterior(model, (x, targets), pt.Bernoulli(), progress=False)
    scores = torch.stack([fit.predict(t * rays()).unknown for t in FAR])
    assert scores.shape == (len(FAR), 8, 3)
    assert bool((scores.diff(dim=0) > 0).all())
    assert float(fit.predict(x).unknown.max()) <= math.log(2) + 1e-6


def test_a_fit_from_files_scores_alike(tmp_path):
    fit = of_a_trained_network()
    fit.save(tmp_path / "a.fit")
    again = pt.load(tmp_path / "a.fit", network())
    assert again.predictor.calibration == fit.predictor.calibration
    assert again.predictor.calibration.usual is not None
    torch.testing.assert_close(again.predict(1000 * rays()).unknown, fit.predict(1000 * rays()).unknown, rtol=0, atol=0)
