"""Processes stopped at a chosen change of their files: before the k-th one, or in the middle of it.

The kernel tells (ptrace) of every system call of a child that changes a file: making, writing, cutting, renaming, removing, and
bringing to the disk. So moments are counted, not hoped for: the k-th is the same however busy the machine is. Linux on x86-64.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

WRITES = {1: "write", 18: "pwrite64", 20: "writev"}
CHANGES = WRITES | {
    2: "open",
    26: "msync",
    74: "fsync",
    75: "fdatasync",
    76: "truncate",
    77: "ftruncate",
    82: "rename",
    83: "mkdir",
    84: "rmdir",
    85: "creat",
    87: "unlink",
    90: "chmod",
    91: "fchmod",
    257: "openat",
    258: "mkdirat",
    263: "unlinkat",
    264: "renameat",
    268: "fchmodat",
    285: "fallocate",
    316: "renameat2",
}
MAKING = os.O_CREAT | os.O_TRUNC
TRACE_ME, CONTINUE, GET_REGISTERS, SET_REGISTERS, SET_OPTIONS = 0, 24, 12, 13, 0x4200
MARKED, EXIT_KILL = 0x1, 0x100000
"""A stop at a system call is distinguished from a signal, and a child does not outlive this process."""


FIRST = ("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8")
LAST = ("rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs")


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in (*FIRST, "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax", *LAST)]


@dataclass(frozen=True)
class Stopped:
    """Where a child was killed; `change` is None where it came to its end first."""

    status: int
    changes: tuple[str, ...]
    """The changes that were begun, by the names of their calls."""
    change: str | None = None


def available() -> bool:
    """Whether moments can be counted here: some machines do not let a process trace its own child."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        return run_until(lambda: None, Path("/nowhere"), None).status == 0
    except OSError:
        return False


def changes_of(work: Callable[[], None], folder: Path) -> list[str]:
    """Every change that the work makes to files of the folder, in order."""
    found = run_until(work, folder, None)
    assert found.status == 0, f"the work itself ended with status {found.status}"
    return list(found.changes)


def run_until(work: Callable[[], None], folder: Path, moment: int | None, half: bool = False) -> Stopped:
    """Let a fork do the work, and kill it (SIGKILL) at its `moment`-th change of a file in the folder, the first being 1.

    It is killed before the change is made; with `half`, a write is made with half of its bytes first. None lets it come to its
    end, and counts.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            _call(TRACE_ME, 0, 0, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        return Stopped(status, ())
    _call(SET_OPTIONS, child, 0, MARKED | EXIT_KILL)
    seen: list[str] = []
    inside, passed = False, 0
    while True:
        _call(CONTINUE, child, 0, passed)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return Stopped(status, tuple(seen))
        stop = os.WSTOPSIG(status)
        passed = 0
        if stop != signal.SIGTRAP | 0x80:
            passed = 0 if stop in (signal.SIGTRAP, signal.SIGSTOP) else stop
            continue
        inside = not inside
        if not inside:
            continue
        registers = Registers()
        _call(GET_REGISTERS, child, 0, ctypes.addressof(registers))
        if not _concerns(child, registers, folder):
            continue
        name = CHANGES[registers.orig_rax]
        seen.append(name)
        if len(seen) != moment:
            continue
        if half and registers.orig_rax in (1, 18) and registers.rdx > 1:
            registers.rdx //= 2
            _call(SET_REGISTERS, child, 0, ctypes.addressof(registers))
            _call(CONTINUE, child, 0, 0)
            os.waitpid(child, 0)
            name = f"half a {name}"
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        return Stopped(status, tuple(seen), name)


def _concerns(child: int, registers: Registers, folder: Path) -> bool:
    """Whether a call changes a file of the folder. Calls by name do: children here write nowhere else."""
    number = registers.orig_rax
    if number not in CHANGES:
        return False
    if number == 257:
        return bool(registers.rdx & MAKING)
    if number == 2:
        return bool(registers.rsi & MAKING)
    if number in WRITES or number in (74, 75, 77, 91, 285):
        try:
            return os.readlink(f"/proc/{child}/fd/{registers.rdi}").startswith(str(folder))
        except OSError:
            return False
    return True


def _call(request: int, child: int, address: int, data: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, child, address, data) == -1:
        raise OSError(ctypes.get_errno(), f"ptrace {request}: {os.strerror(ctypes.get_errno())}")
