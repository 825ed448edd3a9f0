"""LeNet-5, the paper's small network: what `posterity certify` knows by name."""

from __future__ import annotations

from torch import nn


def lenet5(classes: int = 10, channels: int = 1, size: int = 28) -> nn.Sequential:
    """LeNet-5 for images as the paper has it, with ReLU and max-pooling: 61,706 parameters for ten classes of 1×28×28."""
    left = (size // 2 - 4) // 2
    if left < 1:
        raise ValueError(f"LeNet-5 takes images of 12 pixels or more on a side, not {size}")
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * left**2, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
