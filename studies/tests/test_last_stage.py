"""The last stage on made-up maps: the same pictures as heads have, and a network that begins where its source ended."""

import torch

from posterity.algebra import FlooredMatrix, Kronecker, scaled_identity
from posterity.gaussian import Gaussian
from posterity_studies.shared.last_stage import HEAD, made_up, source
from posterity_studies.shared.rivals.training import nll
from posterity_studies.shared.shots import MADE_UP, drawn, drawn_maps
from posterity_studies.shared.tempering import tempered_probabilities
from posterity_studies.studies.last_stage.paper import TAUS, Spread, tempered

UNKNOWN = f"{MADE_UP} unknown"


def test_maps_are_of_the_pictures_that_a_seed_draws_for_heads():
    rows = drawn(MADE_UP, UNKNOWN, 96, shots=3, seed=1, classes=3)
    maps = drawn_maps(MADE_UP, UNKNOWN, 96, shots=3, seed=1, classes=3, tested=2, strangers=5)
    for one, other in ((rows.train, maps.train), (rows.held, maps.held)):
        torch.testing.assert_close(one[0], other[0].flatten(1))
        assert torch.equal(one[1], other[1])
    assert torch.equal(maps.test[1].bincount(), torch.full((3,), 2))
    assert len(maps.unknown) == 5


def test_a_network_begins_at_the_prior_with_a_new_head_and_a_copy_of_the_stage():
    found = source(MADE_UP)
    assert found is made_up()
    model, other = found.network(4), found.network(4)
    with torch.no_grad():
        model.layer4[0].weight.zero_()
    mean = found.prior.mean["layer4.0"]
    torch.testing.assert_close(other.layer4[0].weight.flatten(1), mean[:, :-1])
    assert not other.fc.weight.any()
    assert other.fc.out_features == 4
    trained = {name for name, p in other.named_parameters() if p.requires_grad}
    assert trained == {"layer4.0.weight", "layer4.0.bias", f"{HEAD}.weight", f"{HEAD}.bias"}


def test_draws_of_the_papers_recipe_have_the_covariance_of_prior_and_data():
    """Data whose factors share the prior's eigenvectors: then the frame is exact, and so is the quadratic."""
    left, right = (_factor(side, seed) for side, seed in ((2, 0), (3, 1)))
    prior = FlooredMatrix(Kronecker(left, right), 1.0, 0.5)
    spread = Spread.of(prior, Kronecker(left @ left, right @ right))
    noise = spread.noise(2.0, 40_000, torch.Generator().manual_seed(2)).flatten(1).double()
    total = torch.kron(left, right) + 0.5 * torch.eye(6) + 2 * torch.kron(left @ left, right @ right)
    torch.testing.assert_close(noise.mT @ noise / len(noise), total.inverse().double(), rtol=0, atol=0.02)
    shift = torch.randn(2, 3, generator=torch.Generator().manual_seed(3))
    assert abs(spread.quadratic(shift) / float(prior.quadratic(shift)) - 1) < 1e-4


def _factor(side: int, seed: int) -> torch.Tensor:
    root = torch.randn(side, side, generator=torch.Generator().manual_seed(seed))
    return root @ root.mT / side + 0.3 * torch.eye(side)


def test_the_papers_recipe_chooses_its_temperature_by_validation():
    found, shots = source(MADE_UP), drawn_maps(MADE_UP, UNKNOWN, 96, 3, seed=0, classes=4, tested=4, strangers=8)
    model = found.network(4)
    body = found.prior.without(HEAD).adjusted(1.0, 1e-8)
    head = torch.zeros(4, model.fc.in_features + 1)
    prior = Gaussian(body.mean | {HEAD: head}, body.precision | {HEAD: scaled_identity(1.0, tuple(head.shape))})
    made = tempered(model, prior, "catoni", shots.train, shots.held)
    every = tempered_probabilities(model, made.noise, shots.held[0], TAUS)
    losses = {tau: nll(probs, shots.held[1]) for tau, probs in every.items()}
    assert made.held == min(losses.values()) == losses[made.tau]
    assert made.beta > 0
    torch.testing.assert_close(made.predict(shots.held[0]), every[made.tau])
