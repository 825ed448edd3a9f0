"""Which layers become blocks, and which are refused by name."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from posterity.blocks import find_blocks
from posterity.errors import NoBlocks, UnsupportedLayer


class Scaled(nn.Module):
    """A layer of somebody's own with a bare parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


class Odd(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return super().forward(input).square()


class Plain(nn.Linear):
    """A subclass that computes what its parent does."""


def network() -> nn.Module:
    return nn.ModuleDict(
        {
            "conv1": nn.Conv2d(1, 2, 3),
            "conv2": nn.Conv2d(2, 2, 3),
            "tower": nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 3)),
            "attention": nn.MultiheadAttention(4, 2),
            "head": Plain(3, 2),
        }
    )


EVERY = ["conv1", "conv2", "tower.0", "tower.1", "tower.3", "attention.in_proj", "attention.out_proj", "head"]


def named(value):
    """An id that is the same in every process: a function's own has its address in it."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


@pytest.mark.parametrize(
    ("select", "names"),
    [
        (None, EVERY),
        ("conv1", ["conv1"]),
        ("conv?", ["conv1", "conv2"]),
        ("tower.*", ["tower.0", "tower.1", "tower.3"]),
        ("*", EVERY),
        ("attention", ["attention.in_proj", "attention.out_proj"]),
        ("attention.in_proj", ["attention.in_proj"]),
        (nn.Linear, ["tower.0", "tower.3", "attention.out_proj", "head"]),
        (nn.MultiheadAttention, ["attention.in_proj", "attention.out_proj"]),
        (Plain, ["head"]),
        (lambda name, module: "2" in name, ["conv2"]),
        (lambda name, module: isinstance(module, nn.LayerNorm), ["tower.1"]),
        (["head", nn.Conv2d], ["conv1", "conv2", "head"]),
        (("head", lambda name, module: name.endswith("in_proj")), ["attention.in_proj", "head"]),
    ],
    ids=named,
)
def test_blocks_are_selected_by_name_type_and_predicate_in_the_networks_order(select, names):
    assert list(find_blocks(network(), select)) == names


@pytest.mark.parametrize(
    "select", ["conv", "Conv1", nn.Embedding, lambda name, module: False, [], ["no", "none"]], ids=named
)
def test_a_selection_that_matches_nothing_is_refused(select):
    with pytest.raises(NoBlocks, match=r"selection .*trainable layers are .*'conv1'.*'head'"):
        find_blocks(network(), select)


def test_a_network_without_trainable_layers_has_no_blocks():
    with pytest.raises(NoBlocks, match=r"no block found: .*\[\]"):
        find_blocks(nn.Sequential(nn.ReLU()))
    with pytest.raises(NoBlocks):
        find_blocks(network().requires_grad_(False))


def test_a_frozen_layer_is_no_block():
    model = network()
    model["conv2"].requires_grad_(False)
    model["tower"].requires_grad_(False)
    assert list(find_blocks(model)) == ["conv1", "attention.in_proj", "attention.out_proj", "head"]


def test_a_frozen_weight_with_a_trainable_bias_is_refused():
    model = network()
    model["head"].weight.requires_grad_(False)
    with pytest.raises(UnsupportedLayer, match=r'"head" \(Plain: its weight is frozen and its bias is not\)'):
        find_blocks(model)
    assert "head" not in find_blocks(model, "conv*")


REFUSED = {
    "up": (nn.ConvTranspose2d(2, 2, 2), "no known matrix form"),
    "memory": (nn.LSTM(2, 2), "no known matrix form"),
    "slope": (nn.PReLU(), "no known matrix form"),
    "scaled": (Scaled(), "no known matrix form"),
    "odd": (Odd(2, 2), "no known matrix form"),
    "bilinear": (nn.Bilinear(2, 2, 2), "no known matrix form"),
    "bag": (nn.EmbeddingBag(3, 2), "no known matrix form"),
    "renormed": (nn.Embedding(3, 2, max_norm=1.0), "max_norm changes its weight"),
    "batch": (nn.BatchNorm1d(2, track_running_stats=False), "normalises by the batch"),
    "lazy": (nn.LazyLinear(2), "its size is not known"),
    "normed": (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), "parametrized"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_that_cannot_become_a_matrix_is_refused_with_its_reason(name):
    layer, reason = REFUSED[name]
    with pytest.raises(UnsupportedLayer, match=rf'(?i)"layer.*\({type(layer).__name__}.*{reason}'):
        find_blocks(nn.ModuleDict({"layer": layer}))


def test_all_refused_layers_are_listed_with_the_remedy():
    layers = {name: layer for name, (layer, _) in REFUSED.items() if name != "normed"}
    model = nn.ModuleDict({"good": nn.Linear(2, 2)} | layers)
    with pytest.raises(UnsupportedLayer, match="freeze") as caught:
        find_blocks(model)
    message = str(caught.value)
    assert message.startswith(f"{len(layers)} layer(s)")
    assert all(f'"{name}" ({type(layer).__name__}' in message for name, layer in layers.items())
    assert '"good"' not in message
    assert "blocks=" in message


def test_refused_layers_can_be_left_out_or_frozen():
    layers = {
        name: layer for name, (layer, _) in REFUSED.items() if name != "lazy"
    }  # torch cannot freeze what has no size
    model = nn.ModuleDict({"good": nn.Linear(2, 2)} | layers)
    assert list(find_blocks(model, "good")) == ["good"]
    assert list(find_blocks(model, lambda name, module: name not in layers and "." not in name)) == ["good"]
    for layer in layers.values():
        layer.requires_grad_(False)
    try:
        assert list(find_blocks(model)) == ["good"]
    finally:
        for layer in layers.values():
            layer.requires_grad_(True)


def test_blocks_tell_which_parameters_they_are_made_of():
    blocks = find_blocks(network())
    assert blocks["tower.1"].parameters == {"weight": "tower.1.weight", "bias": "tower.1.bias"}
    assert blocks["attention.in_proj"].parameters == {
        "weight": "attention.in_proj_weight",
        "bias": "attention.in_proj_bias",
    }
    assert blocks["attention.out_proj"].parameters["weight"] == "attention.out_proj.weight"
    assert blocks["conv2"].shape == (2, 19)
