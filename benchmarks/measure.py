"""CPU time beside a reference, peak memory in a fresh process, one JSON line per result."""

import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import torch

Job = Callable[[], object]
"""A piece of work that is called for its cost; what it returns is dropped."""

PACKAGES = (
    "posterity",
    "torch",
    "numpy",
    "laplace-torch",
    "curvlinops-for-pytorch",
    "asdfghjkl",
    "backpack-for-pytorch",
)


class AbsentError(Exception):
    """A library that is to be measured is not installed, or its version lacks what is asked."""


@dataclass(frozen=True)
class Timing:
    """CPU seconds of a job and of its reference, measured in turn."""

    reference: tuple[float, ...]
    candidate: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median over pairs of neighbours in time: a slow spell hits both, or one pair only."""
        return statistics.median(c / r for r, c in zip(self.reference, self.candidate, strict=True))

    @property
    def best_ratio(self) -> float:
        """The least time of each: what is left when the machine disturbs neither."""
        return min(self.candidate) / min(self.reference)


@dataclass(frozen=True)
class Memory:
    """Resident bytes of a process before a job, and the most it reached during it."""

    baseline: int
    peak: int

    @property
    def needed(self) -> int:
        """What the job itself took."""
        return self.peak - self.baseline


@dataclass(frozen=True)
class Machine:
    """Where a result was measured."""

    cpu: str
    cores: int
    threads: int
    system: str
    python: str


@dataclass(frozen=True)
class Row:
    """One result: a library doing one work on one network. Numbers are None where nothing was measured."""

    name: str
    work: str
    network: str
    examples: int
    batch: int
    status: Literal["measured", "absent", "failed"] = "measured"
    detail: str = ""
    seconds: float | None = None
    reference_seconds: float | None = None
    ratio: float | None = None
    best_ratio: float | None = None
    repeats: int | None = None
    peak_bytes: int | None = None
    reference_peak_bytes: int | None = None


def cpu_seconds(job: Job) -> float:
    """CPU time of one call, over all threads of this process.

    Wall time would charge the job for other processes on the same cores.
    """
    start = time.process_time()
    job()
    return time.process_time() - start


def cpu_times(job: Job, *, repeats: int = 5) -> tuple[float, ...]:
    """CPU seconds of `repeats` calls after one that is not counted."""
    job()
    return tuple(cpu_seconds(job) for _ in range(repeats))


def compare(reference: Job, candidate: Job, *, repeats: int = 5) -> Timing:
    """Times both jobs in turn, after one call of each that is not counted.

    Frequency and cache pressure drift over minutes: neighbours in time share them, blocks of repeats
    would not.
    """
    reference()
    candidate()
    pairs = [(cpu_seconds(reference), cpu_seconds(candidate)) for _ in range(repeats)]
    return Timing(tuple(r for r, _ in pairs), tuple(c for _, c in pairs))


def measured(row: Row, reference: Job, candidate: Job, *, repeats: int = 5, memory_limit: int = 12 * 2**30) -> Row:
    """The row with its times filled in, or with the reason why there are none.

    A benchmark goes on when one library cannot do one work, or not within `memory_limit` bytes: that too is a
    result.
    """
    try:
        with at_most(memory_limit):
            timing = compare(reference, candidate, repeats=repeats)
    except AbsentError as error:
        return replace(row, status="absent", detail=str(error))
    except Exception as error:
        return replace(row, status="failed", detail=_reason(error, memory_limit))
    return replace(
        row,
        seconds=statistics.median(timing.candidate),
        reference_seconds=statistics.median(timing.reference),
        ratio=timing.ratio,
        best_ratio=timing.best_ratio,
        repeats=repeats,
    )


@contextmanager
def at_most(memory_limit: int) -> Iterator[None]:
    """Makes an allocation beyond this many bytes of address space fail rather than the machine run out.

    The kernel's own answer to running out is to kill a process, which need not be the one that asked.
    """
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def peak_memory(
    setup: Callable[[], tuple[Job, Job]], *, threads: int = 1, memory_limit: int = 12 * 2**30, timeout: float = 3600.0
) -> Memory:
    """The most memory a job holds, measured in a process of its own.

    `setup` returns a small version of the job and the job. The small one runs first and uncounted, so that
    imports and the kernels' first-call buffers are in the baseline. It is pickled: a `functools.partial` of a
    function at the top of a module will do, a closure will not.

    Raises `MemoryError` if the process is killed, and `RuntimeError` with the job's own message if it fails.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_memory, args=(setup, threads, memory_limit, sender))
    process.start()
    sender.close()
    try:
        answer = receiver.recv() if receiver.poll(timeout) else f"no result after {timeout:.0f} s"
        # A process that has answered is left to clean up after itself before it is ended.
        process.join(10.0 if isinstance(answer, Memory) else 0.0)
    except EOFError:
        process.join()
        raise MemoryError(f"the measuring process ended with code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(answer, Memory):
        return answer
    raise RuntimeError(answer)


def _measure_memory(setup: Callable[[], tuple[Job, Job]], threads: int, memory_limit: int, sender: Connection) -> None:
    torch.set_num_threads(threads)
    try:
        small, job = setup()
        small()
        reset = _reset_peak()
        baseline = _resident() if reset else _peak()
        with at_most(memory_limit):
            job()
        sender.send(Memory(baseline, _peak()))
    except Exception as error:  # whatever a library raises becomes the caller's message
        sender.send(_reason(error, memory_limit))


# The kernel keeps the peak itself, so no allocation is too short-lived to be seen, as some are for a thread that
# samples. VmHWM rather than ru_maxrss: the latter starts from the parent's peak after fork and exec and cannot
# be reset, so a parent or a set-up that held more than the job would hide it.


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _resident() -> int:
    return _status("VmRSS")


def _peak() -> int:
    if Path("/proc/self/status").exists():
        return _status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return 1024 * int(value.split()[0])
    raise RuntimeError(f"this system's process status has no {field}")


def _reason(error: Exception, memory_limit: int) -> str:
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"needs more than {memory_limit / 2**30:.0f} GiB"
    return summary(error)


def summary(error: BaseException, *, limit: int = 200) -> str:
    """An error on one line, short enough for a table and free of this machine's directories."""
    first = next(iter(str(error).splitlines()), "").replace(str(Path.cwd()), ".").replace(sys.prefix, "…")
    return f"{type(error).__name__}: {first}"[:limit]


def machine() -> Machine:
    """This machine as the results name it."""
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """The installed version of every library that is measured; one that is not installed is "absent"."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def command() -> str:
    """The command that started this run, without directories."""
    return " ".join(Path(word).name if Path(word).is_absolute() else word for word in sys.orig_argv)


def write(rows: list[Row], path: Path) -> None:
    """Writes one JSON line per row, each with all that is needed to judge it alone."""
    about = {"machine": asdict(machine()), "versions": versions(), "command": command()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(row) | about, ensure_ascii=False) + "\n" for row in rows))
