"""Trees and groups of processes.

One sample shows which processes exist. Two samples show what each one did in between: whether it
used the processor or slept, whether its memory grew, and which processes came and went.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psutil

from inductoscope.processes.status import ProcessStatus, group_members, read_status, read_text
from inductoscope.wording import bytes_text

_MOST_PROCESSES = 500

# A process that uses less than this share of a core sleeps; one that uses more than that spins.
_ASLEEP = 0.05
_BUSY = 0.5

# The kinds of compilers, by program name.
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
class ProcessSample(ProcessStatus):
    name: str
    command: tuple[str, ...]
    age: float
    wait_channel: str = ""
    # The voluntary context switches of the first thread.
    switches: int = 0

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process."""
        return self.state in "Tt"

    @property
    def is_python(self) -> bool:
        """Whether the process runs Python, judged by its command."""
        first = os.path.basename(self.command[0]) if self.command else self.name
        return first.startswith("python") or self.name.startswith("python")

    @property
    def is_torch_worker(self) -> bool:
        """Whether the process is a compile worker of torch: the sidecar, or one that it forked."""
        return any(word.endswith(_WORKER_FILE) for word in self.command[:4])

    @property
    def worker_of(self) -> int | None:
        """The pid of the process that this compile worker serves."""
        if not self.is_torch_worker:
            return None
        given = (w.partition("=")[2] for w in self.command if w.startswith("--parent="))
        return next((int(text) for text in given if text.isdigit()), None)

    @property
    def compiler(self) -> str:
        """The kind of compiler; empty for any other process."""
        names = [self.name, *(os.path.basename(word) for word in self.command[:1])]
        for name in names:
            if name in _COMPILERS:
                return _COMPILERS[name]
            if name.startswith(_COMPILER_STARTS) and not self.is_python:
                return "C++ compiler"
        return _compiler_by_arguments(self.command) if not self.is_python else ""

    @property
    def source(self) -> str:
        """The source file of a compiler process."""
        words = [word for word in self.command[1:] if word.endswith((".ptx", *_SOURCES))]
        return next((word for word in words if not word.endswith((".h", ".hpp"))), "") or (
            words[0] if words else ""
        )

    @property
    def text(self) -> str:
        return f"{self.name} (pid {self.pid})"


def _compiler_by_arguments(command: tuple[str, ...]) -> str:
    """Recognize a compiler by its arguments, since a wrapper may have any name."""
    if "-o" not in command and "--output-file" not in command:
        return ""
    if any(word.endswith(".ptx") for word in command):
        return "ptxas"
    if any(word.endswith(_SOURCES) for word in command[1:]):
        return "C++ compiler"
    return ""


@dataclass(frozen=True)
class Tree:
    """A snapshot of a process, its descendants, and torch's orphaned compile workers.

    The first process is the root. The tree is empty if the root is gone.
    """

    time: float
    processes: tuple[ProcessSample, ...]

    @property
    def root(self) -> ProcessSample | None:
        return self.processes[0] if self.processes else None

    def get(self, pid: int) -> ProcessSample | None:
        return next((process for process in self.processes if process.pid == pid), None)

    def below(self, pid: int) -> list[ProcessSample]:
        found: list[ProcessSample] = []
        wanted = {pid}
        while wanted:
            level = [p for p in self.processes if p.parent in wanted and p not in found]
            found += level
            wanted = {process.pid for process in level}
        return found

    @property
    def compilers(self) -> list[ProcessSample]:
        """The running compilers, innermost first: cc1plus comes before the g++ that started it."""
        found = [p for p in self.processes if p.compiler and p.is_alive]
        return sorted(found, key=lambda process: -self._depth(process))

    def _depth(self, process: ProcessSample) -> int:
        depth, above = 0, self.get(process.parent)
        while above is not None and depth < 50:
            depth, above = depth + 1, self.get(above.parent)
        return depth

    @property
    def workers(self) -> list[ProcessSample]:
        """The live compile workers of torch, the sidecar first."""
        return [p for p in self.processes if p.is_torch_worker and p.is_alive]


@dataclass(frozen=True)
class Activity:
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
        how = "sleeping" if self.is_asleep else "spinning" if self.is_busy else "working a little"
        grown = self.memory_growth
        sign = "+" if grown > 0 else "-"
        changed = f", memory {sign}{bytes_text(abs(grown))}"
        memory = changed if abs(grown) >= 1 << 20 else ", memory unchanged"
        return f"{how} ({self.cpu:.0%} of a core over {self.seconds:.1f} s{memory})"


def activity(before: Tree, after: Tree) -> dict[int, Activity]:
    """Compute the activity of each process that is in both samples."""
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


@dataclass(frozen=True)
class Observation:
    """Two samples of processes: the later one, and the activity in between."""

    tree: Tree
    activity: Mapping[int, Activity]


def observe_group(leader: int, *, seconds: float = 0.5) -> Observation:
    """Sample a process group twice, `seconds` apart. The leader comes first."""
    before = sample_group(leader)
    time.sleep(seconds)
    after = sample_group(leader)
    return Observation(after, activity(before, after))


def sample_group(leader: int) -> Tree:
    """Sample the live processes of a process group."""
    pids = sorted((s.pid for s in group_members(leader)), key=lambda pid: (pid != leader, pid))
    found = (read_process(pid) for pid in pids)
    return Tree(time.monotonic(), tuple(process for process in found if process is not None))


def sample_tree(root: int) -> Tree:
    """Sample the process `root` and all its descendants."""
    first = read_process(root)
    if first is None:
        return Tree(time.monotonic(), ())
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(root).children(recursive=True)[:_MOST_PROCESSES]
    others = (read_process(process.pid) for process in below)
    found = [first, *(process for process in others if process is not None)]
    return Tree(time.monotonic(), (*found, *_orphans(found)))


def _orphans(found: list[ProcessSample]) -> Iterator[ProcessSample]:
    """Yield compile workers without a sidecar, whose command line names their owner."""
    known = {process.pid for process in found}
    for pid in psutil.pids():
        if pid not in known and any(word.endswith(_WORKER_FILE) for word in command_of(pid)[:4]):
            process = read_process(pid)
            if process is not None and process.worker_of in known:
                yield process


def read_process(pid: int) -> ProcessSample | None:
    """Sample one process; None if it does not exist."""
    status = read_status(pid)
    if status is None:
        return None
    name, age, switches = "", 0.0, 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        name, age = process.name(), time.time() - process.create_time()
        switches = process.num_ctx_switches().voluntary
    return ProcessSample(
        **vars(status),
        name=name,
        command=command_of(pid),
        age=max(0.0, age),
        wait_channel=read_text(pid, "wchan").strip("0"),
        switches=switches,
    )


def command_of(pid: int) -> tuple[str, ...]:
    """Return the command line of a process; empty if it cannot be read."""
    with contextlib.suppress(psutil.Error):
        return tuple(psutil.Process(pid).cmdline())
    return ()


def environment_of(pid: int) -> dict[str, str]:
    """Return the initial environment of a process; empty if it cannot be read."""
    with contextlib.suppress(psutil.Error):
        return dict(psutil.Process(pid).environ())
    return {}
