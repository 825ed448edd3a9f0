"""Weights drawn for every example: the same distribution as drawing whole networks, and independent between examples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.blocks import find_blocks
from posterity.data.batches import Batch
from posterity.gaussian.spread import FrameSpread, Spread
from posterity.pacbayes.draws import DrawnNetwork


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, stride=2),
        nn.Tanh(),
        nn.Conv2d(4, 6, 3, groups=2, dilation=1, bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(6, 5),
        nn.Tanh(),
        nn.Linear(5, 3),
    ).double()


class Recurrent(nn.Module):
    """One layer called twice, and one that sees several rows an example."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x))))).mean(1)


def case(kind: str):
    if kind == "convolutions":
        return convolutional(), torch.randn(3, 2, 8, 8, dtype=torch.float64)[:, :, :5, :5]
    torch.manual_seed(0)
    if kind == "shared":
        return Recurrent().double(), torch.randn(3, 4, 3, dtype=torch.float64)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double(), torch.randn(3, 4, dtype=torch.float64)


def network(model, x, precision=3.0):
    y = torch.zeros(len(x), dtype=torch.int64)
    curvature = pt.estimate(model, (x, y), pt.KFAC(labels=pt.curvature.ExactLabels()), progress=False)
    posterior = pt.update(model, curvature, pt.isotropic(model, precision, mean="model"))
    blocks = find_blocks(model)
    spreads = {n: Spread.of(posterior.mean[n], posterior.precision[n]) for n in blocks}
    return DrawnNetwork(model, blocks, spreads), posterior, Batch((x,), {}, y)


@pytest.mark.parametrize("kind", ["convolutions", "shared", "linear"])
def test_outputs_have_the_moments_of_whole_networks_drawn_one_by_one(kind):
    model, x = case(kind)
    drawn, posterior, batch = network(model, x)
    assert drawn.look(batch)
    generator = torch.Generator().manual_seed(1)
    n = 6000
    each = drawn.outputs(batch, generator, repeats=n).unflatten(0, (len(x), n)).detach()
    found = pt.predict(model, posterior, x, method="sampled", samples=n, keep_draws=True, generator=generator)
    whole = found.draws.transpose(0, 1)
    for a, b in ((each, whole), (each.square(), whole.square()), (each[..., :1] * each, whole[..., :1] * whole)):
        error = (a.var(1) + b.var(1)).div(n).sqrt()
        assert ((a.mean(1) - b.mean(1)).abs() < 5 * error).all()
    assert float(each.var(1).min()) > 1e-4


@pytest.mark.parametrize("kind", ["convolutions", "shared", "linear"])
def test_examples_and_repeats_do_not_share_their_draws(kind):
    model, x = case(kind)
    drawn, _, batch = network(model, x[:1].expand_as(x).contiguous())
    drawn.look(batch)
    outputs = drawn.outputs(batch, torch.Generator().manual_seed(2), repeats=2000).detach()[:, 0].view(3, 2000)
    correlation = torch.corrcoef(outputs)
    assert (correlation - torch.eye(3, dtype=torch.float64)).abs().max() < 5 / 2000**0.5
    shifted = torch.corrcoef(torch.stack((outputs[0, :-1], outputs[0, 1:])))[0, 1]
    assert abs(float(shifted)) < 5 / 2000**0.5


def test_without_spread_the_outputs_are_the_networks_own():
    model, x = case("convolutions")
    drawn, _, batch = network(model, x, precision=1e24)
    drawn.look(batch)
    outputs = drawn.outputs(batch, repeats=2).detach()
    assert torch.allclose(outputs, model(x).repeat_interleave(2, 0), atol=1e-9)


def test_gradients_reach_means_and_deviations():
    model, x = case("convolutions")
    drawn, _, batch = network(model, x)
    drawn.look(batch)
    for name, spread in drawn.spreads.items():
        free = FrameSpread(
            spread.mean.clone().requires_grad_(), spread.left, spread.right, spread.deviation.requires_grad_()
        )
        drawn.spreads = {**drawn.spreads, name: free}
    drawn.outputs(batch).square().sum().backward()
    for spread in drawn.spreads.values():
        assert float(spread.mean.grad.abs().sum()) > 0
        assert float(spread.deviation.grad.abs().sum()) > 0


def test_networks_with_other_layers_say_that_they_must_be_drawn_as_a_whole():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 2)).double()
    posterior = pt.isotropic(model, 5.0, mean="model")
    blocks = find_blocks(model)
    drawn = DrawnNetwork(model, blocks, {n: Spread.of(posterior.mean[n], posterior.precision[n]) for n in blocks})
    batch = Batch((torch.randint(5, (3, 2)),), {}, torch.zeros(3, dtype=torch.int64))
    assert not drawn.look(batch)
    one, other = drawn.whole(batch), drawn.whole(batch)
    assert one.shape == (3, 2)
    assert not torch.equal(one, other)


def test_the_network_is_as_before_and_a_seed_repeats_the_draws():
    model, x = case("convolutions")
    drawn, _, batch = network(model, x)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    drawn.look(batch)
    one = drawn.outputs(batch, torch.Generator().manual_seed(3), repeats=2)
    assert torch.equal(one, drawn.outputs(batch, torch.Generator().manual_seed(3), repeats=2))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d((2, 2), stride=2), nn.MaxPool2d(2, ceil_mode=True)])
@pytest.mark.parametrize("side", [6, 7])
def test_pooling_between_drawn_layers_is_torchs_own(pool, side):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), pool, nn.Flatten(), nn.LazyLinear(3)).double()
    x = torch.randn(4, 1, side, side, dtype=torch.float64)
    expected = model(x)
    drawn, _, batch = network(model, x, precision=1e24)
    drawn.look(batch)
    with torch.no_grad():
        assert torch.allclose(drawn.outputs(batch), expected, atol=1e-9)
