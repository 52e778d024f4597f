"""Limits that a child process sets for itself before anything else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal

from inductoscope.processes.status import read_text

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    _control(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the subreaper: orphaned descendants become its children."""
    _control(_CHILD_SUBREAPER, 1)


def _control(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # Only Linux has prctl.
        ctypes.CDLL(None).prctl(option, value)


def limit_resources(
    *, memory: int | None = None, file_size: int | None = None, cpu_seconds: int | None = None
) -> None:
    """Set resource limits, in bytes and seconds, that children inherit; disable core dumps."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: file_size,
        resource.RLIMIT_CPU: cpu_seconds,
    }
    for which, most in limits.items():
        if most is not None:
            with contextlib.suppress(OSError, ValueError):  # A lower hard limit is already set.
                resource.setrlimit(which, (most, most))


def own_memory() -> int:
    """Return the size of this process's address space in bytes."""
    pages = read_text(os.getpid(), "statm").split()
    return int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0
