"""Warm child processes on a cluster worker, which stay loaded and answer requests.

The worker itself never runs user code and never loads torch. Each of its threads has its own child,
which dies with the worker.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from inductoscope.processes.children import Child, ChildCall, with_absolute_path

# What is taken from the one who asks: settings of the compiler, and where modules are found. Which
# GPU to use, and where temporary files belong, are the worker's own affair.
_SENT = ("TORCH", "PYTORCH", "TRITON", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "PYTHONPATH")
_KEPT_HERE = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME")


def sent_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that a child on another machine gets."""
    return {
        name: value
        for name, value in with_absolute_path(environment).items()
        if name.startswith(_SENT) and name not in _KEPT_HERE
    }


@dataclass(frozen=True)
class ChildKind:
    """The kind of a child: the function that it serves, and its environment."""

    function: str
    environment: tuple[tuple[str, str], ...]
    # The limit on concurrently busy children of this worker, among those that have one.
    at_once: int | None = None


class WarmChild:
    """One warm child, with a folder for its files."""

    def __init__(self, kind: ChildKind) -> None:
        self.kind = kind
        # Whether a request is pending; written only under `_turn`.
        self.is_busy = False
        self._folder = Path(tempfile.mkdtemp(prefix="inductoscope-worker-"))
        own = {name: value for name, value in os.environ.items() if not name.startswith(_SENT)}
        self._child = Child(
            ChildCall(
                kind.function,
                {"folder": str(self._folder)},
                {**own, **dict(kind.environment)},
                self._folder,
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, request: bytes, seconds: float) -> bytes:
        """Send a request and return the answer; `ToolFailure` if there is none in time."""
        self._child.send(b64encode(request).decode())
        return b64decode(self._child.answer("answer", seconds)["data"])

    def end(self) -> None:
        self._child.end()
        shutil.rmtree(self._folder, ignore_errors=True)


# --- the children of this worker ------------------------------------------------------------------

_children: dict[int, WarmChild] = {}
_turn = threading.Condition()


def ask_child(kind: ChildKind, request: bytes, seconds: float) -> bytes:
    """Send a request to this thread's child, starting the child if necessary."""
    child = _taken(kind)
    try:
        return child.ask(request, seconds)
    except BaseException:
        # The child may still be busy, and its next answer would belong to this request.
        _end_those(lambda other: other is child)
        raise
    finally:
        with _turn:
            child.is_busy = False
            _turn.notify_all()


def _taken(kind: ChildKind) -> WarmChild:
    """Acquire this thread's child and mark it busy, so that no other thread ends it."""
    thread = threading.get_ident()
    own = _children.get(thread)
    _end_those(lambda child: child is own and child.kind != kind)
    with _turn:
        _turn.wait_for(lambda: _has_room(kind))
        child = _children.get(thread)
        if child is None:
            child = _children[thread] = WarmChild(kind)
        child.is_busy = True
    return child


def _has_room(kind: ChildKind) -> bool:
    if kind.at_once is None:
        return True
    limited = (child for child in _children.values() if child.kind.at_once is not None)
    return sum(child.is_busy for child in limited) < kind.at_once


def _end_those(wanted: Callable[[WarmChild], bool]) -> None:
    """End the matching children; removing a child under the lock ensures that it is ended once."""
    with _turn:
        removed = {thread: child for thread, child in _children.items() if wanted(child)}
        for thread in removed:
            del _children[thread]
    for child in removed.values():
        with contextlib.suppress(OSError):
            child.end()


def end_idle_children() -> None:
    """End idle children only, since other clients may use this worker, too."""
    _end_those(lambda child: not child.is_busy)


@atexit.register
def _end_children() -> None:
    _end_those(lambda _child: True)
