"""What a kernel's compile was doing when its time was up: the compiler itself, or its child."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from inductoscope.processes.tree import Observation, ProcessSample

# A process that had the processor for less than this share of the time was not computing.
_SPINNING = 0.2
_PTXAS_SETTINGS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


@dataclass(frozen=True)
class WaitingProcess:
    """One process of a compile that did not end."""

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


def waiting_processes(observed: Observation) -> list[WaitingProcess]:
    """The processes of a compile's group, its leader first."""
    return [_described(process, observed) for process in observed.tree.processes]


def _described(process: ProcessSample, observed: Observation) -> WaitingProcess:
    did = observed.activity.get(process.pid)
    return WaitingProcess(
        pid=process.pid,
        parent=process.parent,
        words=process.command,
        tool=tool_name(process.command),
        busy=did.cpu if did is not None else 0.0,
        resident_mib=process.memory >> 20,
    )


def blocking_child(group: list[WaitingProcess]) -> WaitingProcess | None:
    """The program that the leader waits for: the child it started, as busy as all below it."""
    for process in group[1:]:
        # A fork that has become nothing else is the guard of bounded.py.
        if process.parent == group[0].pid and process.words != group[0].words:
            below = sum(p.busy for p in group if p.parent == process.pid)
            return replace(process, busy=process.busy + below)
    return None


def tool_name(words: tuple[str, ...]) -> str:
    """What a command line runs; a stand-in that a setting names counts as the tool itself."""
    stand_ins = {os.environ[name] for name in _PTXAS_SETTINGS if os.environ.get(name)}
    for word in words[:3]:
        if word in stand_ins or "ptxas" in os.path.basename(word):
            return "ptxas"
    return os.path.basename(words[0]) if words and words[0] else "a process"
