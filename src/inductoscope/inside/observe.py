"""Makes replacements for torch functions that observe and change nothing.

For every replacement, arguments, result and exceptions pass through unchanged; errors in the
observing code only show in the recording; the frames that it adds are removed from tracebacks, so
that the user reads the same one as without the tool.
"""

from __future__ import annotations

import functools
import itertools
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator, Mapping
from types import CodeType, TracebackType
from typing import Any

from inductoscope.inside.scope import SCOPE, StageFrame, causes_of
from inductoscope.recording.events import CompileFailed, StageEnd, StageStart
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import innermost_users, shorten
from inductoscope.torch_facts.torch_names import Replacement

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
# What an observer does around a call: at its only `yield` the call is made. `yield` returns the
# result, or raises the exception that the call raised.
Watching = Generator[None, Any, Any]
Observer = Callable[[Arguments, Keywords], Watching | None]

# The code of all replacements and observers: one code object for all that a function makes.
_OWN_CODE: set[CodeType] = set()


def watch(observer: Observer) -> Replacement:
    """Make a replacement that runs `observer` around the original; without a `yield`, before it."""
    _OWN_CODE.add(observer.__code__)

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not SCOPE.active:
                return original(*args, **kwargs)
            # Not by `guard`, which would double what a watched call costs.
            watching: Watching | None = None
            try:
                watching = observer(args, kwargs)
                if watching is not None:
                    next(watching)
            except Exception as ours:
                SCOPE.take_failure(ours, observer)
                watching = None
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                SCOPE.guard(_hide_own_frames, error)
                if watching is not None:
                    SCOPE.guard(_raise_in, watching, error, of=observer)
                raise
            if watching is not None:
                try:
                    watching.send(result)
                except StopIteration:
                    pass  # The observer is through.
                except Exception as ours:
                    SCOPE.take_failure(ours, observer)
            return result

        _OWN_CODE.add(watched.__code__)
        return functools.wraps(original)(watched)

    return replacement


def _raise_in(watching: Watching, error: BaseException) -> None:
    """Raise the program's exception in an observer; it leaves it as it came."""
    entries = error.__traceback__
    try:
        watching.throw(error)
    except StopIteration:
        pass
    except BaseException as raised:
        # Python turns a StopIteration that leaves a generator into a RuntimeError.
        if raised is not error and raised.__cause__ is not error:
            raise
    finally:
        error.__traceback__ = entries


def instead(function: Callable[[], Callable[..., Any]], *given: Any) -> Replacement:
    """Make a replacement that delegates the call to another function, whose parameters are the
    original, then what is `given` here, then the arguments of the call.

    `function` imports and returns that function, because hooks are made while torch is imported.
    While nothing is recorded, and in a fork that runs an experiment, the original is called.
    """

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not SCOPE.active or SCOPE.is_redirected:
                return original(*args, **kwargs)
            return function()(original, *given, *args, **kwargs)

        return call

    return replacement


def around(function: Callable[..., Any]) -> Replacement:
    """Make a replacement that calls `function` with the original and the arguments of the call."""

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        return call

    return replacement


class OverheardLogger:
    """A wrapper around torch's logger that also passes messages of some levels to a callback.

    The callback gets them whatever level the user has set; what the user sees stays the same.
    """

    def __init__(
        self, logger: Any, levels: Collection[str], heard: Callable[[Any, Arguments], None]
    ) -> None:
        self._logger, self._levels, self._heard = logger, levels, heard

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._logger, name)
        if name not in self._levels:
            return found

        def log(message: Any, *args: Any, **kwargs: Any) -> None:
            if SCOPE.active:
                SCOPE.guard(self._heard, message, args)
            # The log line must name the caller in torch, not this wrapper.
            found(message, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})

        return log


class _Due(threading.local):
    """The time from which the next call on this thread is observed again."""

    at = 0.0


def glance(seconds: float, before: Callable[[], None]) -> Replacement:
    """Make a replacement that calls `before` at most every `seconds`, for hot functions."""

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        due = _Due()

        def watched(*args: Any, **kwargs: Any) -> Any:
            if time.perf_counter() >= due.at and SCOPE.active:
                due.at = time.perf_counter() + seconds
                SCOPE.guard(before)
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                SCOPE.guard(_hide_own_frames, error)
                raise

        _OWN_CODE.add(watched.__code__)
        return functools.wraps(original)(watched)

    return replacement


def in_stage(name: str, *, detail: str = "", of_graph: bool = False) -> Watching:
    """Mark the call as a stage: its seconds, and the exceptions that leave it. Return its result.

    `of_graph` marks a stage of the graph that Inductor is compiling.
    """
    frame = enter_graph_stage(name) if of_graph else enter_stage(name, detail=detail)
    return (yield from until_left(frame))


def until_left(frame: StageFrame | None) -> Watching:
    """Make the call inside a stage that has begun, and end the stage. Return the call's result."""
    try:
        result = yield
    except BaseException as error:
        fail_stage(frame, error)
        raise
    leave_stage(frame)
    return result


_OWN_CODE.update((in_stage.__code__, until_left.__code__))


def stage(name: str, *, of_graph: bool = False) -> Replacement:
    def observer(args: Arguments, kwargs: Keywords) -> Watching:
        return in_stage(name, of_graph=of_graph)

    return watch(observer)


def enter_stage(name: str, *, detail: str = "", graph: str = "") -> StageFrame:
    """Begin a stage and record that, so that the recording shows where a process died."""
    frame = SCOPE.enter(name, detail, graph)
    SCOPE.emit(
        StageStart(
            stage=name,
            detail=detail,
            graph=SCOPE.graph,
            compile=current_compile_id(),
            thread=SCOPE.thread,
        )
    )
    return frame


def leave_stage(frame: StageFrame | None, *, failed: bool = False) -> None:
    if frame is None:
        return
    graph, compile_id = SCOPE.graph, current_compile_id()
    seconds = SCOPE.leave(frame, failed=failed)
    SCOPE.emit(
        StageEnd(
            stage=frame.stage,
            detail=frame.detail,
            graph=graph,
            compile=compile_id,
            seconds=round(seconds, 6),
            thread=SCOPE.thread,
        )
    )


def fail_stage(frame: StageFrame | None, error: BaseException) -> None:
    """End a stage that an exception leaves; the outermost one records the exception.

    Usually Dynamo is the outermost stage, and its hook records the exception. A lazily compiled
    backward graph, and a graph compiled ahead of time, have no Dynamo around them.
    """
    if frame is None:
        return
    SCOPE.note_failure(error, frame)
    compile_id = current_compile_id()
    leave_stage(frame, failed=True)
    if not SCOPE.stages:
        record_error(error, compile_id, SCOPE.failure_of(error))


def in_part(stage: str, detail: str) -> Watching:
    """Mark the call as a part of the current stage. Return its result."""
    frame = SCOPE.enter_part(stage, detail)
    try:
        result = yield
    except BaseException as error:
        SCOPE.note_failure(error, frame)
        SCOPE.leave(frame, failed=True)
        raise
    SCOPE.leave(frame)
    return result


_OWN_CODE.add(in_part.__code__)


def enter_graph_stage(name: str) -> StageFrame:
    """Begin a stage of the graph that Inductor is compiling, which may be a subgraph."""
    from torch._inductor.virtualized import V

    inner = getattr(V.graph, "name", None)
    if inner is None and getattr(V.graph, "is_const_graph", False):
        inner = "constants"
    return enter_stage(name, graph=SCOPE.inner_graph(inner))


def current_compile_id() -> str:
    """Return torch's id of the current compile ('0/0': frame 0, first compile); "" outside one.

    Compiles by AOTInductor have an id made by this tool.
    """
    if SCOPE.ahead_of_time:
        return SCOPE.ahead_of_time
    import torch._guards

    found = torch._guards.CompileContext.current_compile_id()
    return "" if found is None else str(found)


def _hide_own_frames(error: BaseException) -> None:
    """Unlink the frames of replacements from the traceback, the one being left included.

    A bare `raise` adds no entry for the frame that it leaves (from Python 3.11 on), so what is
    removed here stays removed.
    """
    head = _past_own(error.__traceback__)
    error.__traceback__ = head
    while head is not None:
        following = _past_own(head.tb_next)
        if following is not head.tb_next:
            head.tb_next = following
        head = following


def _past_own(entry: TracebackType | None) -> TracebackType | None:
    while entry is not None and entry.tb_frame.f_code in _OWN_CODE:
        entry = entry.tb_next
    return entry


# --- Records the exceptions that leave the compiler -----------------------------------------------


def record_error(error: BaseException, compile_id: str, origin: Mapping[str, Any] | None) -> None:
    """Record an exception that leaves the compiler; `origin` is where it was first seen."""
    _hide_own_frames(error)
    origin = origin or {}
    SCOPE.emit(
        CompileFailed(
            compile=compile_id,
            graph=origin.get("graph", ""),
            stage=origin.get("stage", stages.DYNAMO),
            detail=origin.get("detail", ""),
            type=type(error).__name__,
            message=str(error)[:4000],
            # The exceptions that torch wrapped, outermost first.
            cause=tuple(map(_one_cause, itertools.islice(causes_of(error), 1, 9))),
            source=_user_line(error),
            raised_in=tuple(_raising_functions(error)),
            traceback=SCOPE.text("".join(traceback.format_exception(error))),
        )
    )


def _one_cause(error: BaseException) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        # This error's text is the whole command line, which the compiler's event already holds.
        program = error.cmd[0] if isinstance(error.cmd, (list, tuple)) else error.cmd
        return f"CalledProcessError: {program} ended with exit status {error.returncode}"
    return f"{type(error).__name__}: {str(error)[:1000]}"


def _raising_functions(error: BaseException) -> list[str]:
    """Return the compiler's functions on the traceback of an exception, innermost first."""
    inner = getattr(error, "inner_exception", None)
    traced = error if error.__traceback__ is not None else inner
    frames = traceback.extract_tb(traced.__traceback__) if traced is not None else []
    return [f"{f.name} ({shorten(f.filename)}:{f.lineno})" for f in reversed(frames[-4:])]


def _user_line(error: BaseException) -> str:
    """Return the line of the user's code that Dynamo was tracing; empty if it is unknown."""
    stack = getattr(error, "real_stack", None) or ()
    frame: Any = innermost_users(stack, lambda frame: frame.filename)
    return f"{frame.filename}:{frame.lineno}" if frame is not None else ""
