"""The networks of the studies."""

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


def convnet(classes: int = 10) -> nn.Sequential:
    """Two wider convolutions and one hidden layer for 1×28×28 images: 215,370 parameters with ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1568, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )
