"""Records the exceptions that leave the compiler."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Mapping
from typing import Any

from inductoscope.capture.scope import SCOPE
from inductoscope.recording.events.compiling import CompileFailed
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.frames import innermost_users, shorten


def record_error(error: BaseException, compile_id: str, origin: Mapping[str, Any] | None) -> None:
    """Record an exception that leaves the compiler; `origin` is where it was first seen."""
    origin = origin or {}
    SCOPE.emit(
        CompileFailed(
            compile=compile_id,
            graph=origin.get("graph", ""),
            stage=origin.get("stage", stages.DYNAMO),
            detail=origin.get("detail", ""),
            type=type(error).__name__,
            message=str(error)[:4000],
            cause=tuple(_inner_causes(error)),
            source=_user_line(error),
            raised_in=tuple(_raising_functions(error)),
            traceback=SCOPE.text("".join(traceback.format_exception(error))),
        )
    )


def _inner_causes(error: BaseException) -> list[str]:
    """The exceptions that torch wrapped, outermost first."""
    causes: list[str] = []
    inner: Any = error
    for _ in range(8):
        inner = getattr(inner, "inner_exception", None) or inner.__cause__
        if inner is None:
            break
        causes.append(_one_cause(inner))
    return causes


def _one_cause(error: BaseException) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        # Its text is the whole command line, which the compiler's event already holds.
        program = error.cmd[0] if isinstance(error.cmd, (list, tuple)) else error.cmd
        return f"CalledProcessError: {program} ended with exit status {error.returncode}"
    return f"{type(error).__name__}: {str(error)[:1000]}"


def _raising_functions(error: BaseException) -> list[str]:
    """The functions of the compiler that the exception came through, innermost first."""
    inner = getattr(error, "inner_exception", None)
    traced = error if error.__traceback__ is not None else inner
    frames = traceback.extract_tb(traced.__traceback__) if traced is not None else []
    return [f"{f.name} ({shorten(f.filename)}:{f.lineno})" for f in reversed(frames[-4:])]


def _user_line(error: BaseException) -> str:
    """The line of the user's code that Dynamo was tracing; empty if it does not say."""
    stack = getattr(error, "real_stack", None) or ()
    frame: Any = innermost_users(stack, lambda frame: frame.filename)
    return f"{frame.filename}:{frame.lineno}" if frame is not None else ""
