"""Termination of processes: the only module that signals a process group.

A process group gets SIGTERM if it is given some grace, then SIGKILL, then its leader is reaped, so
that not even a zombie remains.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from typing import Any

from inductoscope.processes.status import children_of, group_members, is_alive, read_status

_LOOK_EVERY = 0.05


def end_child(child: subprocess.Popen[Any], *, grace: float = 0.0) -> int:
    """End the process group that a child leads; return the child's exit code."""
    # The group is signalled rather than the pid, which may be reused once the child is reaped.
    _end_group(child.pid, grace)
    code = child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    return code


def end_with_descendants(child: subprocess.Popen[Any]) -> int:
    """End a child and all that it has started, also sessions of their own, such as ranks."""
    below = processes_below(child.pid)
    code = end_child(child)
    end_started(below, grace=0.0)
    return code


def hold(pid: int) -> None:
    """Stop a process in its place; it neither goes on nor waits in vain until it is ended."""
    _send(pid, signal.SIGSTOP)


def end_fork(pid: int, *, grace: float = 0.0) -> int:
    """End the process group of a forked child; return the status from os.waitpid."""
    _end_group(pid, grace)
    _send(pid, signal.SIGKILL)  # The fork may not have made its own group yet.
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return signal.SIGKILL


def end_processes(pids: Collection[int], *, grace: float) -> list[int]:
    """End single processes; return those that this user may not signal."""
    denied: list[int] = []
    for number in (signal.SIGTERM, signal.SIGKILL):
        denied = [pid for pid in pids if not _send(pid, number)]
        if _wait(lambda: not any(map(is_alive, pids)), grace):
            break
    return denied


# A process may leave its group. Pid and start tell it from another that gets its number later.
Started = dict[int, float]


def processes_below(root: int) -> Started:
    """Return the start time of each descendant of a process, by pid."""
    found: Started = {}
    queue = children_of(root)
    while queue:
        status = read_status(queue.pop())
        if status is not None and status.pid not in found:
            found[status.pid] = status.started
            queue += children_of(status.pid)
    return found


def end_started(processes: Started, *, grace: float) -> None:
    """End those processes that are still alive under the same pid and start time."""
    found = ((pid, read_status(pid)) for pid in processes)
    left = [pid for pid, now in found if now and now.is_alive and now.started == processes[pid]]
    end_processes(left, grace=grace)


def _end_group(leader: int, grace: float) -> None:
    if grace:
        _send_group(leader, signal.SIGTERM)
        _wait(lambda: not any(group_members(leader)), grace)
    _send_group(leader, signal.SIGKILL)


def _send_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _send(pid: int, number: int) -> bool:
    """Send a signal; return False if this user may not signal the process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def _wait(is_over: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not is_over():
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_EVERY)
    return True
