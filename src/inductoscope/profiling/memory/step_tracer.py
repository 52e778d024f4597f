"""Inside the program: traces memory from one call of a compiled function to its next one.

A forward pass, its backward pass and the optimizer lie between two calls, so a step holds all of
them. Some calls of each function are traced, and of these the step with the highest peak is kept.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from inductoscope.capture.scope import SCOPE
from inductoscope.profiling.gpu_use import is_capturing
from inductoscope.profiling.memory import allocations
from inductoscope.profiling.memory.allocations import AllocationTrace
from inductoscope.profiling.memory.holders import held_memory, tensors_in
from inductoscope.profiling.memory.main_thread import Deadline, MainThread
from inductoscope.profiling.memory.observed import (
    AllocationEvent,
    CallResult,
    HeldMemory,
    NamedMemory,
    ProcessMemory,
    StepPeak,
    TracedStep,
    WrapperCall,
)
from inductoscope.profiling.memory.summaries import summaries_of
from inductoscope.profiling.memory.unseen import memory_of
from inductoscope.profiling.torch_profiler import (
    LONGEST_WAIT,
    ProgramProfilers,
    is_traced_here,
)

# The kind, name and place of a function.
Thing = tuple[str, str, str]

# Calls that are traced: the first only until a later one is, then some of all that follow.
_EARLY = 4
_MOST_STEPS = 8
# Calls whose results are kept to compare them with another run.
_COMPARED = 3
# A step that takes longer is ended.
LONGEST = 60.0

NEXT_CALL, PROGRAM_ENDED, TIME_UP = "next call", "end of the program", "time limit"
OWN_PROFILER = (
    "The program uses torch.profiler itself: memory was not traced while it did, because only one "
    "profiler can run at a time."
)
THREADS = (
    "The program calls compiled functions from several threads. Only what the thread of the first "
    "call allocates is traced."
)
NO_TABLE = (
    "torch does not say how much memory it had handed out on the CPU: what was there before a step "
    "is counted from tensors that Python can reach, and frees of it are not seen."
)


@dataclass
class _OpenStep:
    """The step that is being traced."""

    thing: Thing
    number: int
    begin: int
    trace: AllocationTrace
    before: tuple[HeldMemory, ...]
    compiles: int
    names: list[NamedMemory] = field(default_factory=list)
    calls: list[WrapperCall] = field(default_factory=list)
    # Times in which the tool itself allocated.
    own: list[tuple[int, int]] = field(default_factory=list)
    deadline: Deadline | None = None


class StepTracer:
    """Decides which steps are traced, and keeps what was seen."""

    def __init__(self, longest: float = LONGEST) -> None:
        """`longest` is how many seconds a step may take."""
        self._longest = longest
        self._main_thread = MainThread(self._end_at_once)
        self.profilers = ProgramProfilers(self._make_way)
        self.has_table = False
        # Raised whenever something is compiled.
        self.compiles = 0
        self._counts: Counter[Thing] = Counter()
        self._traced: Counter[Thing] = Counter()
        self._covered: set[Thing] = set()
        self._open: _OpenStep | None = None
        # The first call of a function that is under way, and its arguments.
        self._first: tuple[Thing, Mapping[Any, Any]] | None = None
        self._thread: int | None = None
        self._kept: dict[Thing, TracedStep] = {}
        self._peaks: list[StepPeak] = []
        self._results: list[CallResult] = []
        self.notes: dict[str, None] = {}

    @property
    def is_open(self) -> bool:
        """Whether a step is being traced on this thread."""
        return self._open_here is not None

    @property
    def _open_here(self) -> _OpenStep | None:
        """The step that is being traced on this thread. It may end at any time.

        For a GPU, autograd runs backward passes on a thread of its own, and the trace follows it.
        """
        step = self._open
        if step is None or not (is_traced_here() or self._is_own_thread()):
            return None
        return step

    def _is_own_thread(self) -> bool:
        if self._thread is None:
            self._thread = threading.get_ident()
        if self._thread != threading.get_ident():
            self.notes[THREADS] = None
            return False
        return True

    # --- calls of functions -----------------------------------------------------------------------

    def call_begins(self, thing: Thing, arguments: Mapping[Any, Any], *, waits: bool) -> None:
        """An outermost call begins; the first one `waits` until its graph has been compiled."""
        if not self._is_own_thread():
            return
        if self._open is not None:
            if self._open.thing == thing or self._is_late(self._open):
                self.close(NEXT_CALL if self._open.thing == thing else TIME_UP)
            else:
                self._covered.add(thing)
        self._counts[thing] += 1
        number = self._counts[thing]
        if self._open is not None or thing in self._covered or not self._is_due(thing, number):
            return
        if number == 1 and waits:
            self._first = thing, arguments
        else:
            self._begin(thing, number, arguments)

    def _is_due(self, thing: Thing, number: int) -> bool:
        if self._traced[thing] >= _MOST_STEPS:
            return False
        return number <= _EARLY or number & (number - 1) == 0

    def call_left(self) -> None:
        """A call is over, however it ended: its arguments are not kept."""
        self._first = None

    def call_ended(self, thing: Thing, result: Any) -> None:
        """An outermost call has returned."""
        if not self._is_own_thread():
            return
        number = self._counts[thing]
        if number <= _COMPARED:
            self.note_result(thing[0] + " " + thing[1], number, result)

    def note_result(self, thing: str, number: int, result: Any) -> None:
        """What a call returned, in a few numbers; not while a CUDA graph is captured."""
        if is_capturing():
            return
        with self._own_work():
            self._results.append(CallResult(thing, number, summaries_of(result)))

    # --- steps ------------------------------------------------------------------------------------

    def _begin(self, thing: Thing, number: int, arguments: Mapping[Any, Any]) -> None:
        before = held_memory(arguments)
        if not self.profilers.leave_it_free:
            self.notes[OWN_PROFILER] = None
            return
        trace = allocations.start_trace()
        step = _OpenStep(thing, number, trace.begun, trace, before, self.compiles)
        self._main_thread.prepare()
        self._open = step
        step.deadline = Deadline(self._longest, lambda: self._time_is_up(step))

    def _taken(self) -> _OpenStep | None:
        """The step that was open until now: nobody else ends it."""
        step, self._open = self._open, None
        if step is not None and step.deadline is not None:
            step.deadline.meet()
        return step

    def _is_late(self, step: _OpenStep) -> bool:
        return time.monotonic_ns() - step.begin >= self._longest * 1e9

    def _time_is_up(self, step: _OpenStep) -> None:
        """On a thread of its own: a trace ends only on the thread on which it began.

        Where that is not the main thread, the next call that is seen there ends it.
        """
        self._main_thread.ask_until(lambda: self._open is not step, math.inf)

    def _end_at_once(self) -> None:
        """On the main thread, which may be anywhere in the program."""
        step = self._open
        if step is None or self._thread != threading.get_ident() or allocations.is_in_backward():
            return
        if self.profilers.are_used:
            SCOPE.guard(self._drop)
        elif self._is_late(step):
            SCOPE.guard(self.close, TIME_UP)

    # --- profilers of the program's own -----------------------------------------------------------

    def _make_way(self) -> None:
        """The program is about to use torch's profiler: ours ends, and nothing of it is kept."""
        if self._open is None:
            return
        self.notes[OWN_PROFILER] = None
        if self._thread == threading.get_ident():
            self._drop()
        elif not self._main_thread.ask_until(lambda: self._open is None, LONGEST_WAIT):
            self._taken()  # It goes on unread: to end it from here would crash the program.

    def _drop(self) -> None:
        step = self._taken()
        if step is not None:
            step.trace.end()

    def close(self, ended_by: str) -> None:
        """The step that is being traced ends."""
        step = self._taken()
        if step is None:
            return
        end = time.monotonic_ns()
        events = tuple(event for event in step.trace.stop() if not _is_in(event.at, step.own))
        kind, name, place = step.thing
        self._traced[step.thing] += 1
        found = TracedStep(
            name,
            kind,
            place,
            step.number,
            step.begin,
            end,
            step.compiles != self.compiles,
            ended_by,
            events,
            tuple(step.names),
            tuple(step.calls),
            step.before,
            held_memory(),
            self.has_table,
        )
        if events:  # Without one, nothing is known of its memory.
            self._peaks.append(StepPeak(name, step.number, peaks_of(found)))
        known = self._kept.get(step.thing)
        if known is None or _rank(found) > _rank(known):
            self._kept[step.thing] = found

    @contextmanager
    def _own_work(self) -> Any:
        step, begun = self._open, time.monotonic_ns()
        try:
            yield
        finally:
            if step is not None:
                step.own.append((begun, time.monotonic_ns()))

    # --- calls of wrappers ------------------------------------------------------------------------

    def graph_entered(self, graph: str) -> None:
        """A wrapper begins to run."""
        if self._first is not None and self._open is None and self._is_own_thread():
            (thing, arguments), self._first = self._first, None
            self._begin(thing, 1, arguments)
        step = self._open_here
        if step is not None:
            step.calls.append(WrapperCall(graph, time.monotonic_ns()))

    def graph_named(self, graph: str, values: Mapping[str, Any]) -> None:
        """Variables of a wrapper have these values from now on."""
        step = self._open_here
        if step is None or not step.calls:
            return
        now = time.monotonic_ns()
        sizes: dict[str, int] = {}
        for name, value in values.items():
            if type(value) is int:
                sizes[name] = value
                continue
            address, size = memory_of(value)
            if size:
                step.names.append(NamedMemory(now, address, size, name, graph))
        call = step.calls[-1]
        if sizes:
            step.calls[-1] = _changed(call, sizes={**call.sizes, **sizes})

    def graph_left(self, graph: str, result: Any) -> None:
        """A wrapper is about to return."""
        step = self._open_here
        if step is None:
            return
        for number, call in reversed(list(enumerate(step.calls))):
            if call.graph == graph and not call.end:
                returned = tuple(memory_of(tensor)[0] for _, tensor in tensors_in(result))
                step.calls[number] = _changed(call, end=time.monotonic_ns(), returned=returned)
                return

    def operation_made(self, name: str, place: str, result: Any) -> None:
        """An operation in eager returned."""
        step = self._open_here
        if step is not None:
            now = time.monotonic_ns()
            for _, tensor in tensors_in(result):
                address, size = memory_of(tensor)
                step.names.append(NamedMemory(now, address, size, name, "", place))

    # --- what was seen ----------------------------------------------------------------------------

    def as_data(self, pid: int) -> ProcessMemory:
        """Everything that was seen so far."""
        if not self.has_table:
            self.notes[NO_TABLE] = None
        steps = tuple(self._kept.values())
        return ProcessMemory(
            pid, steps, tuple(self._peaks), tuple(self._results), tuple(self.notes)
        )


def _is_in(at: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= at <= end for begin, end in spans)


def _changed(call: WrapperCall, **values: Any) -> WrapperCall:
    return WrapperCall(**{**vars(call), **values})


def peaks_of(step: TracedStep) -> dict[str, int]:
    """The most bytes on each device while a step ran."""
    found: dict[str, int] = {}
    now: dict[str, int] = {}
    for event in step.events:
        before = now.setdefault(event.device, bytes_before(step, event))
        now[event.device] = before + event.bytes
        found[event.device] = max(found.get(event.device, before), now[event.device])
    return found


def bytes_before(step: TracedStep, first: AllocationEvent) -> int:
    """Bytes that were in use on a device before its first event."""
    if step.has_totals or first.device != "cpu":
        return first.total - first.bytes
    return sum(block.bytes for block in step.before if block.device == first.device)


def _rank(step: TracedStep) -> tuple[bool, bool, int]:
    """Steps that show memory come first, then those in which nothing was compiled, then those with
    the highest peak.
    """
    peak = max(peaks_of(step).values(), default=0)
    return bool(step.events), not step.compiled and step.number > 1, peak
