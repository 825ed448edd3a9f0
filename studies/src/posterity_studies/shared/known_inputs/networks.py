"""Small networks of four kinds, plain training, and what their layers are given."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy, relu

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
LAST = 3
"""Layers before the outputs whose inputs are kept, beside the input itself."""
WIDEST = 2000
"""An input of more numbers is averaged over 2 × 2 pixels."""


class Residual(nn.Module):
    """Two 3 × 3 convolutions with batch norms beside a shortcut."""

    def __init__(self, inp: int, out: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(inp, out, 3, stride, 1, bias=False),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.shortcut = nn.Identity() if inp == out and stride == 1 else nn.Conv2d(inp, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return relu(self.norms[1](self.second(relu(self.norms[0](self.first(x))))) + self.shortcut(x))


def network(kind: str, example: Tensor, classes: int) -> nn.Sequential:
    """An untrained network for inputs like the example."""
    match kind:
        case "images":
            body: list[nn.Module] = [
                nn.Conv2d(1, 6, 5, stride=2),
                nn.ReLU(),
                nn.Conv2d(6, 12, 5, stride=2),
                nn.ReLU(),
                nn.Flatten(),
            ]
            hidden = [40]
        case "digits":
            body = [
                nn.Conv2d(1, 8, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(8, 16, 3, padding=1),
                nn.ReLU(),
                nn.Flatten(),
            ]
            hidden = [64]
        case "residual":
            stages = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)]
            body = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
            hidden = []
        case "windows":
            widths = [len(example), 24, 32, 48]
            body = []
            for inp, out in itertools.pairwise(widths):
                body += [nn.Conv1d(inp, out, 5, stride=2, padding=2), nn.ReLU()]
            body, hidden = [*body, nn.AdaptiveAvgPool1d(2), nn.Flatten()], [48]
        case _:
            body, hidden = [], [64, 64]
    with torch.no_grad():
        width = nn.Sequential(*body).eval()(example[None]).shape[1]
    for size in hidden:
        body += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*body, nn.Linear(width, classes))


def trained(kind: str, x: Tensor, y: Tensor, classes: int, seed: int, steps: int) -> nn.Sequential:
    """A network after one cycle of AdamW, batches of 64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = network(kind, x[0], classes).train()
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), 4e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    for _ in range(steps):
        batch = torch.randint(len(x), (min(64, len(x)),), generator=generator)
        optimiser.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def seen(model: nn.Module, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The input and what the last layers are given (means over positions), and the outputs."""
    layers = [module for module in model.modules() if isinstance(module, LAYERS)]
    kept: dict[int, list[Tensor]] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda _, given, i=i: kept.setdefault(i, []).append(_pooled(given[0])))
        for i, layer in enumerate(layers)
    ]
    try:
        outputs = torch.cat([model(part) for part in x.split(250)])
    finally:
        for hook in hooks:
            hook.remove()
    wide = avg_pool2d(x, 2) if x[0].numel() > WIDEST else x
    features = {"input": wide.flatten(1)}
    features |= {str(i): torch.cat(kept[i]) for i in range(1, len(layers)) if i >= len(layers) - LAST}
    return features, outputs


def _pooled(x: Tensor) -> Tensor:
    return x if x.ndim == 2 else x.flatten(2).mean(2)
