"""A tree of processes, read from /proc.

One sample says what there is; two samples say what each process did in between: whether it used
the processor or slept, whether its memory grew, and which processes came and went.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LONGEST_COMMAND = 4096
_MOST_PROCESSES = 500

# A process that uses less than this share of a core sleeps; more than the other, it spins.
_ASLEEP = 0.05
_BUSY = 0.5

# What a program is called, and what it is.
_COMPILERS = {
    "ptxas": "ptxas",
    "cc1plus": "C++ compiler",
    "cc1": "C++ compiler",
    "cicc": "C++ compiler",
    "nvcc": "C++ compiler",
    "hipcc": "C++ compiler",
    "icpx": "C++ compiler",
    "as": "assembler",
    "collect2": "linker",
    "ld": "linker",
    "ld.bfd": "linker",
    "ld.gold": "linker",
    "ld.lld": "linker",
    "lld": "linker",
    "mold": "linker",
}
_COMPILER_STARTS = ("g++", "gcc", "c++", "clang", "x86_64-linux-gnu-", "aarch64-linux-gnu-")
_SOURCES = (".cpp", ".cc", ".cu", ".cxx", ".hpp", ".h")
_WORKER_FILE = "torch/_inductor/compile_worker/__main__.py"


@dataclass(frozen=True)
class Process:
    """One process at one moment."""

    pid: int
    parent: int
    name: str
    command: tuple[str, ...]
    state: str
    threads: int
    cpu_seconds: float
    memory: int
    faults: int
    # Seconds since the machine started at which it was started; with the pid it names a process.
    started: float
    age: float
    wait_channel: str = ""
    # How often its first thread gave up the processor of its own accord.
    switches: int = 0

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger holds it."""
        return self.state in "Tt"

    @property
    def is_zombie(self) -> bool:
        """Whether it is dead and its parent has not asked how it ended."""
        return self.state in "ZX"

    @property
    def is_python(self) -> bool:
        """Whether it is a Python process, going by its command."""
        first = os.path.basename(self.command[0]) if self.command else self.name
        return first.startswith("python") or self.name.startswith("python")

    @property
    def is_torch_worker(self) -> bool:
        """Whether it is a compile worker of torch: the sidecar, or one that it forked."""
        return any(word.endswith(_WORKER_FILE) for word in self.command[:4])

    @property
    def worker_of(self) -> int | None:
        """The process that a worker of torch works for."""
        if not self.is_torch_worker:
            return None
        given = (w.partition("=")[2] for w in self.command if w.startswith("--parent="))
        return next((int(text) for text in given if text.isdigit()), None)

    @property
    def compiler(self) -> str:
        """Which kind of compiler it is; empty for anything else."""
        names = [self.name, *(os.path.basename(word) for word in self.command[:1])]
        for name in names:
            if name in _COMPILERS:
                return _COMPILERS[name]
            if name.startswith(_COMPILER_STARTS) and not self.is_python:
                return "C++ compiler"
        return _compiler_by_arguments(self.command) if not self.is_python else ""

    @property
    def source(self) -> str:
        """The file that a compiler was given."""
        words = [word for word in self.command[1:] if word.endswith((".ptx", *_SOURCES))]
        return next((word for word in words if not word.endswith((".h", ".hpp"))), "") or (
            words[0] if words else ""
        )

    @property
    def text(self) -> str:
        """A short name for a person."""
        return f"{self.name} (pid {self.pid})"


def _compiler_by_arguments(command: tuple[str, ...]) -> str:
    """A stand-in or a wrapper has any name, but it is given what a compiler is given."""
    if "-o" not in command and "--output-file" not in command:
        return ""
    if any(word.endswith(".ptx") for word in command):
        return "ptxas"
    if any(word.endswith(_SOURCES) for word in command[1:]):
        return "C++ compiler"
    return ""


@dataclass(frozen=True)
class Tree:
    """A process with everything below it, at one moment, and torch's workers that lost their way.

    The first process is the root. It is empty when the root is gone.
    """

    time: float
    processes: tuple[Process, ...]

    @property
    def root(self) -> Process | None:
        return self.processes[0] if self.processes else None

    def get(self, pid: int) -> Process | None:
        return next((process for process in self.processes if process.pid == pid), None)

    def below(self, pid: int) -> list[Process]:
        """The descendants of a process."""
        found: list[Process] = []
        wanted = {pid}
        while wanted:
            level = [p for p in self.processes if p.parent in wanted and p not in found]
            found += level
            wanted = {process.pid for process in level}
        return found

    @property
    def compilers(self) -> list[Process]:
        """Compilers at work, the innermost first: cc1plus comes before the g++ that started it."""
        found = [p for p in self.processes if p.compiler and not p.is_zombie]
        return sorted(found, key=lambda process: -self._depth(process))

    def _depth(self, process: Process) -> int:
        depth, above = 0, self.get(process.parent)
        while above is not None and depth < 50:
            depth, above = depth + 1, self.get(above.parent)
        return depth

    @property
    def workers(self) -> list[Process]:
        """Compile workers of torch that live, the sidecar first."""
        return [p for p in self.processes if p.is_torch_worker and not p.is_zombie]


@dataclass(frozen=True)
class Activity:
    """What a process did between two samples."""

    seconds: float
    # Share of a core; 2.0 is two cores in full.
    cpu: float
    memory_growth: int
    new_faults: int
    new_switches: int

    @property
    def is_asleep(self) -> bool:
        return self.cpu < _ASLEEP

    @property
    def is_busy(self) -> bool:
        return self.cpu >= _BUSY

    @property
    def text(self) -> str:
        """In words, for a person."""
        how = "sleeping" if self.is_asleep else "spinning" if self.is_busy else "working a little"
        grown = self.memory_growth / (1 << 20)
        memory = f", memory {grown:+.0f} MB" if abs(grown) >= 1 else ", memory unchanged"
        return f"{how} ({self.cpu:.0%} of a core over {self.seconds:.1f} s{memory})"


def activity(before: Tree, after: Tree) -> dict[int, Activity]:
    """What each process that is in both samples did in between."""
    seconds = max(after.time - before.time, 1e-6)
    earlier = {(process.pid, process.started): process for process in before.processes}
    found = {}
    for now in after.processes:
        then = earlier.get((now.pid, now.started))
        if then is not None:
            found[now.pid] = Activity(
                seconds=round(seconds, 3),
                cpu=round(max(0.0, now.cpu_seconds - then.cpu_seconds) / seconds, 3),
                memory_growth=now.memory - then.memory,
                new_faults=now.faults - then.faults,
                new_switches=now.switches - then.switches,
            )
    return found


def sample_tree(root: int) -> Tree:
    """The process `root` and everything below it, now."""
    uptime = _uptime()
    found: list[Process] = []
    queue = [root]
    while queue and len(found) < _MOST_PROCESSES:
        process = read_process(queue.pop(0), uptime)
        if process is not None:
            found.append(process)
            queue += _children(process.pid)
    if found and found[0].pid == root:
        found += _strays(found, uptime)
        return Tree(time.monotonic(), tuple(found))
    return Tree(time.monotonic(), ())


def _strays(found: list[Process], uptime: float) -> Iterator[Process]:
    """Workers whose sidecar is gone: they are no one's children, but say whom they work for."""
    known = {process.pid for process in found}
    for pid in _all_pids():
        if pid not in known and any(word.endswith(_WORKER_FILE) for word in _command(pid)[:4]):
            process = read_process(pid, uptime)
            if process is not None and process.worker_of in known:
                yield process


def _all_pids() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    return []


def read_process(pid: int, uptime: float | None = None) -> Process | None:
    """One process; None if there is none."""
    fields = _stat_fields(pid)
    if not fields:
        return None
    started = int(fields[19]) / _TICKS
    return Process(
        pid=pid,
        parent=int(fields[1]),
        name=_text(pid, "comm"),
        command=_command(pid),
        state=fields[0],
        threads=int(fields[17]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory=int(fields[21]) * _PAGE,
        faults=int(fields[7]) + int(fields[9]),
        started=started,
        age=max(0.0, (_uptime() if uptime is None else uptime) - started),
        wait_channel=_text(pid, "wchan").strip("0"),
        switches=_switches(pid),
    )


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold anything."""
    fields = _text(pid, "stat").rpartition(")")[2].split()
    return fields if len(fields) > 21 else []


def _text(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / name).read_bytes()[:65536].decode("utf-8", "replace").strip()
    return ""


def _command(pid: int) -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        data = (PROC / str(pid) / "cmdline").read_bytes()[:_LONGEST_COMMAND]
        return tuple(data.decode("utf-8", "replace").rstrip("\0").split("\0")) if data else ()
    return ()


def _switches(pid: int) -> int:
    for line in _text(pid, "status").splitlines():
        name, _, value = line.partition(":")
        if name == "voluntary_ctxt_switches":
            return int(value)
    return 0


def _children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    found: list[int] = []
    try:
        threads: Iterable[str] = os.listdir(PROC / str(pid) / "task")
    except OSError:
        return found
    for thread in threads:
        text = _text(pid, f"task/{thread}/children")
        found += [int(word) for word in text.split()]
    return sorted(found)


def _uptime() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return float((PROC / "uptime").read_text().split()[0])
    return 0.0


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it may not be read."""
    with contextlib.suppress(OSError):
        data = (PROC / str(pid) / "environ").read_bytes().decode("utf-8", "replace")
        pairs = (entry.partition("=") for entry in data.split("\0"))
        return {name: value for name, separator, value in pairs if separator}
    return {}
