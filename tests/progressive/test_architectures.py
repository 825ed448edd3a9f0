"""Columns of all kinds of networks: LeNet-5, a ResNet with laterals at its downsampling convolutions, a transformer encoder."""

from __future__ import annotations

import pytest
import torch
from made import dice
from torch import Tensor, nn

from posterity import BPNN, KFAC, Gaussian, Scales, Task, isotropic
from posterity.blocks import find_blocks
from posterity.errors import BadLateral
from posterity.lenet import lenet5
from posterity_studies.shared.continual import PNN

QUICK = {"epochs": 2, "lr": 1e-3, "batch_size": 8}


class Residual(nn.Module):
    """A basic block of a ResNet that halves the image."""

    def __init__(self, inp: int, out: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inp, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = nn.Sequential(nn.Conv2d(inp, out, 1, 2, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = (
            nn.Conv2d(3, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
        )
        self.layer1, self.layer2 = Residual(4, 6), Residual(6, 8)
        self.fc = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.mean((2, 3)))


class Encoder(nn.Module):
    """A small transformer encoder over tokens."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.encoder(self.embed(x)).mean(1))


def case(name: str) -> tuple[nn.Module, list[str], str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        match name:
            case "lenet5":
                return lenet5(), ["3", "7", "9"], "11", torch.rand(16, 1, 28, 28)
            case "resnet":
                return ResNet(), ["*.downsample.0"], "fc", torch.randn(16, 3, 8, 8)
            case "transformer":
                return (
                    Encoder(),
                    ["encoder.layers.*.linear1", "encoder.layers.*.linear2"],
                    "fc",
                    torch.randint(11, (16, 5)),
                )
    raise AssertionError(name)


def tasks(x: Tensor) -> list[Task]:
    return [
        Task(f"{k}", (x, torch.arange(16) % (2 + k)), None, (x, torch.arange(16) % (2 + k)), 2 + k) for k in range(3)
    ]


@pytest.mark.parametrize("name", ["lenet5", "resnet", "transformer"])
def test_three_columns_learn_predict_and_stay_as_they_are(name: str) -> None:
    model, laterals, head, x = case(name)
    prior = isotropic(model, 10.0, "model")
    learner = BPNN(model, prior, laterals, head, estimator=KFAC(), training=QUICK, samples=4, scales="evidence")
    before: dict[str, Tensor] = {}
    for task in tasks(x):
        learned = learner.learn(task, progress=False)
        for old, probs in before.items():
            assert torch.equal(learner.predict(x, old, generator=dice(1)).probs, probs)
        before[task.name] = learner.predict(x, task.name, generator=dice(1)).probs
        assert before[task.name].shape == (16, task.classes)
    assert sum(block.startswith("laterals.2.1") for block in learned.posterior.blocks) == len(
        learner.architecture.laterals
    )


@pytest.mark.parametrize("name", ["lenet5", "resnet", "transformer"])
def test_laterals_change_what_a_column_says(name: str) -> None:
    model, laterals, head, x = case(name)
    with_laterals = PNN(model, laterals, head, training=QUICK)
    for task in tasks(x)[:2]:
        with_laterals.learn(task, progress=False)
    network = with_laterals.network("1").eval()
    with torch.no_grad():
        before = network(x)
        for p in network.laterals.parameters():
            p.add_(0.5)
        assert not torch.allclose(network(x), before)


def test_lenet5_of_the_paper_has_its_laterals_where_the_paper_has_them() -> None:
    learner = PNN(lenet5(), ["3", "7", "9"], "11", training=QUICK)
    x = torch.rand(16, 1, 28, 28)
    learner.learn(Task("a", (x, torch.arange(16) % 10), None, None, 10), progress=False)
    learner.learn(Task("b", (x, torch.arange(16) % 10), None, None, 10), progress=False)
    assert learner.parameters == {"a": 61_706, "b": 61_706 + (16 * 151 + 120 * 401 + 84 * 121)}
    assert learner.bytes["a"] == 4 * 61_706


def test_batch_statistics_stay_at_the_models_in_a_bayesian_column() -> None:
    model, laterals, head, x = case("resnet")
    prior = isotropic(model, 10.0, "model")
    learner = BPNN(model, prior, laterals, head, estimator=KFAC(), training=QUICK, samples=2, scales=Scales())
    learned = learner.learn(tasks(x)[0], progress=False)
    for (name, before), (_, after) in zip(model.named_buffers(), learned.column.module.named_buffers(), strict=True):
        assert torch.equal(before, after), name
    plain = PNN(model, laterals, head, training=QUICK)
    moved = plain.learn(tasks(x)[0], progress=False).column.module
    assert not torch.equal(moved.bn1.running_mean, model.bn1.running_mean)


def test_frozen_parts_are_shared_by_all_columns_and_not_copied() -> None:
    model, laterals, head, x = case("resnet")
    for part in (model.conv1, model.bn1):
        part.requires_grad_(False)
    flat = isotropic(model, 10.0, "model")
    learner = BPNN(model, flat, laterals, head, estimator=KFAC(), training=QUICK, samples=2, scales=Scales())
    for task in tasks(x)[:2]:
        learner.learn(task, progress=False)
    assert all(one.column.module.conv1 is model.conv1 for one in learner.learned)
    assert "columns.0.conv1" not in learner.posterior("0").blocks
    everything = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in model.fc.parameters())
    assert learner.parameters["0"] == everything - 4 * 27 - 8 + 8 * 2 + 2


def test_a_backbone_runs_once_for_all_columns() -> None:
    calls = []
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())
    backbone.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        features = backbone(torch.zeros(1, 3, 8, 8)).shape[1]
    calls.clear()
    model = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    learner = PNN(model, ["2"], "4", backbone=backbone, training=QUICK)
    x = torch.randn(16, 3, 8, 8)
    before = {name: p.clone() for name, p in backbone.named_parameters()}
    for task in tasks(x):
        learner.learn(task, progress=False)
    calls.clear()
    learner.predict(x, "2")
    assert len(calls) == 1
    assert all(torch.equal(before[name], p) for name, p in backbone.named_parameters())
    assert learner.parameters["0"] == sum(p.numel() for p in model.parameters())


def test_the_projections_of_attention_cannot_have_laterals() -> None:
    with pytest.raises(BadLateral, match="not a weighted layer with one tensor for input"):
        PNN(Encoder(), ["encoder.layers.0.self_attn"], "fc")
    with pytest.raises(BadLateral):
        PNN(Encoder(), ["encoder.layers.0.self_attn.out_proj"], "fc")


def test_every_trainable_layer_of_a_column_needs_a_prior() -> None:
    model, laterals, head, _ = case("resnet")
    flat: Gaussian = isotropic(model, 1.0, "model", blocks=lambda name, module: not isinstance(module, nn.BatchNorm2d))
    with pytest.raises(Exception, match="can be frozen instead"):
        BPNN(model, flat, laterals, head)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(False)
    assert set(BPNN(model, flat, laterals, head).prior.blocks) == set(find_blocks(model))
