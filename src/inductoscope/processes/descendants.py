"""What a process has started, and its end."""

from __future__ import annotations

from inductoscope.processes.ending import end_processes
from inductoscope.processes.status import read_status
from inductoscope.processes.tree import sample_tree

# A process may leave its group. Pid and start tell it from another that gets its number later.
Started = dict[int, float]


def processes_below(root: int) -> Started:
    """The descendants of a process: when each of them started, by pid."""
    return {process.pid: process.started for process in sample_tree(root).processes[1:]}


def end_what_is_left(processes: Started, *, grace: float) -> None:
    """End those that are still there."""
    found = ((pid, read_status(pid)) for pid in processes)
    left = [pid for pid, now in found if now and now.is_alive and now.started == processes[pid]]
    end_processes(left, grace=grace)
