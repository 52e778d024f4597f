"""Runs on a worker of a cluster: a child process that stays loaded, and answers requests.

The worker itself never runs foreign code and never loads torch. Each of its threads has a child of
its own, which dies with the worker.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inductoscope.errors import ToolFailure
from inductoscope.processes.ending import end_child
from inductoscope.processes.limited import start_group
from inductoscope.processes.messages import receive_message, send_message
from inductoscope.processes.search_path import with_absolute_path

# What is taken from the one who asks: settings of the compiler, and where modules are found. Which
# GPU to use, and where temporary files belong, are the worker's own affair.
_SENT = ("TORCH", "PYTORCH", "TRITON", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "PYTHONPATH")
_KEPT_HERE = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME")
# Tells the child where it may write.
FOLDER_VARIABLE = "INDUCTOSCOPE_WORKPLACE"


def sent_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The part of an environment that a child on another machine gets."""
    return {
        name: value
        for name, value in with_absolute_path(environment).items()
        if name.startswith(_SENT) and name not in _KEPT_HERE
    }


@dataclass(frozen=True)
class ChildKind:
    """Which child to ask: the module that it runs, and its environment."""

    module: str
    environment: tuple[tuple[str, str], ...]


class WarmChild:
    """One child, with a folder for what it writes."""

    def __init__(self, kind: ChildKind) -> None:
        self.kind = kind
        # Held while it is asked something.
        self.busy = threading.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="inductoscope-worker-"))
        ours, theirs = socket.socketpair()
        self._connection = ours
        with theirs:
            self._process = start_group(
                [sys.executable, "-m", kind.module],
                environment=self._environment(),
                folder=self._folder,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
            )

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(_SENT)}
        # The package may be on the path of this process alone.
        root = str(Path(__file__).resolve().parents[2])
        sent = dict(self.kind.environment)
        path = os.pathsep.join([*filter(None, [sent.get("PYTHONPATH")]), root])
        return {**own, **sent, "PYTHONPATH": path, FOLDER_VARIABLE: str(self._folder)}

    def ask(self, request: bytes, seconds: float) -> bytes:
        """Its answer; `ToolFailure` if there is none in time."""
        with self.busy:
            self._connection.settimeout(seconds)
            try:
                send_message(self._connection, request)
                return receive_message(self._connection)
            except OSError as error:
                raise ToolFailure(f"the process that tries candidates is gone: {error}") from error

    def end(self) -> None:
        """End it, and remove what it wrote."""
        self._connection.close()
        end_child(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)


# --- the children of this worker ------------------------------------------------------------------

_children: dict[int, WarmChild] = {}
_turn = threading.Lock()


def ask_child(kind: ChildKind, request: bytes, seconds: float) -> bytes:
    """Ask the child of this thread, which is started if it is not there."""
    child = _child_of_this_thread(kind)
    try:
        return child.ask(request, seconds)
    except BaseException:
        # Whatever it is doing, the next answer would not be to the next question.
        _forget(child)
        raise


def _child_of_this_thread(kind: ChildKind) -> WarmChild:
    thread = threading.get_ident()
    with _turn:
        child = _children.get(thread)
    if child is not None and child.kind == kind:
        return child
    if child is not None:
        _forget(child)
    child = WarmChild(kind)
    with _turn:
        _children[thread] = child
    return child


def _forget(child: WarmChild) -> None:
    with _turn:
        for thread in [thread for thread, other in _children.items() if other is child]:
            del _children[thread]
    child.end()


def end_idle_children() -> None:
    """End the children that nobody waits for; others may use this worker, too."""
    with _turn:
        children = list(_children.values())
    for child in children:
        if child.busy.acquire(blocking=False):
            _forget(child)


@atexit.register
def _end_children() -> None:
    for child in list(_children.values()):
        with contextlib.suppress(OSError):
            _forget(child)
