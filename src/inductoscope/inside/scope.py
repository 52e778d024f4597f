"""The current state of this process: the open recording and the stage being run.

The hooks query whether to record and which compile and graph are current, and emit their events
here. Time is kept per stage, exclusively: while an inner stage runs, the outer one's clock stops.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from inductoscope.recording.events import Event, HookError, Said
from inductoscope.recording.writer import StreamWriter, describe_process
from inductoscope.torch_facts.frames import is_compilers
from inductoscope.torch_facts.stage_lookup import stage_that_raised
from inductoscope.torch_facts.stages import NO_STAGE


@dataclass
class StageFrame:
    """A stage that has been entered and not left yet, on one thread."""

    stage: str
    detail: str
    graph: str
    started: float
    is_part: bool = False  # Part of the stage around it, whose clock keeps running.
    inner_seconds: float = 0.0
    seconds: float = 0.0  # From start to end, inner stages included; set when the stage ends.


@dataclass
class _ThreadState(threading.local):
    """The state of one thread; autograd compiles backward graphs on a thread of its own."""

    stages: list[StageFrame] = field(default_factory=list)
    # The id of AOTInductor's current compile, for which torch has no id.
    ahead_of_time: str = ""
    failure: dict[str, Any] | None = None


# The value that `guard` returns when the recording side of a hook failed.
BROKEN = object()


class Scope:
    """The one scope of this process. Hooks record only while it is active."""

    def __init__(self) -> None:
        self.active = False
        # True in a fork that runs an experiment, where no other experiment may start.
        self.is_redirected = False
        # True while a compile is only timed: hooks then skip descriptions that are slow to print.
        self.is_timing = False
        self._writer: StreamWriter | None = None
        self._thread = _ThreadState()
        self._graphs: dict[str, int] = {}
        self._reported: set[str] = set()

    def open(self, folder: Path) -> None:
        self._writer = StreamWriter(folder, first_event=describe_process)
        self._graphs.clear()
        self._reported.clear()
        self.active = True

    @property
    def writer(self) -> Any:
        """The writer of the event stream; None while nothing is recorded."""
        return self._writer

    def redirect(self, writer: Any) -> None:
        """Send events to another writer; called in a fork that runs an experiment."""
        self._writer = writer
        self._reported.clear()
        self.active = True
        self.is_redirected = True

    @contextlib.contextmanager
    def redirected(self, writer: Any, *, timing: bool = False) -> Iterator[None]:
        """Redirect events inside the block only; `timing` marks compiles that are being timed."""
        before = self._writer, self.active, self.is_redirected, self.is_timing
        self.redirect(writer)
        self.is_timing = timing
        try:
            yield
        finally:
            self._writer, self.active, self.is_redirected, self.is_timing = before

    def close(self) -> None:
        self.active = False
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def emit(self, event: Event) -> None:
        if self._writer is None:
            return
        self._writer.emit(event)
        if self._writer.stopped is not None:
            self.active = False  # The writer has failed for good, so the hooks need not run.

    def text(self, content: str) -> str:
        return self._writer.payload(content) if self._writer is not None else ""

    def json(self, content: Any) -> str:
        return self.text(json.dumps(content, separators=(",", ":"), default=str))

    # --- current stage and graph --------------------------------------------------------------

    @property
    def stages(self) -> list[StageFrame]:
        return self._thread.stages

    @property
    def graph(self) -> str:
        """The key of the graph being compiled on this thread; empty if there is none."""
        for frame in reversed(self._thread.stages):
            if frame.graph:
                return frame.graph
        return ""

    @property
    def thread(self) -> int:
        """The system's id of this thread; 0 for the main one."""
        is_main = threading.get_ident() == threading.main_thread().ident
        return 0 if is_main else threading.get_native_id()

    @property
    def ahead_of_time(self) -> str:
        """The id of AOTInductor's current compile on this thread; empty if there is none."""
        return self._thread.ahead_of_time

    @ahead_of_time.setter
    def ahead_of_time(self, compile_id: str) -> None:
        self._thread.ahead_of_time = compile_id

    def inner_graph(self, name: str | None) -> str:
        """Return the key of a subgraph of the graph being compiled; empty for the graph itself."""
        outer = next((frame.graph for frame in self._thread.stages if frame.graph), "")
        return f"{outer} {name}" if name and outer else ""

    @property
    def stage(self) -> str:
        return self._thread.stages[-1].stage if self._thread.stages else NO_STAGE

    def new_graph(self, compile_id: str, phase: str) -> str:
        """Return a new key for a graph about to be compiled, unique within the process."""
        base = f"{compile_id or '?'} {phase}"
        count = self._graphs[base] = self._graphs.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"

    def enter(self, stage: str, detail: str = "", graph: str = "") -> StageFrame:
        return self._push(StageFrame(stage, detail, graph, time.perf_counter()))

    def enter_part(self, stage: str, detail: str) -> StageFrame:
        """Begin a part of the current stage: one node, one pass. It has no separate clock."""
        return self._push(StageFrame(stage, detail, "", time.perf_counter(), is_part=True))

    def _push(self, frame: StageFrame) -> StageFrame:
        self._thread.stages.append(frame)
        return frame

    def leave(self, frame: StageFrame, *, failed: bool = False) -> float:
        """End a stage and return the seconds spent in it, without those of inner stages.

        A stage that is left normally has handled any exception raised inside it.
        """
        if not failed:
            self._thread.failure = None
        stages = self._thread.stages
        if any(entered is frame for entered in stages):
            while (unseen := stages.pop()) is not frame:
                # An exception left it that its hook did not see: what is in it has been counted.
                frame.inner_seconds += unseen.inner_seconds
        frame.seconds = time.perf_counter() - frame.started
        if stages:
            stages[-1].inner_seconds += frame.inner_seconds if frame.is_part else frame.seconds
        return frame.seconds - frame.inner_seconds

    def forget_thread(self) -> None:
        """Forget the stages of this thread; called in a forked child, which never leaves them."""
        self._thread.stages.clear()
        self._thread.failure = None

    # --- failures -----------------------------------------------------------------------------

    def note_failure(self, error: BaseException, frame: StageFrame) -> None:
        """Remember the stage that an exception came from: the innermost, which sees it first.

        Only marks are kept: a reference would keep the user's tensors alive.
        """
        known = self._thread.failure
        if known is None or known["error"] not in _chain_marks(error):
            self._thread.failure = {
                "error": _mark(error),
                "stage": raising_stage(error, frame.stage),
                "detail": frame.detail,
                "graph": self.graph,
            }

    def failure_of(self, error: BaseException, *, forget: bool = True) -> dict[str, Any] | None:
        """Return where `error` or one of its causes was first seen; `forget` clears the note."""
        known = self._thread.failure
        self._thread.failure = None if forget else known
        return known if known is not None and known["error"] in _chain_marks(error) else None

    # --- errors in the hooks --------------------------------------------------------------------

    def guard(
        self, work: Callable[..., Any], *arguments: Any, of: Callable[..., Any] | None = None
    ) -> Any:
        """Run the recording side of a hook: its errors are recorded, never raised.

        Return `BROKEN` after an error, which is recorded as one of `of`, or of `work`. Exceptions
        from the program's signal handlers, such as for a time limit, are not errors of the hook
        and pass through.
        """
        try:
            return work(*arguments)
        except Exception as error:
            self.take_failure(error, of or work)
            return BROKEN

    def take_failure(self, error: Exception, work: Callable[..., Any]) -> None:
        """Record the error of a hook that is being handled, unless a signal handler raised it."""
        if _raised_by_signal_handler(error):
            raise error
        self._report(work, error)

    def attempt(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run work that may well fail, such as a query that not every tensor supports.

        Return `BROKEN` after an error, which is not recorded.
        """
        try:
            return work(*arguments)
        except Exception as error:
            if _raised_by_signal_handler(error):
                raise
            return BROKEN

    def _report(self, work: Callable[..., Any], error: Exception) -> None:
        name = f"{getattr(work, '__module__', '')}.{getattr(work, '__qualname__', work)}"
        if name not in self._reported:
            self._reported.add(name)
            self.emit(HookError(hook=name, error=f"{type(error).__name__}: {error}"[:500]))


def _mark(error: BaseException) -> tuple[int, type]:
    """Return an identity for an exception; its text is none, because torch appends to it."""
    return id(error), type(error)


def _chain_marks(error: BaseException) -> set[tuple[int, type]]:
    """Return the marks of an exception and of all exceptions that it wraps or was raised from."""
    return set(map(_mark, chain_of(error)))


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that it wraps, was raised from, or was raised while handling."""
    found: set[int] = set()
    queue: list[Any] = [error]
    while queue:
        one = queue.pop(0)
        if isinstance(one, BaseException) and id(one) not in found:
            found.add(id(one))
            yield one
            queue += [one.__cause__, one.__context__, getattr(one, "inner_exception", None)]


def _raised_by_signal_handler(error: BaseException) -> bool:
    """Check whether a signal handler that the program installed is on the traceback."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = [getattr(handler, "__code__", None) for handler in handlers]
    frames = traceback.walk_tb(error.__traceback__)
    # Compared by identity: a code object has no hash if one of its constants has none.
    return any(frame.f_code is code for frame, _ in frames for code in codes)


SCOPE = Scope()


def say(text: str) -> None:
    SCOPE.emit(Said(text=text))


os.register_at_fork(after_in_child=SCOPE.forget_thread)


# --- The stage that raised an exception: that of the innermost code that belongs to one stage -----
#
# The stage that is open can mislead: index propagation runs while the scheduler creates its nodes,
# and the wrapper is written while code is generated.


def raising_stage(error: BaseException, open_stage: str) -> str:
    """Return the stage whose code raised `error` while `open_stage` was open."""
    return stage_that_raised(list(_frames_of(error)), open_stage)


def _frames_of(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield file and function of every frame, innermost first; causes come before effects."""
    for each in reversed(list(causes_of(error))):
        frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        yield from ((_file(frame), frame.f_code.co_name) for frame in reversed(frames))


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it wraps or was raised from, outermost first."""
    seen: set[int] = set()
    inner: Any = error
    while isinstance(inner, BaseException) and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        inner = getattr(inner, "inner_exception", None) or inner.__cause__


def _file(frame: FrameType) -> str:
    """Return the file of a frame; for a method that overrides the compiler's, that of its class."""
    code = frame.f_code
    if is_compilers(code.co_filename) or not code.co_argcount:
        return code.co_filename
    module = type(frame.f_locals.get(code.co_varnames[0])).__module__
    file = f"{module.replace('.', '/')}.py"
    return file if is_compilers(file) else code.co_filename
