"""Inside the program: traces memory from one call of a compiled function to its next one.

A forward pass, its backward pass and the optimizer lie between two calls, so a step holds all of
them. Some calls of each function are traced, and of these the step with the highest peak is kept.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from inductoscope.profiling.memory import allocations
from inductoscope.profiling.memory.allocations import AllocationTrace
from inductoscope.profiling.memory.holders import held_memory, tensors_in
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

# The kind, name and place of a function.
Thing = tuple[str, str, str]

# Calls that are traced: the first only until a later one is, then some of all that follow.
_EARLY = 4
_MOST_STEPS = 8
# Calls whose results are kept to compare them with another run.
_COMPARED = 3
# A step that takes longer is ended.
_LONGEST = 60.0

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


class StepTracer:
    """Decides which steps are traced, and keeps what was seen."""

    def __init__(self) -> None:
        self.has_table = False
        # Raised whenever something is compiled.
        self.compiles = 0
        self._counts: Counter[Thing] = Counter()
        self._traced: Counter[Thing] = Counter()
        self._covered: set[Thing] = set()
        self._open: _OpenStep | None = None
        # The first call of a function that is under way, and its arguments.
        self._first: tuple[Thing, Sequence[Any]] | None = None
        self._thread: int | None = None
        self._kept: dict[Thing, TracedStep] = {}
        self._peaks: list[StepPeak] = []
        self._results: list[CallResult] = []
        self.notes: dict[str, None] = {}

    @property
    def is_open(self) -> bool:
        """Whether a step is being traced on this thread.

        For a GPU, autograd runs backward passes on a thread of its own, and the trace follows it.
        """
        if self._open is None:
            return False
        return allocations.is_traced_here() or self._is_own_thread()

    def _is_own_thread(self) -> bool:
        if self._thread is None:
            self._thread = threading.get_ident()
        if self._thread != threading.get_ident():
            self.notes[THREADS] = None
            return False
        return True

    # --- calls of functions -----------------------------------------------------------------------

    def call_begins(self, thing: Thing, arguments: Sequence[Any], *, waits: bool) -> None:
        """An outermost call begins; the first one `waits` until its graph has been compiled."""
        if not self._is_own_thread():
            return
        if self._open is not None:
            is_late = time.time_ns() - self._open.begin > _LONGEST * 1e9
            if self._open.thing == thing or is_late:
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
        if allocations.is_capturing():
            return
        with self._own_work():
            self._results.append(CallResult(thing, number, summaries_of(result)))

    # --- steps ------------------------------------------------------------------------------------

    def _begin(self, thing: Thing, number: int, arguments: Sequence[Any]) -> None:
        before = held_memory(arguments)
        trace = allocations.start_trace()
        if trace is None:
            self.notes[OWN_PROFILER] = None
            return
        self._open = _OpenStep(thing, number, time.time_ns(), trace, before, self.compiles)

    def close(self, ended_by: str) -> None:
        """The step that is being traced ends."""
        step, self._open = self._open, None
        if step is None:
            return
        end = time.time_ns()
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
        self._peaks.append(StepPeak(name, step.number, peaks_of(found)))
        known = self._kept.get(step.thing)
        if known is None or _rank(found) > _rank(known):
            self._kept[step.thing] = found

    @contextmanager
    def _own_work(self) -> Any:
        begun = time.time_ns()
        try:
            yield
        finally:
            if self._open is not None:
                self._open.own.append((begun, time.time_ns()))

    # --- calls of wrappers ------------------------------------------------------------------------

    def graph_entered(self, graph: str) -> None:
        """A wrapper begins to run."""
        if self._first is not None and self._open is None and self._is_own_thread():
            (thing, arguments), self._first = self._first, None
            self._begin(thing, 1, arguments)
        if self.is_open and self._open is not None:
            self._open.calls.append(WrapperCall(graph, time.time_ns()))

    def graph_named(self, graph: str, values: Mapping[str, Any]) -> None:
        """Variables of a wrapper have these values from now on."""
        if not self.is_open or self._open is None or not self._open.calls:
            return
        now = time.time_ns()
        sizes: dict[str, int] = {}
        for name, value in values.items():
            if type(value) is int:
                sizes[name] = value
                continue
            address, size = _memory_of(value)
            if size:
                self._open.names.append(NamedMemory(now, address, size, name, graph))
        call = self._open.calls[-1]
        if sizes:
            self._open.calls[-1] = _changed(call, sizes={**call.sizes, **sizes})

    def graph_left(self, graph: str, result: Any) -> None:
        """A wrapper is about to return."""
        if not self.is_open or self._open is None:
            return
        for number, call in reversed(list(enumerate(self._open.calls))):
            if call.graph == graph and not call.end:
                returned = tuple(_memory_of(tensor)[0] for _, tensor in tensors_in(result))
                self._open.calls[number] = _changed(call, end=time.time_ns(), returned=returned)
                return

    def operation_made(self, name: str, place: str, result: Any) -> None:
        """An operation in eager returned."""
        if self.is_open and self._open is not None:
            now = time.time_ns()
            for _, tensor in tensors_in(result):
                address, size = _memory_of(tensor)
                self._open.names.append(NamedMemory(now, address, size, name, "", place))

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


def _memory_of(value: Any) -> tuple[int, int]:
    """Where the memory of a tensor begins, and its bytes; nothing for what is none."""
    try:
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except Exception:
        return 0, 0


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


def _rank(step: TracedStep) -> tuple[bool, int]:
    """Steps in which nothing was compiled come first, then those with the highest peak."""
    return not step.compiled and step.number > 1, max(peaks_of(step).values(), default=0)
