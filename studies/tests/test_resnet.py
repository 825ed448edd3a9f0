"""Residual networks: torchvision's names, the published stride, checkpoints that must fit, norm layers that stay."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import posterity as pt
from posterity.errors import BadCheckpoint, BadData, NoDataSet
from posterity_studies.shared.resnet import (
    ResNet,
    frozen_norms,
    imagenet_resnet50,
    load_weights,
    normalised,
    read_weights,
    resnet18,
    resnet50,
)

WEIGHTS = "resnet50_imagenet/resnet50_imagenet_fp16.npz"


def small(classes=4):
    torch.manual_seed(0)
    return ResNet("basic", (1, 1), classes, stride_in_1x1=False)


def test_networks_have_the_published_sizes_and_torchvisions_names():
    with torch.device("meta"):
        counts = [sum(p.numel() for p in model.parameters()) for model in (resnet18(), resnet50())]
        names = resnet50().state_dict()
    assert counts == [11_689_512, 25_557_032]
    assert {"conv1.weight", "bn1.running_var", "layer1.0.downsample.0.weight", "layer4.2.conv3.weight"} <= set(names)
    assert len([name for name in names if not name.endswith("num_batches_tracked")]) == 267


def test_the_published_stride_is_in_the_first_convolution():
    with torch.device("meta"):
        first, later = resnet50(stride_in_1x1=True).layer2[0], resnet50().layer2[0]
    assert (first.conv1.stride, first.conv2.stride) == ((2, 2), (1, 1))
    assert (later.conv1.stride, later.conv2.stride) == ((1, 1), (2, 2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("fc.bias"), '"fc.bias" is missing'),
        (lambda s: s.update(extra=torch.zeros(1)), '"extra" is not in the network'),
        (lambda s: s.update({"fc.weight": torch.zeros(7, 128)}), "7×128 in the checkpoint and 4×128 in the network"),
        (lambda s: s["bn1.weight"].fill_(float("nan")), "not finite"),
    ],
    ids=["missing", "unexpected", "shape", "nan"],
)
def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(change, said):
    model = small()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    state = {name: x + 1 for name, x in before.items()}
    change(state)
    with pytest.raises(BadCheckpoint, match=said):
        load_weights(model, state)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_a_checkpoint_file_is_read_by_name(tmp_path):
    np.savez(tmp_path / "w.npz", **{"fc.bias": np.ones(3, np.float16)})
    assert torch.equal(read_weights(tmp_path / "w.npz")["fc.bias"], torch.ones(3))
    (tmp_path / "w.npz").write_bytes(b"no archive")
    with pytest.raises(NoDataSet, match="Get it again"):
        read_weights(tmp_path / "w.npz")


@pytest.mark.parametrize("shape", [(2, 1, 64, 64), (2, 3, 16, 64), (3, 64, 64)])
def test_images_of_another_form_are_refused_by_name(shape):
    with pytest.raises(BadData, match="3, height, width"):
        small()(torch.zeros(shape))


def test_frozen_norms_stay_as_they_are_in_training():
    model = frozen_norms(small())
    x, y = torch.randn(8, 3, 32, 32), torch.arange(8) % 4
    before = {name: t.clone() for name, t in model.state_dict().items() if "bn" in name}
    assert not [name for name in pt.blocks.find_blocks(model) if "bn" in name]
    pt.train(model, (x, y), pt.isotropic(model, 1.0), validation=None, epochs=1, batch_size=4, progress=False)
    assert all(torch.equal(model.state_dict()[name], t) for name, t in before.items())


def test_stages_one_after_the_other_are_the_network():
    model = small().eval()
    x = torch.randn(2, 3, 32, 32)
    middle = model.get_submodule("layer1")(model.stem(x))
    assert torch.equal(model.head(model.after_stage(middle, 1)), model(x))


@pytest.mark.skipif(
    not (Path(os.environ.get("POSTERITY_DATA", "")) / WEIGHTS).is_file(),
    reason="POSTERITY_DATA has no ResNet-50 weights",
)
def test_imagenet_weights_load_and_a_new_head_is_at_zero():
    model = imagenet_resnet50(10)
    assert not model.training
    assert bool((model.conv1.weight.abs() > 0.1).any())
    with torch.no_grad():
        assert torch.equal(model(normalised(torch.rand(1, 3, 64, 64))), torch.zeros(1, 10))
