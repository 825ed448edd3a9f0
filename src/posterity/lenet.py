"""LeNet-5, the paper's small network: what `posterity certify` knows by name."""

from __future__ import annotations

from torch import nn


def lenet5(classes: int = 10) -> nn.Sequential:
    """LeNet-5 for 1×28×28 images as the paper has it, with ReLU and max-pooling: 61,706 parameters with ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
