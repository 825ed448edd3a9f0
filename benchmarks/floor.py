"""How little LeNet-5's curvature could cost, and where the time goes: arithmetic and traffic counted, parts timed.

Counts are per image. A part's floor is the longer of its arithmetic at the speed of a large matrix product and its
traffic at the speed of a large copy, both measured here.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import posterity
from benchmarks.measure import Case, Job, cpu_seconds
from benchmarks.networks import LENET5, Workload, plain_epoch
from benchmarks.peers import Work
from posterity import KFAC, KFOC, Diagonal
from posterity.algebra import DiagonalMatrix, Matrix
from posterity.blocks import Block, Call
from posterity.curvature import Estimator
from posterity.curvature.base import Accumulator
from posterity.data.batches import Workers

WORKS: dict[Work, Estimator] = {"kfac-sampled": KFAC(), "kfoc-sampled": KFOC(), "diagonal-sampled": Diagonal()}
LAYERS = {"0": "conv1", "3": "conv2", "7": "fc1", "9": "fc2", "11": "fc3"}
"""LeNet-5's blocks by the names they go by in the literature."""


@dataclass(frozen=True)
class Rates:
    """What one thread of this machine does at its best."""

    flops: float
    """Of a float32 matrix product, 1024 a side; a multiply-add is two."""
    bytes: float
    """Read and written by a copy of 64 MB."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this result from others of its file."""
        return ("rates",)


@dataclass(frozen=True)
class Part:
    """A part of one pass over the workload."""

    work: str
    part: str
    layer: str
    examples: int
    multiply_adds: int
    """Per image."""
    bytes: int
    """Per image, each tensor read or written once; zero where it was not counted."""
    seconds: float
    """CPU time of all images."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this result from others of its file."""
        return "part", self.work, self.part, self.layer


def cases(*, quick: bool = False) -> list[Case]:
    """The machine's rates, a plain epoch, the pass that every estimator makes, and what each does in it."""
    load = replace(LENET5, examples=512) if quick else LENET5
    return [
        Case("floor rates", lambda: [rates()]),
        Case("floor network", partial(_network, load)),
        Case("floor patches", partial(_patches, load)),
        *(Case(f"floor {work}", partial(_parts, work, load)) for work in WORKS),
    ]


def rates() -> Rates:
    """The best of several tries."""
    x, y = torch.randn(1024, 1024), torch.randn(1024, 1024)
    source, target = torch.randn(1 << 24), torch.empty(1 << 24)
    return Rates(2 * 1024**3 / _least(lambda: x @ y, 10), 2**27 / _least(lambda: target.copy_(source), 10))


# --- the network's own work -------------------------------------------------------------------------


def _network(load: Workload) -> list[Part]:
    model, x, y = load.make()
    forward, back, traffic = _counts(model, x)
    idle = _least(lambda: _pass(_Idle(), model, x, y, load.batch))
    plain = _least(lambda: plain_epoch(model, x, y, load.batch))
    return [
        Part(
            "plain epoch",
            "forward, gradients of activations and weights",
            "all",
            len(y),
            2 * forward + back,
            3 * traffic,
            plain,
        ),
        Part("every estimator", "forward, gradients of activations", "all", len(y), forward + back, 2 * traffic, idle),
    ]


def _counts(model: nn.Module, x: Tensor) -> tuple[int, int, int]:
    """Multiply-adds forward and back to activations, and bytes of every module's input and output, for one image."""
    products: list[int] = []
    traffic = 0
    a = x[:1]
    for module in model.children():
        out = module(a)
        if isinstance(module, nn.Conv2d | nn.Linear):
            products.append(out.numel() * module.weight[0].numel())
        if not isinstance(module, nn.Flatten):
            traffic += 4 * (a.numel() + out.numel())
        a = out
    # Nothing asks for the gradient of the images: the first layer has no way back.
    return sum(products), sum(products[1:]), traffic


def _pass(estimator: Estimator, model: nn.Module, x: Tensor, y: Tensor, batch: int) -> None:
    posterity.estimate(model, (x, y), estimator, batch_size=batch, progress=False)


@dataclass(frozen=True)
class _Idle(Estimator):
    """Watches the pass and does nothing: what is left is what every estimator pays."""

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        return _Nothing(block, dtype)


class _Nothing(Accumulator):
    needs_inputs = False

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        pass

    def result(self, workers: Workers) -> Matrix:
        return DiagonalMatrix(torch.zeros(self.block.shape))


# --- input moments by patches written out -----------------------------------------------------------


def _patches(load: Workload) -> list[Part]:
    """What the row bands are instead of: unfold, and one product of all patches."""
    model, x, y = load.make()
    found: list[Part] = []
    a = x
    for name, module in model.named_children():
        if isinstance(module, nn.Conv2d):
            with torch.no_grad():
                positions = module(a[:1])[0, 0].numel()
            seconds = _least(lambda a=a, module=module: _unfolded(module, a, load.batch))  # type: ignore[misc]
            features = module.weight[0].numel()
            size = 4 * (a[0].numel() + 2 * positions * features)
            found.append(
                Part(
                    "patches", "input moments by patches", LAYERS[name], len(y), positions * features**2, size, seconds
                )
            )
        with torch.no_grad():
            a = module(a)
    return found


def _unfolded(module: nn.Conv2d, a: Tensor, batch: int) -> Tensor:
    features = module.weight[0].numel()
    total = torch.zeros(features, features, dtype=torch.float64)
    kernel, padding = (module.kernel_size[0], module.kernel_size[1]), module.padding
    assert not isinstance(padding, str)
    for piece in a.split(batch):
        rows = F.unfold(piece, kernel, padding=(padding[0], padding[1])).transpose(1, 2).reshape(-1, features)
        total += rows.T @ rows
    return total


# --- parts of our own passes ------------------------------------------------------------------------


def _parts(work: Work, load: Workload) -> list[Part]:
    model, x, y = load.make()
    estimator = WORKS[work]
    _pass(estimator, model, x[: 2 * load.batch], y[: 2 * load.batch], load.batch)
    clock = _Meter(time.process_time)
    _pass(_Metered(estimator.labels, inner=estimator, meter=clock), model, x, y, load.batch)
    with _counting() as count:
        counter = _Meter(count)
        _pass(_Metered(estimator.labels, inner=estimator, meter=counter), model, x, y, load.batch)
    traffic = _input_traffic(model, x, load.batch) if work == "kfac-sampled" else {}
    return [
        Part(
            work,
            part,
            LAYERS[layer],
            len(y),
            round(counter.total[part, layer] / 2 / len(y)),
            traffic.get((part, layer), 0),
            seconds,
        )
        for (part, layer), seconds in clock.total.items()
    ]


class _Meter:
    """Sums what a reading grows by, by part and layer."""

    def __init__(self, reading: Callable[[], float]) -> None:
        self.reading = reading
        self.total: dict[tuple[str, str], float] = defaultdict(float)

    @contextmanager
    def __call__(self, part: str, block: Block) -> Iterator[None]:
        before = self.reading()
        yield
        self.total[part, block.name] += self.reading() - before


@dataclass(frozen=True)
class _Metered(Estimator):
    """Another estimator, with its work on each block metered."""

    inner: Estimator = field(kw_only=True)
    meter: _Meter = field(kw_only=True)

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        return _Watched(self.inner.start(block, dtype), self.meter)


class _Watched(Accumulator):
    def __init__(self, inner: Accumulator, meter: _Meter) -> None:
        super().__init__(inner.block, inner.dtype)
        self.inner, self.meter = inner, meter
        self.needs_inputs, self.phases = inner.needs_inputs, inner.phases

    def see_input(self, a: Tensor) -> None:
        with self.meter("inputs", self.block):
            self.inner.see_input(a)

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        with self.meter("gradients", self.block):
            self.inner.see_gradients(calls, last)

    def next_phase(self, workers: Workers) -> None:
        self.inner.next_phase(workers)

    def result(self, workers: Workers) -> Matrix:
        with self.meter("result", self.block):
            return self.inner.result(workers)


@contextmanager
def _counting() -> Iterator[Callable[[], float]]:
    """A running count of the flops of matrix products, as torch sees them go by."""

    def in_place(total: torch.Size, a: torch.Size, b: torch.Size, **rest: object) -> int:
        return 2 * a[0] * a[1] * b[1]

    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: in_place}) as mode:
        yield lambda: float(mode.get_total_flops())


def _input_traffic(model: nn.Module, x: Tensor, batch: int) -> dict[tuple[str, str], int]:
    """Bytes per image of KFAC's moments: each input and gradient once, the inputs of bands copied, sums shared by a batch."""
    found = {}
    a = x[:1]
    for name, module in model.named_children():
        out = module(a)
        if isinstance(module, nn.Conv2d):
            _, channels, height, width = a.shape
            band = 4 * module.kernel_size[0] * height * (channels * width) ** 2
            found["inputs", name] = 4 * 3 * a.numel() + 2 * band // batch
            found["gradients", name] = 4 * 3 * out.numel()
        elif isinstance(module, nn.Linear):
            found["inputs", name] = 4 * a.numel() + 2 * 8 * a.numel() ** 2 // batch
            found["gradients", name] = 4 * out.numel() + 2 * 8 * out.numel() ** 2 // batch
        a = out
    return found


def _least(job: Job, repeats: int = 3) -> float:
    job()
    return min(cpu_seconds(job) for _ in range(repeats))
