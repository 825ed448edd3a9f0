"""Draws and linear predictives around one mode, on made-up maps; and what is read from them."""

import math

import pytest
import torch

from posterity.laplace import isotropic
from posterity_studies.shared.last_stage import HEAD, made_up
from posterity_studies.studies.cold_posterior_large.cells import measures
from posterity_studies.studies.cold_posterior_large.methods import WAYS, prior_of, tempered
from posterity_studies.studies.cold_posterior_large.reading import COLDER, paper_warmest, warmest


@pytest.fixture
def network():
    """A made-up stage with a head that says something."""
    model = made_up().network(4)
    torch.nn.init.normal_(model.fc.weight, std=0.5, generator=torch.Generator().manual_seed(0))
    return model


def test_both_priors_are_around_the_source_and_the_isotropic_one_has_nothing_but_gamma(network):
    learned, even = (prior_of(kind, made_up().prior, network, 0.01) for kind in ("learned", "mean"))
    flat = isotropic(network, 0.01, even.mean)
    shift = {
        name: mean + torch.randn(mean.shape, generator=torch.Generator().manual_seed(1))
        for name, mean in even.mean.items()
    }
    torch.testing.assert_close(even.quadratic(shift), flat.quadratic(shift), rtol=1e-5, atol=0)
    assert learned.quadratic(shift) > 1.1 * even.quadratic(shift)
    for prior in (learned, even):
        assert not prior.mean[HEAD].any()
        torch.testing.assert_close(prior.mean["layer4.0"], made_up().prior.mean["layer4.0"])


def test_every_way_ends_at_the_mode_when_it_is_cold(network):
    x = torch.randn(5, 6, 2, 2, generator=torch.Generator().manual_seed(2))
    posterior = prior_of("learned", made_up().prior, network, 1.0)
    posterior = type(posterior)({**posterior.mean, HEAD: _matrix(network.fc)}, posterior.precision)
    found = tempered(network, posterior, x, {way: [1.0, 1e-12] for way in WAYS}, 3, torch.Generator().manual_seed(3))
    mode = network(x).softmax(-1).detach()
    assert found.keys() == WAYS.keys()
    for curve in found.values():
        torch.testing.assert_close(curve[1e-12].float(), mode, rtol=0, atol=1e-4)
        assert (curve[1.0].float() - mode).abs().max() > 1e-3


def _matrix(layer):
    return torch.cat((layer.weight, layer.bias[:, None]), 1).detach()


def test_a_prediction_that_overflows_is_a_guess():
    probs = torch.tensor([[0.9, 0.1], [math.nan, math.nan]])
    assert measures(probs, torch.tensor([0, 1])) == {"accuracy": 50.0, "nll": pytest.approx(0.3993, abs=1e-4)}


def test_the_warmest_temperature_is_the_last_before_the_first_loss():
    curve = {1e-9: 75.0, 1e-6: 74.5, 1e-3: 60.0, 1.0: 75.0}
    assert warmest(curve, 75.0) == pytest.approx(-6)
    assert warmest(curve, 80.0) == COLDER


def test_the_papers_own_curves_say_what_its_text_says():
    """The learned prior helps with a weight decay of 1e-5 and not with 1e-3."""
    assert paper_warmest(1e-5, "learned") == pytest.approx(-14)
    assert paper_warmest(1e-5, "mean") == COLDER
    assert paper_warmest(1e-3, "learned") < paper_warmest(1e-3, "mean")
