"""Makes replacements for torch functions that observe and change nothing.

For every replacement, arguments, result and exceptions pass through unchanged; errors in the
observing code only show in the recording; the frames that it adds are removed from tracebacks, so
that the user reads the same one as without the tool.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from inductoscope.capture.failures import record_error
from inductoscope.capture.scope import BROKEN, SCOPE, StageFrame
from inductoscope.recording.events.compiling import StageEnd, StageStart
from inductoscope.vocabulary.torch_names import Replacement

TORCH_NAMES = {
    "torch._guards": ("CompileContext.current_compile_id",),
    "torch._inductor.virtualized": ("V.graph",),
}

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Before = Callable[[Arguments, Keywords], Any]
After = Callable[[Any, Any, Arguments, Keywords], None]
Failed = Callable[[Any, BaseException], None]

# The code objects of all replacements: those of `watch` share one, those of `glance` another.
_OWN_CODE: set[CodeType] = set()


def watch(
    *, before: Before | None = None, after: After | None = None, failed: Failed | None = None
) -> Replacement:
    """A replacement that calls `before`, the original, then `after` or `failed`.

    `before` gets the arguments and returns a token, which the other two are given.
    """

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not SCOPE.active:
                return original(*args, **kwargs)
            token = None if before is None else SCOPE.guard(before, args, kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                SCOPE.guard(_hide_own_frames, error)
                if failed is not None and token is not BROKEN:
                    SCOPE.guard(failed, token, error)
                raise
            if after is not None and token is not BROKEN:
                SCOPE.guard(after, token, result, args, kwargs)
            return result

        _OWN_CODE.add(watched.__code__)
        return functools.wraps(original)(watched)

    return replacement


class _Due(threading.local):
    """When this thread may be looked at again."""

    at = 0.0


def glance(seconds: float, before: Callable[[], None]) -> Replacement:
    """A replacement that calls `before` now and then, for what is called all the time."""

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


def stage(name: str, *, after: After | None = None) -> Replacement:
    """A replacement that marks a stage: its seconds, and the exceptions that leave it."""

    def enter(args: Arguments, kwargs: Keywords) -> Any:
        return enter_stage(name)

    def leave(frame: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        leave_stage(frame)
        if after is not None:
            after(frame, result, args, kwargs)

    return watch(before=enter, after=leave, failed=fail_stage)


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


def leave_stage(frame: Any, *, failed: bool = False) -> None:
    """End a stage and record its seconds."""
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


def stage_done(frame: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    """The `after` of a hook that only ends its stage."""
    leave_stage(frame)


def fail_stage(frame: Any, error: BaseException) -> None:
    """End a stage that an exception leaves; the outermost one records the exception.

    Usually Dynamo is the outermost, and records it itself. A backward graph that is compiled when
    it is first needed, and a graph compiled ahead of time, have no Dynamo around them.
    """
    if frame is None:
        return
    SCOPE.note_failure(error, frame)
    compile_id = current_compile_id()
    leave_stage(frame, failed=True)
    if not SCOPE.stages:
        record_error(error, compile_id, SCOPE.failure_of(error))


def enter_graph_stage(name: str) -> StageFrame:
    """Begin a stage of the graph that Inductor is compiling, which may be inside another."""
    from torch._inductor.virtualized import V

    inner = getattr(V.graph, "name", None)
    if inner is None and getattr(V.graph, "is_const_graph", False):
        inner = "constants"
    return enter_stage(name, graph=SCOPE.inner_graph(inner))


def current_compile_id() -> str:
    """torch's id of the compile under way ('0/0': frame 0, first compile); empty outside one.

    What AOTInductor compiles has an id of ours.
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
