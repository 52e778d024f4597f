"""Ends a stuck compiler or worker, so that the program can continue without it.

Only what torch started is ended: a compiler or a compile worker, with its children. Never the
user's own process.
"""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope.hangs.watch.judgement import StallDiagnosis
from inductoscope.processes.ending import end_processes
from inductoscope.processes.status import is_alive
from inductoscope.processes.tree import read_process

_TIME_TO_END = 1.0


@dataclass(frozen=True)
class EndedProcesses:
    """What was ended, and what could not be."""

    pids: tuple[int, ...]
    names: tuple[str, ...]
    problem: str = ""

    @property
    def text(self) -> str:
        if not self.pids:
            return self.problem or "nothing was ended"
        pairs = zip(self.names, self.pids, strict=True)
        return "ended " + ", ".join(f"{name} (pid {pid})" for name, pid in pairs)


def end_stuck(judgement: StallDiagnosis) -> EndedProcesses:
    """End the processes that the diagnosis permits: SIGTERM first, then SIGKILL."""
    found = [(pid, process) for pid in judgement.can_end if (process := read_process(pid))]
    # Only what is still the same: a compiler, a worker, or a child of one.
    if not found:
        return EndedProcesses((), (), "nothing was ended: the program itself is stuck")
    pids = [pid for pid, _ in found]
    denied = end_processes(pids, grace=_TIME_TO_END)
    problem = f"pid {denied[-1]} belongs to another user" if denied else ""
    ended = [(pid, process.name) for pid, process in found if not is_alive(pid)]
    return EndedProcesses(tuple(pid for pid, _ in ended), tuple(n for _, n in ended), problem)
