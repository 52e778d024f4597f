"""Records the exception that ends the program, one of its threads, or a recorded block.

Python keeps the exception that ended the main thread in `sys.last_value`, so `sys.excepthook` need
not be replaced, which a program could notice. For other threads there is no such record, so
`threading.excepthook` is replaced by a function that calls the previous hook.
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

# The outermost frame of a program: its own module, or that of `python -m`.
_BEGINNINGS = (("__main__", "<module>"), ("runpy", "_run_module_as_main"))


def record_until_exit() -> None:
    """Record exceptions that end this process or its threads; close the recording at exit."""
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
    error = getattr(sys, "last_value", None)
    entries = getattr(sys, "last_traceback", None)
    if SCOPE.active and isinstance(error, BaseException) and _left_the_program(entries):
        record_uncaught(error, entries)


def _left_the_program(entries: Any) -> bool:
    """Check whether a traceback begins in the outermost frame of the program.

    pytest, IPython and debuggers also store exceptions that they have caught in `sys.last_value`;
    such a traceback begins in a function that they called.
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
    except Exception:  # The exception's __str__ is the user's code.
        return ""


# --- Records the exception that ends the command before it imports torch --------------------------
#
# Only the command itself is recorded: child Python processes without torch are not of interest, and
# many fail by design, such as those that try whether a module can be imported.


def record_early_failure(folder: str) -> None:
    """Record the exception that ended the command; called at exit."""
    if SCOPE.active or not _was_started_by_the_tool(Path(folder)):
        return
    SCOPE.open(Path(folder))
    SCOPE.guard(record_main_thread)
    SCOPE.close()


def _was_started_by_the_tool(folder: Path) -> bool:
    """Check whether this process was started by the tool, from its parent's event stream."""
    for path in stream_paths(folder):
        if path.name.startswith(f"{os.getppid()}-"):
            with contextlib.suppress(OSError, ValueError, AttributeError), path.open("rb") as file:
                return bool(json.loads(file.readline()).get("role") == "launcher")
    return False
