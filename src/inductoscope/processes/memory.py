"""Main memory: how much there is, whose limit counts, who holds it, and whether it ran out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from inductoscope.processes.status import PROC, children_of, read_status, read_text

# Written to the oom_score_adj of forks: without them, the program can go on.
KILLED_FIRST = "1000"
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


# --- limits ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryLimit:
    """Bytes that a process may use, alone or with others, and how many of them are left."""

    # Whose limit it is, for use inside a sentence.
    name: str
    total: int
    free: int
    # Whether other processes count as well.
    is_shared: bool = True


def memory_in_use() -> int:
    """Return the resident set size of this process in bytes."""
    status = read_status(os.getpid())
    return status.memory if status is not None else 0


def free_memory() -> int:
    """Return the bytes that this process can still allocate in main memory."""
    return max(0, tightest_limit(os.getpid()).free)


def tightest_limit(pid: int) -> MemoryLimit:
    """Return the limit of a process that leaves it the least: of the machine, a cgroup, its own."""
    return min((_machine(), *_cgroups_of(pid), *_own_limits(pid)), key=lambda limit: limit.free)


def _machine() -> MemoryLimit:
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = (PROC / "meminfo").read_text().splitlines()
        sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in _split(lines)}
        return MemoryLimit("this machine", sizes["MemTotal"], sizes["MemAvailable"])
    total = _PAGE * os.sysconf("SC_PHYS_PAGES")
    return MemoryLimit("this machine", total, total // 2)


def _split(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    return (line.partition(":") for line in lines)


# The files of a cgroup, by its version: limit, usage, and the name of cached files in memory.stat.
_CGROUPS = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
# More than any machine has: version 1 writes such a number where there is no limit.
_NO_LIMIT = 1 << 60


def _cgroups_of(pid: int, root: Path = Path("/sys/fs/cgroup")) -> Iterator[MemoryLimit]:
    """Yield the limits of a process's cgroups; cached files can be dropped."""
    for line in read_text(pid, "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version, top = (1, root / "memory") if controllers else (2, root)
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            with contextlib.suppress(OSError, ValueError):
                limit = _limit_of(folder, *_CGROUPS[version])
                if limit.total < _NO_LIMIT:
                    yield limit
            if folder == top:
                break


def _limit_of(folder: Path, limit: str, usage: str, cached: str) -> MemoryLimit:
    total = int((folder / limit).read_text())
    fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    used = int((folder / usage).read_text()) - int(fields.get(cached, 0))
    return MemoryLimit(f"the cgroup limit {folder / limit}", total, total - used)


# By the name of a limit in /proc/PID/limits: what sets it, and the field of statm it counts.
_OWN = {"Max address space": ("RLIMIT_AS", 0), "Max data size": ("RLIMIT_DATA", 5)}


def _own_limits(pid: int) -> Iterator[MemoryLimit]:
    """Yield the limits of the process alone, such as those of `ulimit` and `setrlimit`."""
    pages = read_text(pid, "statm").split()
    for line in read_text(pid, "limits").splitlines():
        for words, (name, field) in _OWN.items():
            soft = line.removeprefix(words).split()[:1] if line.startswith(words) else []
            if soft and soft[0].isdigit() and pages:
                left = int(soft[0]) - int(pages[field]) * _PAGE
                yield MemoryLimit(f"the process's limit {name}", int(soft[0]), left, False)


# --- who holds it ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryUse:
    """The bytes that a program, this tool and others held when the least memory was left."""

    limit: MemoryLimit
    program: int
    tool: int
    # Processes that the kernel has killed since the program started, because memory had run out.
    killed: int = 0

    @property
    def others(self) -> int:
        used = self.limit.total - self.limit.free - self.program - self.tool
        return max(0, used) if self.limit.is_shared else 0


class MemoryWatch:
    """Watches the memory of a program and of all that it has started."""

    def __init__(self, pid: int) -> None:
        self._pid, self._killed_before = pid, _killed_so_far()
        self._scarcest: MemoryUse | None = None

    def look(self) -> None:
        limit = tightest_limit(self._pid)
        if self._scarcest is None or limit.free < self._scarcest.limit.free:
            pids = [self._pid, *_all_below(self._pid)]
            held = {pid: status.memory for pid in pids if (status := read_status(pid)) is not None}
            # In some containers, all processes are to be killed first.
            is_marked = _is_killed_first(self._pid)
            forks = {pid for pid in held if not is_marked and _is_killed_first(pid)}
            # Memory that processes share counts for each, and is held once.
            shared = limit.total - limit.free
            program = min(sum(held[pid] for pid in held.keys() - forks), shared)
            # A fork shares most of its memory with the program.
            own = sum(max(0, held[pid] - held.get(self._pid, 0)) for pid in forks)
            self._scarcest = MemoryUse(limit, program, memory_in_use() + own)

    def seen(self) -> MemoryUse | None:
        """Return what was seen when memory was scarcest."""
        if self._scarcest is None:
            return None
        return replace(self._scarcest, killed=_killed_so_far() - self._killed_before)


def _all_below(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _all_below(child)


def _is_killed_first(pid: int) -> bool:
    """Check whether the kernel is to kill a process first, such as a fork of the tool."""
    return read_text(pid, "oom_score_adj").strip() == KILLED_FIRST


def _killed_so_far() -> int:
    """Return how many processes the kernel has killed on this machine for want of memory."""
    with contextlib.suppress(OSError, ValueError):
        fields = dict(line.split() for line in (PROC / "vmstat").read_text().splitlines())
        return int(fields.get("oom_kill", 0))
    return 0
