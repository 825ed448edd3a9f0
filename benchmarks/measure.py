"""CPU time beside a reference, peak memory of a fresh process, one JSON line per result."""

import ctypes
import gc
import json
import multiprocessing
import os
import platform
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import torch

Job = Callable[[], object]
"""A piece of work that is called for its cost; what it returns is dropped."""

PACKAGES = (
    "posterity-torch",
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
class Jobs:
    """What is measured: a job, what it is held against, and a small version of both that is run first, uncounted.

    First calls pay for imports, for kernels that are chosen, for buffers that stay.
    """

    reference: Job
    candidate: Job
    warm_up: Job


@dataclass(frozen=True)
class Cost:
    """Time of a job and its reference, and the most memory their process held during each."""

    timing: Timing
    peak: int
    reference_peak: int


class Result(Protocol):
    """What is kept of a measurement: a dataclass that knows what tells it from others of its file."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Case:
    """Something to measure: its name, by which it is chosen and reported, and how."""

    name: str
    measure: Callable[[], Sequence[Result]]


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
    target_ratio: float | None = None
    target_bytes: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this row from others of its file."""
        return self.network, self.work, self.name


def cpu_seconds(job: Job) -> float:
    """CPU time of one call, over all threads of this process.

    Wall time would charge the job for other processes on the same cores.
    """
    start = time.process_time()
    job()
    return time.process_time() - start


def compare(reference: Job, candidate: Job, *, repeats: int = 5) -> Timing:
    """Times both jobs in turn, after one call of each that is not counted.

    Frequency and cache pressure drift over minutes: neighbours in time share them, blocks of repeats
    would not.
    """
    reference()
    candidate()
    pairs = [(cpu_seconds(reference), cpu_seconds(candidate)) for _ in range(repeats)]
    return Timing(tuple(r for r, _ in pairs), tuple(c for _, c in pairs))


def measured(row: Row, setup: Callable[[], Jobs], *, repeats: int, cpu_limit: int) -> Row:
    """The row with its numbers filled in, or with the reason why there are none.

    A benchmark goes on when one library cannot do one work, or not within the limits: that too is a result.
    """
    try:
        cost = in_own_process(setup, repeats=repeats, cpu_limit=cpu_limit)
    except AbsentError as error:
        return replace(row, status="absent", detail=str(error))
    except (MemoryError, RuntimeError, TimeoutError) as error:
        return replace(row, status="failed", detail=str(error))
    return replace(
        row,
        seconds=statistics.median(cost.timing.candidate),
        reference_seconds=statistics.median(cost.timing.reference),
        ratio=cost.timing.ratio,
        best_ratio=cost.timing.best_ratio,
        repeats=repeats,
        peak_bytes=cost.peak,
        reference_peak_bytes=cost.reference_peak,
    )


def keep_freed_memory() -> None:
    """Tells the C library to keep memory that is freed rather than to hand it back and ask for it again.

    By default it does either, depending on the sizes that came before: after some estimators a plain epoch then spends
    a third of its time in page faults, which makes the estimator look cheap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc's
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_threshold, 2**25)  # the most it takes; larger blocks are always handed back


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


def in_own_process(
    setup: Callable[[], Jobs],
    *,
    repeats: int,
    threads: int = 1,
    memory_limit: int = 12 * 2**30,
    cpu_limit: int = 3600,
) -> Cost:
    """Measures a job beside its reference in a fresh process.

    There peak memory is the job's own, and what a library leaves behind (hooks, patched functions, a corpse) is
    no one else's. `setup` is pickled: a `functools.partial` of a function at the top of a module will do, a closure
    will not.

    Raises `MemoryError` if the process is killed, `TimeoutError` after `cpu_limit` seconds of CPU time, `AbsentError` for
    a library that is not there, and `RuntimeError` with the job's own message if it fails.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(setup, repeats, threads, memory_limit, cpu_limit, sender))
    process.start()
    sender.close()
    try:
        answer: Cost | Exception = receiver.recv()
        # A process that has answered is left to clean up after itself before it is ended.
        process.join(10.0)
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            raise TimeoutError(f"no result after {cpu_limit} s of CPU time") from None
        raise MemoryError(f"the measuring process ended with code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer(
    setup: Callable[[], Jobs], repeats: int, threads: int, memory_limit: int, cpu_limit: int, sender: Connection
) -> None:
    # The kernel watches the limit: a busy machine makes no one late, and a library that hangs is ended all the same.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, resource.RLIM_INFINITY))
    torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        jobs = setup()
        with at_most(memory_limit):
            jobs.warm_up()
            sender.send(_cost(jobs, repeats))
    except AbsentError as error:
        sender.send(error)
    except Exception as error:  # whatever a library raises becomes the caller's message
        sender.send(RuntimeError(_reason(error, memory_limit)))


def _cost(jobs: Jobs, repeats: int) -> Cost:
    times: dict[str, list[float]] = {"reference": [], "candidate": []}
    peaks: dict[str, list[int]] = {"reference": [], "candidate": []}
    for _ in range(repeats):
        # In turn, as `compare` does.
        for name, job in (("reference", jobs.reference), ("candidate", jobs.candidate)):
            # What the last run left in reference cycles is not this one's.
            gc.collect()
            _reset_peak()
            times[name].append(cpu_seconds(job))
            peaks[name].append(_peak())
    timing = Timing(tuple(times["reference"]), tuple(times["candidate"]))
    return Cost(timing, max(peaks["candidate"]), max(peaks["reference"]))


# The kernel keeps the peak itself, so no allocation is too short-lived to be seen, as some are for a thread that
# samples. VmHWM rather than ru_maxrss: the latter starts from the parent's peak after fork and exec and cannot
# be reset, so a parent or a set-up that held more than the job would hide it.


def _reset_peak() -> None:
    # Where it cannot be reset, a peak is the largest so far: still no less than the job's own.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


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


def write(results: Sequence[Result], path: Path, *, keep_others: bool = False) -> None:
    """Writes one JSON line per result, each with all that is needed to judge it alone.

    With `keep_others` the results of earlier runs stay, but for those that were measured again.
    """
    about = {"machine": asdict(machine()), "versions": versions(), "command": command()}
    lines = {result.key: asdict(result) | {"key": result.key} | about for result in results}
    if keep_others:
        before = {tuple(line["key"]): line for line in read(path)}
        lines = {key: lines.get(key, line) for key, line in before.items()} | lines
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines.values()))


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file, none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
