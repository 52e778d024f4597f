"""Records the exception that ends the program, one of its threads, or a recorded block.

Python keeps what ended the main thread in `sys.last_value`, so `sys.excepthook` stays the user's:
whoever replaces it, or looks whether it was replaced, sees no difference. Threads leave no such
trace, so `threading.excepthook` is replaced by a function that calls the one that was there.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import ExceptionUncaught
from inductoscope.recording.layout import stream_paths

# The outermost frame of a program: its own, or that of `python -m`, which calls it.
_BEGINNINGS = (("__main__", "<module>"), ("runpy", "_run_module_as_main"))


def record_until_exit() -> None:
    """Record what ends this process and its threads, and end the recording when Python ends."""
    following = threading.excepthook

    def excepthook(arguments: Any) -> None:
        if SCOPE.active and arguments.exc_type is not SystemExit:
            SCOPE.guard(_record_thread, arguments)
        following(arguments)

    threading.excepthook = excepthook
    atexit.register(_end)


def _end() -> None:
    SCOPE.guard(record_main_thread)
    SCOPE.close()


def record_main_thread() -> None:
    """Record what ended the main thread, if an exception did."""
    error = getattr(sys, "last_value", None)
    entries = getattr(sys, "last_traceback", None)
    if SCOPE.active and isinstance(error, BaseException) and _left_the_program(entries):
        record_uncaught(error, entries)


def _left_the_program(entries: Any) -> bool:
    """Whether a traceback begins where the program does.

    pytest, IPython and debuggers also keep an exception in `sys.last_value` that they have caught:
    its traceback begins in a function that they called.
    """
    if not isinstance(entries, TracebackType):
        return False
    place = entries.tb_frame.f_globals.get("__name__"), entries.tb_frame.f_code.co_name
    return place in _BEGINNINGS


def _record_thread(arguments: Any) -> None:
    name = getattr(arguments.thread, "name", "") or "without a name"
    if arguments.exc_value is not None:
        record_uncaught(arguments.exc_value, arguments.exc_traceback, thread=name)


def record_uncaught(
    error: BaseException, entries: TracebackType | None, *, thread: str = ""
) -> None:
    """Record an exception that nobody caught."""
    SCOPE.emit(
        ExceptionUncaught(
            type=type(error).__name__,
            message=_message(error)[:4000],
            stack=SCOPE.text("".join(traceback.format_tb(entries))),
            thread=thread,
        )
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # The user's own __str__.
        return ""


# --- Records the exception that ends the command before it imports torch --------------------------
#
# Only that of the command itself: Python processes without torch that it starts are none of ours,
# and many fail by design, such as those that try whether a module can be imported.


def record_early_failure(folder: str) -> None:
    """Called when Python ends."""
    if SCOPE.active or not _was_started_by_the_tool(Path(folder)):
        return
    SCOPE.open(Path(folder))
    SCOPE.guard(record_main_thread)
    SCOPE.close()


def _was_started_by_the_tool(folder: Path) -> bool:
    """Whether the process that started this one says so in the stream that it writes."""
    for path in stream_paths(folder):
        if path.name.startswith(f"{os.getppid()}-"):
            with contextlib.suppress(OSError, ValueError, AttributeError), path.open("rb") as file:
                return bool(json.loads(file.readline()).get("role") == "launcher")
    return False
