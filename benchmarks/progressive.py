"""Training column t of a Bayesian progressive network, beside t forwards and one backward of a single column for each batch."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import Case, Jobs, Row, measured
from posterity import BPNN, Categorical, Gaussian, Scales, isotropic
from posterity.algebra import Kronecker, Matrix, ScaledIdentity
from posterity.lenet import lenet5
from posterity.progressive import LearnedTask, Network
from posterity.progressive.training import MEMORY_LIMIT
from posterity_studies.shared.resnet import ResNet


@dataclass(frozen=True)
class Workload:
    """An architecture, where its laterals are, and what it is trained on: batches, again in every epoch."""

    network: str
    laterals: tuple[str, ...]
    batch: int
    batches: int
    epochs: int

    @property
    def examples(self) -> int:
        return self.epochs * self.batches * self.batch

    def make(self) -> tuple[nn.Module, Tensor, Tensor]:
        """The network of a column, and the inputs and labels of all batches."""
        torch.manual_seed(0)
        y = torch.randint(10, (self.batches * self.batch,))
        if self.network == "lenet5":
            return lenet5(), torch.rand(self.batches * self.batch, 1, 28, 28), y
        return (
            ResNet("basic", (1, 1, 1, 1), 10, stride_in_1x1=False),
            torch.randn(self.batches * self.batch, 3, 64, 64),
            y,
        )


LENET5 = Workload("lenet5", ("3", "7", "9"), 256, 1, 100)
RESNET = Workload("resnet10", ("layer*.0.downsample.0",), 64, 1, 40)


def learner(load: Workload, columns: int) -> BPNN:
    """A learner with as many columns as said, never trained: what they know does not matter to what they cost."""
    model, _, _ = load.make()
    made = BPNN(model, isotropic(model, 1.0, "model"), load.laterals, scales=Scales())
    for t in range(columns):
        column = made.architecture.grow([one.column for one in made.learned], 10, t)
        network = Network([*(one.column for one in made.learned), column], made.architecture.laterals, past=t)
        flat = isotropic(network, 1e4, "model")
        posterior = Gaussian(flat.mean, {name: _pair(matrix) for name, matrix in flat.precision.items()})
        made.adopt(LearnedTask(f"{t}", Categorical(), 10, column, flat, posterior, 0.0))
    return made


def _pair(matrix: Matrix) -> Matrix:
    """A Kronecker pair as curvature leaves it, for layers that have one."""
    out, inp = matrix.shape
    if inp <= 2 or not isinstance(matrix, ScaledIdentity):
        return matrix
    scale = float(matrix.scale) ** 0.5
    return Kronecker(*(scale * torch.eye(n, dtype=torch.float64) for n in (out, inp)))


def jobs(load: Workload, t: int, kept: bool) -> Jobs:
    """Training of column t, from the first batch on, beside t forwards and a backward of one column for each batch.

    With `kept`, what earlier columns hand on is remembered as `BPNN` does by default; else they run for every batch.
    """
    model, x, y = load.make()
    made = learner(load, t - 1)
    column = made.architecture.grow([one.column for one in made.learned], 10, t)
    model.eval()
    order = torch.arange(len(x)).split(load.batch)

    def plain() -> None:
        for _ in range(load.epochs):
            for part in order:
                with torch.no_grad():
                    for _ in range(t - 1):
                        model(x[part])
                cross_entropy(model(x[part]), y[part]).backward()

    def column_t(epochs: int = load.epochs) -> None:
        network = made._in_training(column, seed=0).train()
        if kept and network.past and not network.remember([x], MEMORY_LIMIT):
            raise RuntimeError("there was no room")
        for _ in range(epochs):
            for part in order:
                cross_entropy(network(part if network.memory else x[part]), y[part]).backward()

    return Jobs(plain, column_t, lambda: column_t(1))


def lateral_share(load: Workload) -> float:
    """Multiplications of a full set of lateral layers from one column, in forwards of a column."""
    model, x, _ = load.make()
    made = BPNN(model, isotropic(model, 1.0, "model"), load.laterals, scales=Scales())
    counts: dict[str, int] = {}

    def count(name: str, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        positions = out.numel() // out.shape[1] if out.ndim > 2 else len(out)
        counts[name] = positions * sum(p.numel() for p in module.parameters(recurse=False))

    handles = [
        module.register_forward_hook(partial(count, name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    with torch.no_grad():
        model(x[:1])
    for handle in handles:
        handle.remove()
    return sum(counts[path] for path in made.architecture.laterals) / sum(counts.values())


@dataclass(frozen=True)
class Line:
    load: Workload
    t: int
    repeats: int
    kept: bool

    @property
    def work(self) -> str:
        return f"column {self.t}" if self.kept else f"column {self.t}, fresh draws"

    def measure(self) -> list[Row]:
        share = lateral_share(self.load)
        # A lateral from each earlier column into each later one, all of which run: t(t−1)/2 sets of them.
        inherent = (self.t + 2 + self.t * (self.t - 1) / 2 * share + 2 * (self.t - 1) * share) / (self.t + 2)
        row = Row(
            "posterity", self.work, self.load.network, self.load.examples, self.load.batch, target_ratio=1.0,
            detail=f"{inherent:.2f}× by counting the multiplications of laterals, where all columns run for every batch",
        )  # fmt: skip
        return [measured(row, partial(jobs, self.load, self.t, self.kept), repeats=self.repeats, cpu_limit=900)]


def cases(*, quick: bool = False) -> list[Case]:
    """All lines of the table, in their order."""
    counts = {LENET5: (1, 2) if quick else (1, 2, 3, 5, 10)} | ({} if quick else {RESNET: (2, 5)})
    lines = [
        Line(load, t, 3 if kept and not quick else 1, kept)
        for load, ts in counts.items()
        for kept in (True, False)
        for t in ts
        if kept or t > 1
    ]
    return [Case(f"progressive {line.load.network} {line.work}", line.measure) for line in lines]
