"""What the walks begin with, the same for both libraries: folders of images, trained networks, a table.

`make(folder, seed)` writes all of it once, from the data root (`POSTERITY_DATA`); another seed takes other images, sentences and
rows, and other networks. Each script of a walk then runs in that folder.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Pair = tuple[Tensor, Tensor]
tuning = sys.argv[1] if len(sys.argv) > 1 else "marglik"
"""How laplace-torch chooses the precision of its prior: by marginal likelihood, or by a grid search on held-out data."""


class Residual(nn.Module):
    """Two convolutions with batch norm, as in torchvision's ResNets."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        inside = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inside + self.downsample(x))


class SmallResNet(nn.Module):
    """A ResNet with torchvision's names (conv1, bn1, layer1 …, fc), small enough for a laptop."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = Residual(16, 16, 1)
        self.layer2 = Residual(16, 32, 2)
        self.layer3 = Residual(32, 64, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.avgpool(self.layer3(self.layer2(self.layer1(x)))).flatten(1)
        out: Tensor = self.fc(x)
        return out


def trained() -> tuple[nn.Module, Pair, Pair, Pair]:
    """A trained ResNet in evaluation mode, its training images, 200 that it has not seen, and 300 to test with."""
    model = SmallResNet()
    model.load_state_dict(torch.load("resnet.pt", weights_only=True))
    found = np.load("images.npz")
    x, y = torch.from_numpy(found["x"]), torch.from_numpy(found["y"])
    return model.eval(), (x[:1000], y[:1000]), (x[1000:1200], y[1000:1200]), (x[1200:], y[1200:])


def bert() -> tuple[Any, list[dict[str, Tensor]], dict[str, Tensor]]:
    """A trained BERT in evaluation mode, its training batches, and all test sentences as one batch."""
    from transformers import BertConfig, BertForSequenceClassification

    size: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    size |= {"vocab_size": 200, "num_labels": 2}
    model = BertForSequenceClassification(BertConfig(**size))
    if os.path.exists("bert.pt"):
        model.load_state_dict(torch.load("bert.pt", weights_only=True))
    train, test = torch.load("sentences.pt", weights_only=True)
    return model.eval(), [{k: v[i : i + 32] for k, v in train.items()} for i in range(0, 256, 32)], test


def sentences(count: int, seed: int) -> dict[str, Tensor]:
    """Sentences of random words: positive if more than half of the words are good ones; one label in ten is wrong."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 200, (count, 12), generator=generator)
    wrong = torch.rand(count, generator=generator) < 0.1
    labels = ((ids >= 100).float().mean(1) > 0.5) ^ wrong
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels.long()}


def report(**found: Any) -> None:
    """The last line that a script prints: what the job gave."""
    print(json.dumps({name: round(float(value), 4) for name, value in found.items()}))


def scores(probs: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy and mean NLL of a classifier, the same code for both libraries."""
    picked = probs.detach().double().gather(1, labels[:, None]).clamp_min(1e-12)
    right = (probs.argmax(1) == labels).double().mean()
    return {"accuracy": float(right), "nll": float(-picked.log().mean())}


def _train(model: nn.Module, step: Any, epochs: int) -> None:
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    model.train()
    for _ in range(epochs):
        for loss in step():
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.eval()


def make(folder: Path, seed: int) -> None:
    """Write everything of one seed."""
    from PIL import Image

    from posterity.idx import images

    folder.mkdir(parents=True)
    os.chdir(folder)
    draw = np.random.default_rng(seed)
    root = Path(os.environ["POSTERITY_DATA"])
    for name, where, each, names in (("mnist", "digits", 150, "0123456789"), ("notmnist", "letters", 60, "ABCDEFGHIJ")):
        x, y = images(name).train
        for number, label in enumerate(names):
            inside = Path(where) / label
            inside.mkdir(parents=True)
            for i, k in enumerate((y == number).nonzero()[seed * each : (seed + 1) * each, 0].tolist()):
                Image.fromarray((255 * x[k, 0]).byte().numpy()).save(inside / f"{i}.png")
    table = np.load(root / "uci" / "yacht.npz")["data"]  # the last column is the target
    rows = table[draw.permutation(len(table))]
    for where, part in (("yacht-train.csv", rows[:200]), ("yacht-test.csv", rows[200:])):
        with open(where, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[*(f"x{i}" for i in range(rows.shape[1] - 1)), "resistance"], *part.tolist()])
    found = np.load(root / "cifar10" / "cifar10_subset.npz")
    some = draw.permutation(len(found["x_train"]))[:1500]
    picture, label = found["x_train"][some], found["y_train"][some]
    np.savez("images.npz", x=picture.astype(np.float32).transpose(0, 3, 1, 2) / 255, y=label.astype(np.int64))
    torch.manual_seed(seed)
    network = SmallResNet()
    torch.save(network.state_dict(), "resnet.pt")
    network, (x, y), _, _ = trained()  # type: ignore[assignment]
    _train(network, lambda: (cross_entropy(network(a), b) for a, b in zip(x.split(50), y.split(50), strict=True)), 12)
    torch.save(network.state_dict(), "resnet.pt")
    torch.save((sentences(256, 2 * seed), sentences(256, 2 * seed + 1)), "sentences.pt")
    reader, batches, _ = bert()
    _train(reader, lambda: (reader(**batch).loss for batch in batches), 8)
    torch.save(reader.state_dict(), "bert.pt")
