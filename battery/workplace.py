"""Where batteries and benchmarks work: nothing of it is left behind, however it ends.

Files are in one folder, which is removed. Processes are ended too: also those that a command left
behind, which come to us because we adopt orphans.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds to end by oneself, then seconds to be ended.
_PATIENCE = ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
_LOOK_SECONDS = 0.05


@contextlib.contextmanager
def workplace(name: str, keep: Path | None = None) -> Iterator[Path]:
    """A folder to work in, which goes unless it is to be kept; with it go temporary files."""
    with leaving_nothing_running():
        before, folder = tempfile.tempdir, keep or Path(tempfile.mkdtemp(prefix=f"{name}-"))
        tempfile.tempdir = before if keep else str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = before
            # Those who still write into the folder would be quicker than its removal.
            end_descendants()
            if keep is None:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def leaving_nothing_running() -> Iterator[None]:
    """Processes started inside end with us, also when we are asked to end."""
    adopt_orphans()
    before = {number: signal.signal(number, _end_once) for number in _SIGNALS}
    try:
        yield
    finally:
        end_descendants()
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_once(number: int, _frame: FrameType | None) -> None:
    """Whoever interrupts again would interrupt the tidying up.

    Not SIG_IGN: Python complains of a signal that came just before it was ignored.
    """
    for each in _SIGNALS:
        signal.signal(each, lambda *_: None)
    sys.exit(128 + number)


def adopt_orphans() -> None:
    """Let what our commands leave behind come to us, with its times."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(process: int) -> Iterator[int]:
    """All processes that it has started, and those have, that still run."""
    children: list[str] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            children += (task / "children").read_text().split()
    for child in map(int, children):
        yield child
        yield from descendants(child)


def end_descendants() -> None:
    """First a request: the doctor ends its own children."""
    for number, patience in _PATIENCE:
        end = time.monotonic() + patience
        asked: set[int] = set()
        while time.monotonic() < end and (running := [*_running()]):
            for process in {*running} - asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
            asked |= {*running}
            time.sleep(_LOOK_SECONDS)


def _running() -> Iterator[int]:
    """Descendants that have not ended; of those that have, ours are waited for."""
    for process in descendants(os.getpid()):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(process, os.WNOHANG)[0]:
                continue
        if not _has_ended(process):
            yield process


def _has_ended(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state == "Z"
