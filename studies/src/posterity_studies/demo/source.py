"""The nine others: a small network learns their exercises, and its posterior is the learned prior."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.blocks import find_blocks, write_blocks
from posterity_studies.engine.declaration import Arguments
from posterity_studies.shared.watch import Meeting, meet

EPOCHS, BATCH, LEARNING_RATE = 20, 128, 3e-3
STRIDE = 50
"""Samples from one training window to the next: they overlap, as the source's may."""
TURN = math.radians(14)
"""How far, by standard deviation, the watch is turned on the wrist: no two people wear it alike."""


def network(classes: int = 6, seed: int = 0) -> nn.Module:
    """Three convolutions over two seconds of six channels, and two linear layers: 32,000 weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv1d(6, 32, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(32, 48, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(48, 64, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )


def at_mean(prior: pt.Gaussian) -> nn.Module:
    """The network with the prior's mean for weights: what the nine left behind."""
    model = network(len(prior.card.classes))
    model.load_state_dict(write_blocks(find_blocks(model), prior.mean))
    return model.eval()


def learn_prior(meeting: Meeting, epochs: int = EPOCHS) -> pt.Gaussian:
    """Learn from everybody but the new wearer: the posterior, which is the prior for them."""
    generator = torch.Generator().manual_seed(meeting.wearer)
    data, recipe = _lesson(meeting, generator, epochs)
    model = network(len(meeting.classes), seed=meeting.wearer)
    fit = pt.learn(model, data, classes=meeting.classes, training=recipe, generator=generator, progress=False)
    return fit.posterior


def learn_network(meeting: Meeting, seed: int, epochs: int = EPOCHS) -> nn.Module:
    """The same lesson for a network without a posterior, started elsewhere: a member of the ensemble."""
    generator = torch.Generator().manual_seed(1000 * seed + meeting.wearer)
    data, recipe = _lesson(meeting, generator, epochs)
    model = network(len(meeting.classes), seed=1000 * seed + meeting.wearer)
    pt.train(model, data, pt.isotropic(model, 1.0), generator=generator, progress=False, **recipe)
    return model.eval()


def _lesson(meeting: Meeting, generator: torch.Generator, epochs: int) -> tuple[tuple[Tensor, Tensor], dict[str, Any]]:
    """Windows of watches that are turned a little on their wrists, and how to train on them.

    Every window is turned once by chance, so that the posterior knows of turned watches, and again at every step.
    """
    x, y = meeting.source(STRIDE).pair
    steps = epochs * math.ceil(len(y) / BATCH)
    recipe = {
        "augment": lambda x: turned(x, meeting, generator),
        "batch_size": BATCH,
        "epochs": epochs,
        "optimiser": one_cycle(LEARNING_RATE, steps),
        "validation": None,
        # The cycle alone says how fast to go and when to end.
        "halve_after": epochs + 1,
        "stop_after": epochs + 1,
    }
    return (turned(x, meeting, generator), y), recipe


def prior_of(folder: Path, arguments: Arguments) -> pt.Gaussian:
    """The prior of a cell, from the folder if it is there, else learned and saved."""
    wearer, unknown, epochs = arguments["wearer"], arguments["unknown"], arguments["epochs"]
    path = folder / "priors" / f"wearer-{wearer}-without-{unknown}-epochs-{epochs}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        learn_prior(meet(wearer, unknown), epochs).save(path)
    return pt.load(path)


def one_cycle(rate: float, steps: int) -> Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]:
    """Adam whose learning rate rises and falls once."""

    def made(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        optimiser = torch.optim.Adam(parameters, lr=rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps + 1)
        optimiser.register_step_post_hook(lambda *_: schedule.step())
        return optimiser

    return made


def turned(x: Tensor, meeting: Meeting, generator: torch.Generator) -> Tensor:
    """Each window as another watch would have recorded it, turned by a chance angle around a chance axis."""
    axis = torch.nn.functional.normalize(torch.randn(len(x), 3, generator=generator), dim=1)
    angle = TURN * torch.randn(len(x), 1, 1, generator=generator)
    a, b, c = axis.unbind(1)
    zero = torch.zeros_like(a)
    cross = torch.stack([zero, -c, b, c, zero, -a, -b, a, zero], 1).view(-1, 3, 3)
    # Rodrigues' formula.
    turn = torch.eye(3) + angle.sin() * cross + (1 - angle.cos()) * cross @ cross
    raw = x * meeting.deviation + meeting.mean
    both = torch.cat([turn @ raw[:, :3], turn @ raw[:, 3:]], 1)
    return (both - meeting.mean) / meeting.deviation
