"""Kronecker algebra: the closed form beside the power method, and how the joint eigenbasis scales."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import Case, Job, compare, cpu_seconds
from posterity.algebra import JointEigen, Kronecker, KroneckerSum, nearest
from posterity_studies.shared.power_method import power_method

STEPS = 100
SIDES = (64, 128, 256, 512, 1024)
LEAST_SECONDS = 0.02
"""Calls are repeated until they take this long: a clock's tick and a call's overhead are then out of the picture."""


@dataclass(frozen=True)
class Nearest:
    """`nearest` beside the published iteration, in time, and beside the pair it returns, in memory."""

    terms: int
    out: int
    inp: int
    dtype: str
    seconds: float
    power_seconds: float
    ratio: float
    """How many times longer the power method takes."""
    repeats: int
    peak_bytes: int
    """The most that was allocated at a time during the call, the result included, the terms not."""
    pair_bytes: int
    target_ratio: float = 5.0
    target_memory: float = 1.01
    """Peak over pair: the K×K matrices are a few hundred bytes."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this result from others of its file."""
        return "nearest", self.dtype


@dataclass(frozen=True)
class Scaling:
    """CPU seconds of one operation of a joint eigenbasis by the side of its factors (M = N)."""

    operation: str
    cost: str
    """What theory says."""
    power: int
    """The power of the side in it."""
    sides: tuple[int, ...]
    seconds: tuple[float, ...]
    exponent: float
    """Fitted to the largest three sides: below, calls cost more than arithmetic."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this result from others of its file."""
        return "joint eigenbasis", self.operation


def cases(*, quick: bool = False) -> list[Case]:
    """The comparison in both precisions that terms come in, and every operation of the joint eigenbasis."""
    repeats, sides = (3, SIDES[:3]) if quick else (15, SIDES)
    return [
        *(
            Case(f"nearest {_name(dtype)}", partial(_nearest, dtype, repeats))
            for dtype in (torch.float64, torch.float32)
        ),
        *(Case(f"joint eigenbasis {name}", partial(_scaling, name, sides)) for name in _OPERATIONS),
    ]


def _nearest(dtype: torch.dtype, repeats: int) -> list[Nearest]:
    terms, out, inp = 3, 120, 401
    generator = torch.Generator().manual_seed(0)
    total = KroneckerSum([_definite(out, inp, generator).to(dtype=dtype) for _ in range(terms)])
    # Ten calls a measurement: one takes less than a millisecond.
    timing = compare(
        lambda: [power_method(total, steps=STEPS, tol=0.0) for _ in range(10)],
        lambda: [nearest(total) for _ in range(10)],
        repeats=repeats,
    )
    found = Nearest(
        terms,
        out,
        inp,
        _name(dtype),
        statistics.median(timing.candidate) / 10,
        statistics.median(timing.reference) / 10,
        1 / timing.ratio,
        repeats,
        allocated(lambda: nearest(total)),
        8 * (out**2 + inp**2),
    )
    return [found]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def allocated(job: Job) -> int:
    """The most bytes a job holds at a time, by torch's own account of every allocation and release.

    Resident memory would be too coarse: a pair of this size is a megabyte.
    """
    job()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        job()
    recorded = profiler.profiler
    assert recorded is not None
    events = [e for e in recorded.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def _scaling(name: str, sides: tuple[int, ...]) -> list[Scaling]:
    cost, power, make = _OPERATIONS[name]
    seconds = tuple(_once(make(_Ready(side))) for side in sides)
    return [Scaling(name, cost, power, sides, seconds, exponent(sides[-3:], seconds[-3:]))]


def exponent(sides: tuple[int, ...], seconds: tuple[float, ...]) -> float:
    """The slope of the least-squares line through log seconds over log side."""
    x, y = [log(s) for s in sides], [log(s) for s in seconds]
    return statistics.linear_regression(x, y).slope


def _once(job: Job) -> float:
    """CPU seconds of one call, the least of three measurements."""
    job()
    calls = max(1, round(LEAST_SECONDS / max(cpu_seconds(job), 1e-6)))
    return min(cpu_seconds(lambda: [job() for _ in range(calls)]) for _ in range(3)) / calls


class _Ready:
    """Two terms of one size with their joint basis, as a caller has them after set-up."""

    def __init__(self, side: int) -> None:
        generator = torch.Generator().manual_seed(side)
        self.prior, self.curvature = (_definite(side, side, generator) for _ in range(2))
        self.joint: JointEigen = self.prior.joint(self.curvature)
        self.both = self.joint.combine()
        self.v: Tensor = torch.randn(side, side, dtype=torch.float64, generator=generator)
        self.generator = generator


_OPERATIONS: dict[str, tuple[str, int, Callable[[_Ready], Job]]] = {
    "one matrix product": ("M²N", 3, lambda r: lambda: r.v @ r.v),
    "set-up": ("M³ + N³", 3, lambda r: lambda: r.prior.joint(r.curvature)),
    "combine": ("MN", 2, lambda r: lambda: r.joint.combine(2.0, 3.0)),
    "log det": ("MN", 2, lambda r: r.both.logdet),
    "trace": ("MN + M² + N²", 2, lambda r: r.both.trace),
    "solve": ("2(M²N + MN²)", 3, lambda r: lambda: r.both.solve(r.v)),
    "sample": ("M²N + MN²", 3, lambda r: lambda: r.both.sample(1, generator=r.generator)),
}


def _definite(out: int, inp: int, generator: torch.Generator) -> Kronecker:
    return Kronecker(*(_wishart(side, generator) for side in (out, inp)))


def _wishart(side: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(side, 2 * side, dtype=torch.float64, generator=generator)
    product = x @ x.T / side
    return (product + product.T) / 2
