"""The last stage on made-up maps: the same pictures as heads have, and a network that begins where its source ended."""

import torch

from posterity_studies.shared.last_stage import HEAD, made_up, source
from posterity_studies.shared.shots import MADE_UP, drawn, drawn_maps

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
