"""What a column of a Bayesian progressive network costs at ResNet-50's size: set-up, a training step, memory.

Four laterals, at the downsampling convolutions, and all 54 blocks. The prior stands in for one of the right sizes, with its
eigenvectors: those are made once and kept in a file, which is a line of its own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.large import GIB, SIDE, Large, images, network, stand_in
from benchmarks.measure import Case, _peak, _reset_peak, cpu_seconds
from posterity import BPNN, Scales, Task
from posterity.laplace import PriorPenalty
from posterity.laplace.prior import refresh
from posterity.progressive.prior import column_prior, start_at
from posterity.progressive.training import prior_adam

LATERALS = "layer*.0.downsample.0"
CLASSES = 10
MEMORY = 2 << 30
TIGHT = 1e8
"""The floor of the prior: draws of the first column have to stay near its weights, or nothing finite comes out."""


@dataclass(frozen=True)
class Columns:
    """A learner with a first column, and data for the next."""

    learner: BPNN
    x: Tensor
    y: Tensor

    @classmethod
    def made(cls, batch: int) -> "Columns":
        model, (x, _) = network(), images(batch)
        y = torch.arange(batch) % CLASSES
        prior = stand_in(model, frames=True).without("fc").adjusted(1.0, TIGHT)
        training = {"epochs": 1, "stop_after": 99, "lr": 1e-5, "batch_size": batch, "validation": None}
        learner = BPNN(
            model, prior, LATERALS, "fc", scales=Scales(), frames=prior, training=training, memory_limit=MEMORY
        )
        learner.learn(Task("first", (x, y), classes=CLASSES), progress=False)
        return cls(learner, x, y)

    def set_up(self) -> list[Large]:
        """All of `learn` with one step, curvature and posterior included, and what the column holds."""
        task = Task("second", (self.x, self.y), classes=CLASSES)
        _reset_peak()
        before = _peak()
        seconds = cpu_seconds(lambda: self.learner.learn(task, progress=False))
        peak = _peak() - before
        about = f"learn with one step and {len(self.x)} images at {SIDE} px, four laterals, 54 blocks"
        held = self.learner.bytes["second"]
        parts = f"weights and one number a weight; {_gib(self.learner.bytes['first'])} GiB the first"
        return [
            Large("column, set-up", about, seconds / 60, "CPU minutes", 5.0, seconds, None, peak),
            Large("column, memory", parts, held / GIB, "GiB", 0.8, seconds, None, 0),
        ]

    def steps(self) -> list[Large]:
        """A training step of the second column beside a plain one of the same network, in turn."""
        learner, examples = self.learner, len(self.x)
        first, *_ = learner.learned
        learner.learned = (first,)
        column = learner.architecture.grow([first.column], CLASSES, 1)
        own = column_prior(learner.prior, learner.architecture, column, [first.posterior])
        net = learner._in_training(column, 0)
        start_at(net, own)
        net.train()
        numbers = torch.arange(examples) if net.remember([self.x], MEMORY) else self.x
        penalty = PriorPenalty(own, net, refresh(own))
        ours = prior_adam(net, own, 1e-5)(p for p in net.parameters() if p.requires_grad)
        plain = network()
        adam = torch.optim.Adam([p for p in plain.parameters() if p.requires_grad], 1e-5)

        def step() -> None:
            ours.zero_grad()
            cross_entropy(net(numbers), self.y).backward()
            penalty.pull(penalty.forces()[0], 1 / examples)
            ours.step()

        def plain_step() -> None:
            adam.zero_grad()
            cross_entropy(plain(self.x), self.y).backward()
            adam.step()

        # As many as it takes until every draw of the pool was made: `learn` makes them once for all its epochs.
        warm = 0.0
        for _ in range(penalty.every):
            warm += cpu_seconds(step)
        plain_step()
        pairs = [(cpu_seconds(plain_step), cpu_seconds(step)) for _ in range(penalty.every)]
        reference, seconds = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
        pool = warm - penalty.every * seconds
        detail = f"batch {examples} at {SIDE} px, each block every {penalty.every} steps, after {pool:.0f} s of draws"
        return [Large("column, step", detail, seconds / reference, "plain steps", 1.5, seconds, reference, 0)]


def _gib(n: int) -> str:
    return f"{n / GIB:.2f}"


def measured(batch: int) -> list[Large]:
    """All lines of a column."""
    made = Columns.made(batch)
    return [*made.set_up(), *made.steps()]


def cases(*, quick: bool = False) -> list[Case]:
    """One case, whose first column serves all of its lines."""
    return [Case("large column", lambda: measured(4 if quick else 16))]
