"""What the processes of a group are doing, read from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
# A process that had the processor for less than this part of the time was not computing.
_SPINNING = 0.2
_PTXAS_SETTINGS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


@dataclass(frozen=True)
class Process:
    """One process, looked at twice."""

    pid: int
    parent: int
    words: tuple[str, ...]  # its command line
    tool: str
    busy: float  # seconds of processor per second
    resident_mib: int

    @property
    def is_spinning(self) -> bool:
        return self.busy >= _SPINNING

    @property
    def state(self) -> str:
        return "spinning" if self.is_spinning else "sleeping"


def look_at_group(leader: int, *, seconds: float = 0.5) -> list[Process]:
    """Every process of a group, its leader first, with the processor time of a short while."""
    before = {pid: ticks for pid, _, ticks in _members(leader)}
    time.sleep(seconds)
    found = [
        Process(
            pid=pid,
            parent=parent,
            words=(words := _words(pid)),
            tool=tool_name(words),
            busy=(ticks - before.get(pid, ticks)) / _TICKS / seconds,
            resident_mib=_resident(pid),
        )
        for pid, parent, ticks in _members(leader)
    ]
    return sorted(found, key=lambda process: (process.pid != leader, process.pid))


def blocking_child(group: list[Process]) -> Process | None:
    """The program that the leader waits for: the one it started itself, as busy as all below."""
    for process in group[1:]:
        # A fork that has become nothing else is the guard of bounded.py.
        if process.parent == group[0].pid and process.words != group[0].words:
            below = [p.busy for p in group if p.parent == process.pid]
            return Process(
                process.pid, process.parent, process.words, process.tool,
                process.busy + sum(below), process.resident_mib,
            )  # fmt: skip
    return None


def tool_name(words: tuple[str, ...]) -> str:
    """What a command line runs; a stand-in that a setting names counts as the tool itself."""
    stand_ins = {os.environ[name] for name in _PTXAS_SETTINGS if os.environ.get(name)}
    for word in words[:3]:
        if word in stand_ins or "ptxas" in os.path.basename(word):
            return "ptxas"
    return os.path.basename(words[0]) if words and words[0] else "a process"


def end_group(leader: int) -> None:
    """Kill a process group and all that is in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _members(leader: int) -> Iterator[tuple[int, int, int]]:
    """Process id, parent and processor ticks of every process in the group."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in brackets, may hold anything, so the fields count from the last bracket.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                yield int(entry.name), int(fields[1]), int(fields[11]) + int(fields[12])


def _words(pid: int) -> tuple[str, ...]:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0"))


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return (
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            >> 20
        )
    return 0
