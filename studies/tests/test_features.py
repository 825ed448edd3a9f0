"""Features are computed once, go on where a killed run stopped, and are never those of another network or size."""

import pytest
import torch
from torch import nn

from posterity_studies.errors import BadFeatures, BadPicture
from posterity_studies.shared import features as module
from posterity_studies.shared.datasets.gallery import Gallery
from posterity_studies.shared.features import FrozenNetwork, features, weights_name


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    pixels = torch.arange(10, dtype=torch.uint8)[:, None, None, None].expand(10, 6, 6, 3).numpy()
    labels = torch.arange(10)
    return Gallery("mini", lambda i: pixels[i].copy(), labels, labels, labels > 5)


class Counting(nn.Module):
    """The mean of a picture, and how many pictures were looked at."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, x):
        self.seen += len(x)
        return x.mean((2, 3))


def test_features_are_computed_once_and_in_order(gallery, tmp_path):
    network = Counting()
    frozen = FrozenNetwork("toy-1", lambda: network)
    first = features(frozen, gallery, 6, tmp_path)
    torch.testing.assert_close(first[:, 0] * 255, torch.arange(10.0))
    assert torch.equal(features(frozen, gallery, 6, tmp_path), first)
    assert network.seen == 10


def test_a_stopped_run_goes_on_where_it_was(gallery, tmp_path):
    network = Counting()
    frozen = FrozenNetwork("toy-1", lambda: network)
    whole = features(frozen, gallery, 6, tmp_path)
    files = sorted(tmp_path.rglob("*.safetensors"))
    assert len(files) == 3
    files[1].unlink()
    assert torch.equal(features(frozen, gallery, 6, tmp_path), whole)
    assert network.seen == 14, "one chunk of four is computed again"


def test_other_weights_sizes_and_pictures_are_other_features(gallery, tmp_path):
    network = Counting()
    features(FrozenNetwork("toy-1", lambda: network), gallery, 6, tmp_path)
    features(FrozenNetwork("toy-2", lambda: network), gallery, 6, tmp_path)
    features(FrozenNetwork("toy-1", lambda: network), gallery, 8, tmp_path)
    features(FrozenNetwork("toy-1", lambda: network), gallery.only(torch.arange(9)), 6, tmp_path)
    assert network.seen == 39
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    assert weights_name(tmp_path / "a") != weights_name(tmp_path / "b")


def test_damaged_features_are_named(gallery, tmp_path):
    frozen = FrozenNetwork("toy-1", Counting)
    features(frozen, gallery, 6, tmp_path)
    path = sorted(tmp_path.rglob("*.safetensors"))[0]
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(BadFeatures, match="delete it"):
        features(frozen, gallery, 6, tmp_path)


def test_damaged_picture_stops_the_cache_or_leaves_a_row_without_numbers(gallery, tmp_path):
    def encoded(i):
        return b"no picture" if i == 5 else gallery.encoded(i)

    broken = Gallery("broken", encoded, gallery.places, gallery.labels, gallery.tested)
    frozen = FrozenNetwork("toy-1", Counting)
    with pytest.raises(BadPicture, match="picture 5 of broken"):
        features(frozen, broken, 6, tmp_path)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1, "the chunk before it is kept, nothing half-written"
    found = features(frozen, broken, 6, tmp_path, skip_bad=True)
    assert found.isnan().any(-1).nonzero().flatten().tolist() == [5]
    torch.testing.assert_close(found[6, 0] * 255, torch.tensor(6.0))
