"""Process status from the kernel: the only module that reads /proc/PID/stat."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LONGEST_TEXT = 65536
_DEAD = "ZX"


@dataclass(frozen=True)
class ProcessStatus:
    """The fields of /proc/PID/stat for one process."""

    pid: int
    # R runs, S sleeps, D waits for the disk, T is stopped, Z is dead and not reaped; see proc(5).
    state: str
    parent: int
    group: int
    threads: int
    cpu_seconds: float
    # The resident set size in bytes.
    memory: int
    faults: int
    # Seconds since boot; together with the pid it identifies a process.
    started: float

    @property
    def is_alive(self) -> bool:
        """Whether the process is alive: a zombie is not."""
        return self.state not in _DEAD


def read_status(pid: int) -> ProcessStatus | None:
    """Read the status of a process; None if it does not exist."""
    # The name, in brackets, may contain anything, so the fields count from the last bracket.
    fields = read_text(pid, "stat").rpartition(")")[2].split()
    if len(fields) <= 21:
        return None
    return ProcessStatus(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        threads=int(fields[17]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory=int(fields[21]) * _PAGE,
        faults=int(fields[7]) + int(fields[9]),
        started=int(fields[19]) / _TICKS,
    )


def is_alive(pid: int) -> bool:
    """Check whether a process exists and is not a zombie."""
    status = read_status(pid)
    return status is not None and status.is_alive


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used; infinite if unreadable."""
    status = read_status(pid)
    return status.cpu_seconds if status is not None else float("inf")


def delayed_seconds(pid: int) -> float | None:
    """Return the run-queue delay of a process's threads in seconds; None if unreadable."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        tasks = list((PROC / str(pid) / "task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9
    return None


def thread_delay() -> float | None:
    """Return this thread's run-queue delay so far in seconds; None if unreadable."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((PROC / "thread-self" / "schedstat").read_text().split()[1]) / 1e9
    return None


def all_pids() -> list[int]:
    """Return the pids of all visible processes."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    return []


def group_members(leader: int) -> Iterator[ProcessStatus]:
    """Yield the live processes of a process group."""
    for pid in all_pids():
        status = read_status(pid)
        if status is not None and status.group == leader and status.is_alive:
            yield status


def children_of(pid: int) -> list[int]:
    """Return the pids of the children that any thread of a process has started."""
    try:
        threads = os.listdir(PROC / str(pid) / "task")
    except OSError:
        return []
    texts = (read_text(pid, f"task/{thread}/children") for thread in threads)
    return sorted(int(word) for text in texts for word in text.split())


def read_text(pid: int, name: str) -> str:
    """Read a file of /proc/PID; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        data = (PROC / str(pid) / name).read_bytes()[:_LONGEST_TEXT]
        return data.decode("utf-8", "replace").strip()
    return ""


# --------------------------------------------------------------------------------------------------
# The cores that this process may use, which in a container or a job are fewer than there are.


def own_cores() -> set[int]:
    """Return the CPU numbers this process may run on; never empty."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # Not every system has sched_getaffinity.
        return set(range(os.cpu_count() or 1))
