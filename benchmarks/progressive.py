"""Training column t of a Bayesian progressive network, beside t forwards and one backward of a single column."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import Case, Jobs, Row, measured
from benchmarks.networks import ResNet
from posterity import BPNN, Categorical, Gaussian, Scales, isotropic
from posterity.algebra import Kronecker, Matrix, ScaledIdentity
from posterity.progressive import Learned, Network
from posterity.studies.networks import lenet5


@dataclass(frozen=True)
class Workload:
    """An architecture, where its laterals are, and the batch it is trained on."""

    network: str
    laterals: tuple[str, ...]
    batch: int
    batches: int

    def make(self) -> tuple[nn.Module, Tensor, Tensor]:
        """The network of a column, and a batch."""
        torch.manual_seed(0)
        y = torch.randint(10, (self.batch,))
        if self.network == "lenet5":
            return lenet5(), torch.rand(self.batch, 1, 28, 28), y
        return ResNet("basic", (1, 1, 1, 1), 10, stride_in_1x1=False), torch.randn(self.batch, 3, 64, 64), y


LENET5 = Workload("lenet5", ("3", "7", "9"), 256, 8)
RESNET = Workload("resnet10", ("layer*.0.downsample.0",), 64, 2)


def learner(load: Workload, columns: int) -> BPNN:
    """A learner with as many columns as said, never trained: what they know does not matter to what they cost."""
    model, _, _ = load.make()
    made = BPNN(model, isotropic(model, 1.0, "model"), load.laterals, scaling=Scales())
    for t in range(columns):
        column = made.architecture.grow([one.column for one in made.learned], 10, t)
        network = Network([*(one.column for one in made.learned), column], made.architecture.laterals, past=t)
        flat = isotropic(network, 1e4, "model")
        posterior = Gaussian(flat.mean, {name: _pair(matrix) for name, matrix in flat.precision.items()})
        made.adopt(Learned(f"{t}", Categorical(), 10, column, flat, posterior, 0.0))
    return made


def _pair(matrix: Matrix) -> Matrix:
    """A Kronecker pair as curvature leaves it, for layers that have one."""
    out, inp = matrix.shape
    if inp <= 2 or not isinstance(matrix, ScaledIdentity):
        return matrix
    scale = float(matrix.scale) ** 0.5
    return Kronecker(*(scale * torch.eye(n, dtype=torch.float64) for n in (out, inp)))


def jobs(load: Workload, t: int) -> Jobs:
    """Batches of column t, earlier columns drawn for each, beside t forwards and a backward of one column for each."""
    model, x, y = load.make()
    made = learner(load, t - 1)
    column = made.architecture.grow([one.column for one in made.learned], 10, t)
    network = made._in_training(column, seed=0).train()
    model.eval()

    def plain() -> None:
        for _ in range(load.batches):
            with torch.no_grad():
                for _ in range(t - 1):
                    model(x)
            cross_entropy(model(x), y).backward()

    def column_t() -> None:
        for _ in range(load.batches):
            cross_entropy(network(x), y).backward()

    return Jobs(plain, column_t, lambda: cross_entropy(network(x[:2]), y[:2]).backward())


def lateral_share(load: Workload) -> float:
    """Multiplications of a full set of lateral layers from one column, in forwards of a column."""
    model, x, _ = load.make()
    made = BPNN(model, isotropic(model, 1.0, "model"), load.laterals, scaling=Scales())
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

    def measure(self) -> list[Row]:
        share = lateral_share(self.load)
        # A lateral from each earlier column into each later one, all of which run: t(t−1)/2 sets of them.
        inherent = (self.t + 2 + self.t * (self.t - 1) / 2 * share + 2 * (self.t - 1) * share) / (self.t + 2)
        row = Row(
            "posterity", f"column {self.t}", self.load.network, self.load.batches * self.load.batch, self.load.batch,
            target_ratio=1.0, detail=f"{inherent:.2f}× by counting the multiplications of laterals",
        )  # fmt: skip
        return [measured(row, partial(jobs, self.load, self.t), repeats=self.repeats, cpu_limit=900)]


def cases(*, quick: bool = False) -> list[Case]:
    """All lines of the table, in their order."""
    counts = (1, 2) if quick else (1, 2, 3, 5, 10)
    loads = (LENET5,) if quick else (LENET5, RESNET)
    lines = [Line(load, t, 1 if quick else 3) for load in loads for t in counts]
    return [Case(f"progressive {line.load.network} column {line.t}", line.measure) for line in lines]
