"""Runs in a child process: becomes a program, or stands guard over one."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, NoReturn

from inductoscope.processes.ending import end_started, processes_below
from inductoscope.processes.limits import adopt_orphans, die_with_parent

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel

# Seconds between SIGTERM and SIGKILL.
_GRACE = 1.0
# Rounds of ending processes: those started during one round are found in the next.
_MOST_ROUNDS = 5


def become(channel: Channel, command: list[str]) -> NoReturn:
    """Become a program that dies with the parent; the limits of this process are its limits."""
    die_with_parent()
    _execute(command)


def _execute(command: list[str]) -> NoReturn:
    # Python ignores these two signals, and the program would inherit that.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execvp(command[0], command)


def guard(channel: Channel, command: list[str]) -> NoReturn:
    """Start a program, end as it ends, and end it when the parent is gone.

    Processes that lose their parent become children of this one, so that whatever the program has
    started can be found, also what has left its process group.
    """
    adopt_orphans()
    lifeline = channel.descriptors[0]
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    child = os.fork()
    if child == 0:
        _execute(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # This process must outlive the program.
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _give_streams_up()
    while True:
        ended = _reaped(child)
        # Checked before reaping: a program may end because its parent is gone, and leave orphans.
        if select.select([lifeline], [], [], 0)[0]:
            _end_all()
        if ended is not None:
            _end_as(ended)
        if woken in select.select([lifeline, woken], [], [])[0]:
            os.read(woken, 4096)


def _give_streams_up() -> None:
    """Close the standard streams, so that readers of the program's output see EOF when it ends."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _reaped(child: int) -> int | None:
    """Reap ended children and return the exit status of the program, if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _end_all() -> NoReturn:
    for _ in range(_MOST_ROUNDS):
        below = processes_below(os.getpid())
        if not below:
            break
        end_started(below, grace=_GRACE)
    os._exit(1)
