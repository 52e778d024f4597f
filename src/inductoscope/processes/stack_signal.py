"""Lets a process of the recorded program write its Python stacks when it is asked from outside.

Asked means: sent a signal that programs hardly ever use. Whoever asks has to make sure first that
the handler and the open file are still there; `watch.stacks` does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from pathlib import Path

# Real-time signals are there on Linux alone, and so is /proc, which the asking side needs.
STACK_SIGNAL: int | None = signal.SIGRTMIN + 12 if hasattr(signal, "SIGRTMIN") else None
FOLDER = "stacks"
SUFFIX = "-stacks.txt"

# So high a number leaves the program the numbers that it would get without us.
_LOWEST_DESCRIPTOR = 700


def answer_with_stacks(folder: Path) -> None:
    """Write the stacks of all threads into a file of the recording whenever asked."""
    if STACK_SIGNAL is None or signal.getsignal(STACK_SIGNAL) != signal.SIG_DFL:
        return  # The program uses the signal itself.
    with contextlib.suppress(OSError, ValueError, ImportError, RuntimeError):
        faulthandler.register(STACK_SIGNAL, file=_opened(folder / FOLDER), all_threads=True)


def _opened(folder: Path) -> int:
    import fcntl

    folder.mkdir(exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    low = os.open(folder / f"{os.getpid()}{SUFFIX}", flags, 0o644)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
    finally:
        os.close(low)
