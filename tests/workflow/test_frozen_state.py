"""Norm statistics and frozen weights travel with a Gaussian, and another network is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.errors import FrozenMismatch
from posterity.gaussian import frozen


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5, affine=False), nn.Tanh(), nn.Linear(5, 2)).double()


def data(seed: int = 1, n: int = 24):
    x = 2 + torch.randn(n, 3, generator=torch.Generator().manual_seed(seed)).double()
    return x, (x[:, 0] > 2).long()


@pytest.fixture(scope="module")
def source() -> pt.Fit:
    return pt.learn(network(), data(), classes=["a", "b"], progress=False, training={"epochs": 20})


def test_a_file_restores_norm_statistics_and_predictions(source, tmp_path):
    x, _ = data(5)
    source.posterior.save(tmp_path / "prior.safetensors")
    loaded, other = pt.load(tmp_path / "prior.safetensors"), network(3)
    assert {name: x.dtype for name, x in loaded.frozen.tensors.items()} == {
        "1.running_mean": torch.float64,
        "1.running_var": torch.float64,
    }
    with pytest.raises(FrozenMismatch, match=r"1\.running_mean.*write_to"):
        pt.predict(other, loaded, x)
    loaded.write_to(other)
    assert torch.equal(other[1].running_var, source.model[1].running_var)
    wanted = pt.predict(source.model, source.posterior, x, generator=torch.Generator().manual_seed(0))
    found = pt.predict(other, loaded, x, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.probs, wanted.probs, rtol=0, atol=1e-12)


def test_learning_and_adapting_refuse_other_statistics(source):
    prior, task = source.posterior, data(7)
    for verb in (
        lambda m: pt.learn(m, task, prior, classes=["a", "b"], progress=False),
        lambda m: pt.adapt(m, task, prior, classes=["a", "b"], progress=False),
    ):
        other = network(3)
        before = [p.clone() for p in other.parameters()]
        with pytest.raises(FrozenMismatch, match="running_mean"):
            verb(other)
        assert all(torch.equal(a, b) for a, b in zip(before, other.parameters(), strict=True))
    prior.write_to(other)
    assert pt.adapt(other, task, prior, classes=["a", "b"], progress=False).predict(task[0]).probs.shape == (24, 2)


def test_a_fit_predicts_the_same_after_its_network_has_moved(source):
    model = network(3)
    source.posterior.write_to(model)
    fit = pt.adapt(model, data(7), source.posterior, classes=["a", "b"], progress=False)
    before = fit.predict(data(8)[0]).probs
    model[1].running_mean += 0.1
    model[0].weight.data.zero_()
    assert torch.equal(fit.predict(data(8)[0]).probs, before)


def test_another_precision_is_no_difference_and_counters_are_none(source):
    model = network(3)
    source.posterior.write_to(model)
    model[1].num_batches_tracked += 5
    pt.predict(model.float(), source.posterior, data(8)[0].float())
    with torch.no_grad():
        model[1].running_mean[0] *= 1.01
    with pytest.raises(FrozenMismatch):
        pt.predict(model, source.posterior, data(8)[0].float())


def test_frozen_weights_are_carried_up_to_a_size_and_told_apart_beyond_it(monkeypatch, tmp_path):
    model = network()
    small = pt.isotropic(model, mean="model", blocks=["3"])
    assert {"0.weight", "0.bias", "1.running_mean"} <= set(small.frozen.tensors)
    monkeypatch.setattr(frozen, "CARRIED", 100)
    large = pt.isotropic(model, mean="model", blocks=["3"])
    assert set(large.frozen.tensors) == {"1.running_mean", "1.running_var"}
    large.save(tmp_path / "a.safetensors")
    again = pt.load(tmp_path / "a.safetensors")
    assert again.frozen.digests == large.frozen.digests
    assert set(again.frozen.digests) == {"0.weight", "0.bias"}
    pt.predict(model, again, data()[0])
    with pytest.raises(FrozenMismatch, match=r"0\.weight.*too large to carry"):
        pt.predict(network(3), again, data()[0])
    model[3].weight.data += 1  # a block's own weights are no frozen state
    pt.predict(model, again, data()[0])


def test_masks_and_plain_tensors_are_carried_and_a_network_without_them_is_refused(tmp_path):
    model, bare = network(), network()
    model.register_buffer("mask", torch.tensor([True, False]))
    model.scale = torch.tensor([2, 3])
    prior = pt.isotropic(model, mean="model")
    prior.save(tmp_path / "a.safetensors")
    again = pt.load(tmp_path / "a.safetensors")
    assert torch.equal(again.frozen.tensors["mask"], model.mask)
    before = bare[0].weight.clone()
    with pytest.raises(FrozenMismatch, match="mask"):
        again.write_to(bare)
    assert torch.equal(bare[0].weight, before)
    model.scale += 1
    again.write_to(model)
    assert model.scale.tolist() == [2, 3]
