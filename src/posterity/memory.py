"""How much memory is left, so that a need can be reported before it is taken."""

from __future__ import annotations

from pathlib import Path

from posterity.errors import TooLittleMemory


def available_memory() -> int | None:
    """Bytes that this process can still take, or None where the system does not say."""
    found = [left for left in (_of_machine(), _of_process()) if left is not None]
    return min(found, default=None)


def require_memory(need: int, what: str, remedy: str = "Free memory, or use a machine with more.") -> None:
    """Refuse by name what cannot be held, before anything is allocated.

    Args:
        need: bytes.
        what: what they are for, as the message begins.
        remedy: what to do instead.
    Raises:
        TooLittleMemory: if fewer bytes are left.
    """
    left = available_memory()
    if left is not None and need > left:
        raise TooLittleMemory(
            f"{what} needs {need / 2**30:.2f} GiB of memory and {left / 2**30:.2f} GiB are left. {remedy}"
        )


def _of_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _of_process() -> int | None:
    """What a limit on address space (`ulimit -v`) leaves."""
    try:
        import resource  # not on every system
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return max(0, limit - pages * resource.getpagesize())
