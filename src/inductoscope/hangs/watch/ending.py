"""Ends a compiler or worker that is stuck, so that the program can go on without it.

What is ended is started by torch: a compiler, or one of its compile workers, with what those
started themselves. Never the user's own process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from inductoscope.hangs.watch.judgement import Judgement
from inductoscope.processes.tree import read_process

_TIME_TO_END = 1.0


@dataclass(frozen=True)
class Ended:
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


def end_stuck(judgement: Judgement) -> Ended:
    """End what the judgement allows to be ended: a request first, then SIGKILL."""
    found = [(pid, process) for pid in judgement.can_end if (process := read_process(pid))]
    # Only what is still the same: a compiler, a worker, or a child of one.
    if not found:
        return Ended((), (), "nothing that is stuck may be ended: it is the program itself")
    problem = ""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, _ in found:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:
                problem = f"pid {pid} belongs to another user"
        if _are_gone([pid for pid, _ in found]):
            break
    ended = [(pid, process.name) for pid, process in found if _are_gone([pid], 0.0)]
    return Ended(tuple(pid for pid, _ in ended), tuple(name for _, name in ended), problem)


def _are_gone(pids: list[int], seconds: float = _TIME_TO_END) -> bool:
    until = time.monotonic() + seconds
    while any(_lives(pid) for pid in pids):
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    return True


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False
