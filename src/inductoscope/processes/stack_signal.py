"""A signal handler with which a recorded process dumps its Python stacks on request.

A request is a signal that programs hardly ever use. The sender has to check first that the handler
is still installed: `stacks.ask_for_stacks` does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from pathlib import Path

# Only Linux has real-time signals, and /proc, which the asking side needs.
STACK_SIGNAL: int | None = signal.SIGRTMIN + 12 if hasattr(signal, "SIGRTMIN") else None
FOLDER = "stacks"
SUFFIX = "-stacks.txt"

# The limit of a dump file, for many dumps of a process with some threads.
_MOST_TEXT = 1_000_000

# A high descriptor leaves the program the low numbers that it would get without the tool.
_LOWEST_DESCRIPTOR = 700


def answer_with_stacks(folder: Path) -> None:
    """Register a signal that writes all threads' stacks into a file of the recording.

    A periodic dump from a thread is no alternative: reading a running thread's stack may crash it.
    """
    with contextlib.suppress(OSError, ValueError, ImportError, RuntimeError):
        # A program that uses the signal itself keeps it.
        if STACK_SIGNAL is not None and signal.getsignal(STACK_SIGNAL) == signal.SIG_DFL:
            faulthandler.register(STACK_SIGNAL, file=_opened(folder / FOLDER), all_threads=True)


def write_stacks_on_crash(folder: Path) -> None:
    """Write the stacks also when a signal kills the process."""
    with contextlib.suppress(OSError, ValueError, ImportError, RuntimeError):
        if not faulthandler.is_enabled():
            faulthandler.enable(_opened(folder / FOLDER))


def written_stacks(folder: Path, pid: int) -> str:
    """Read the stacks that one process of a recording has written."""
    with contextlib.suppress(OSError):
        return (folder / FOLDER / f"{pid}{SUFFIX}").read_text("utf-8", "replace")[-_MOST_TEXT:]
    return ""


def _opened(folder: Path) -> int:
    import fcntl

    folder.mkdir(exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    low = os.open(folder / f"{os.getpid()}{SUFFIX}", flags, 0o644)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
    finally:
        os.close(low)
