"""Small networks: what a CPU trains in seconds."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


def convolutions(classes: int) -> nn.Sequential:
    """Two convolutions and two linear layers for 28 × 28 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=2), nn.ReLU(), nn.Conv2d(6, 12, 5, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(192, 40), nn.ReLU(), nn.Linear(40, classes),
    )  # fmt: skip


def mlp(inputs: int, classes: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))


def normed(classes: int) -> nn.Sequential:
    """Three convolutions with norm layers, the second and third around a shortcut, for 32 × 32 colours."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Residual(16, 32, 2), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip


def residual(classes: int, depth: int = 3) -> nn.Sequential:
    """ResNet-20 for 32 × 32 colours (He et al., 2016)."""
    blocks: list[nn.Module] = []
    inp = 16
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        for k in range(depth):
            blocks.append(Residual(inp, width, stride if k == 0 else 1))
            inp = width
    first = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


class Residual(nn.Module):
    """Two convolutions with norm layers around a shortcut."""

    def __init__(self, inp: int, out: int, stride: int) -> None:
        super().__init__()
        self.first, self.one = nn.Conv2d(inp, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.second, self.other = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Sequential()
        if inp != out or stride != 1:
            self.short = nn.Sequential(nn.Conv2d(inp, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """The same number of images."""
        inner = relu(self.one(self.first(x)))
        return relu(self.other(self.second(inner)) + self.short(x))
