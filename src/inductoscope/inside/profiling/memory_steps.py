"""Traces the memory of steps inside a process of the user's program.

The profiler traces memory from one call of a compiled function to its next one. A forward pass, its
backward pass and the optimizer lie between two calls, so a step holds all of them. torch's
allocators report every allocation and free to torch.profiler; rewritten wrappers say which buffer
lies where. Some calls of each function are traced, and of these the step with the highest peak is
kept.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import gc
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from inductoscope.inside.gpu_use import is_capturing
from inductoscope.inside.profiling.torch_profiler import (
    LONGEST_WAIT,
    ProgramProfilers,
    is_traced_here,
    used_by_the_tool,
)
from inductoscope.inside.scope import BROKEN, SCOPE
from inductoscope.profiling.memory_trace import (
    CONSTANT,
    GRADIENT,
    HELD,
    INPUT,
    STATE,
    WEIGHT,
    AllocationEvent,
    CallResult,
    HeldMemory,
    NamedMemory,
    ProcessMemory,
    StepPeak,
    TensorSummary,
    TracedStep,
    WrapperCall,
)

# The kind, name and source line of a function.
Thing = tuple[str, str, str]

# The traced calls: the first counts only until a later one is traced, then a selection.
_EARLY = 4
_MOST_STEPS = 8
# The number of calls whose results are kept for comparison with another run.
_COMPARED = 3
# A step that takes more seconds is ended.
LONGEST = 60.0
# The depth to which arguments and states are searched for tensors.
_DEPTH = 4

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


# --- inspecting tensors ---------------------------------------------------------------------------


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Disable the program's dispatch modes and autograd inside the block."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def memory_of(tensor: Any) -> tuple[int, int]:
    """Return the address and bytes of a tensor's storage; (0, 0) if it has none of its own."""
    found = SCOPE.attempt(_storage, tensor)
    return (0, 0) if found is BROKEN else found


def _storage(tensor: Any) -> tuple[int, int]:
    import torch

    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()


def tensors_in(value: Any, name: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield tensors in nested lists, tuples and dictionaries, with the path to each."""
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    parts: Iterator[tuple[Any, Any]] = iter(())
    if depth and isinstance(value, Mapping):
        parts = iter(value.items())
    elif depth and isinstance(value, (list, tuple)):
        parts = enumerate(value)
    for key, part in parts:
        way = f"{name} {key}".strip() if isinstance(key, (str, int)) else name
        yield from tensors_in(part, way, depth - 1)


def held_memory(arguments: Mapping[Any, Any] | None = None) -> tuple[HeldMemory, ...]:
    """Return every block of memory reachable from Python once, with its most descriptive holder.

    `arguments` are those of a call, by position or name.
    """
    found: dict[tuple[str, int], HeldMemory] = {}
    with unseen():
        for tensor, kind, name in _holders(arguments or {}):
            address, size = memory_of(tensor)
            if size:
                block = HeldMemory(address, size, str(tensor.device), kind, name)
                found.setdefault((block.device, address), block)
    return tuple(found.values())


def _holders(arguments: Mapping[Any, Any]) -> Iterator[tuple[Any, str, str]]:
    torch: Any = sys.modules["torch"]
    # Compared by type alone: isinstance may run code of the program's objects.
    objects = [(thing, type(thing)) for thing in gc.get_objects()]
    tensors = [thing for thing, cls in objects if cls in (torch.Tensor, torch.nn.Parameter)]
    modules = [thing for thing, cls in objects if issubclass(cls, torch.nn.Module)]
    # Names in the outermost modules are the longest, and the most descriptive.
    for module in sorted(modules, key=lambda module: -len(list(module.modules()))):
        for name, weight in module.named_parameters():
            yield weight, WEIGHT, name
            if weight.grad is not None:
                yield weight.grad, GRADIENT, f"gradient of {name}"
        for name, constant in module.named_buffers():
            yield constant, CONSTANT, name
    for tensor in tensors:
        # Trainable leaf tensors outside of any module.
        if tensor.is_leaf and tensor.requires_grad:
            yield tensor, WEIGHT, ""
            if tensor.grad is not None:
                yield tensor.grad, GRADIENT, ""
    for thing, cls in objects:
        if issubclass(cls, torch.optim.Optimizer):
            for name, tensor in tensors_in(getattr(thing, "state", None)):
                yield tensor, STATE, f"{cls.__name__} {name}"
    for name, tensor in tensors_in(arguments):
        yield tensor, INPUT, f"argument {name}"
    for tensor in tensors:
        yield tensor, HELD, ""


# --- the results of calls -------------------------------------------------------------------------

_MOST_TENSORS = 256
_MOST_VALUES = 16


def summaries_of(result: Any) -> tuple[TensorSummary, ...]:
    """Summarize every plain tensor of a result; skip those that cannot be summed."""
    import torch

    # A tensor subclass of the program may run code of its own.
    plain = (t for _, t in tensors_in(result) if type(t) in (torch.Tensor, torch.nn.Parameter))
    with unseen():
        found = [SCOPE.attempt(_summary, tensor) for tensor in islice(plain, _MOST_TENSORS)]
    return tuple(summary for summary in found if summary is not BROKEN)


def _summary(tensor: Any) -> TensorSummary:
    torch: Any = sys.modules["torch"]
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    if real.is_floating_point():
        total = float(real.sum(dtype=torch.float64))
        norm = float(torch.linalg.vector_norm(real, dtype=torch.float64))
    else:
        total = float(real.sum(dtype=torch.int64))
        norm = math.fabs(total)
    count = min(real.numel(), _MOST_VALUES)
    some = [float(total)]
    if real.dim() and count:
        places = torch.arange(count, device="cpu") * real.numel() // count
        some = real[torch.unravel_index(places, real.shape)].double().tolist()
    return TensorSummary(tuple(tensor.shape), str(tensor.dtype), total, norm, tuple(some))


# --- the trace ------------------------------------------------------------------------------------

_SWITCH = "FLAGS_caffe2_report_cpu_memory_usage"
# Marks whose times are known by both clocks.
_BEGUN, _ENDED = "inductoscope: trace begun", "inductoscope: trace ended"


def keep_table() -> bool:
    """Have the CPU allocator track the size of every block; return False if that is impossible.

    The size of a freed block is known only if it was allocated while the table was kept.
    """
    import torch

    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
    with contextlib.suppress(OSError, ValueError):
        ctypes.c_bool.in_dll(ctypes.CDLL(path), _SWITCH).value = True
        return True
    return False


class AllocationTrace:
    """A trace in progress, on the thread that began it.

    Its times are those of the monotonic clock. The profiler uses the system clock, which may be
    adjusted meanwhile; two marks with times by both clocks give the offset.
    """

    def __init__(self) -> None:
        import torch

        self._profiler = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
        )
        with used_by_the_tool():
            self._profiler.start()
        self.begun = _mark(_BEGUN)

    def end(self) -> None:
        """End the trace and discard it."""
        with used_by_the_tool():
            self._profiler.stop()

    def stop(self) -> tuple[AllocationEvent, ...]:
        """End the trace and return the allocations and frees in order of time."""
        ended = _mark(_ENDED)
        self.end()
        tree = self._profiler.profiler.kineto_results.experimental_event_tree()
        found, marks = _read(tree)
        if len(marks) < 2:
            return ()
        first, last = marks[_BEGUN], marks[_ENDED]

        def on_clock(at: int) -> int:
            return self.begun + (at - first) * (ended - self.begun) // ((last - first) or 1)

        timed = (replace(event, at=on_clock(event.at)) for event in found)
        return tuple(sorted(timed, key=lambda event: event.at))


def _mark(name: str) -> int:
    from torch._C._profiler import _RecordFunctionFast

    with _RecordFunctionFast(name):
        return time.monotonic_ns()


def _read(tree: Sequence[Any]) -> tuple[list[AllocationEvent], dict[str, int]]:
    """Return the allocations and frees, and the times of the marks, by the profiler's clock."""
    from torch._C._profiler import _EventType

    found, marks = [], {}
    # Traversed iteratively: the tree may be deeper than Python's recursion limit.
    left = [(event, "") for event in tree]
    while left:
        event, operation = left.pop()
        kind, fields = event.typed
        if kind == _EventType.Allocation:
            about = fields.ptr, fields.alloc_size, fields.total_allocated, str(fields.device)
            found.append(AllocationEvent(event.start_time_ns, *about, operation))
        if kind == _EventType.TorchOp:
            operation = event.name
            if operation in (_BEGUN, _ENDED):
                marks[operation] = event.start_time_ns
        left += [(child, operation) for child in event.children]
    return found, marks


def _is_in_backward() -> bool:
    """Check whether autograd runs on this thread; it would re-enable a profiler ended there."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


class _MainThread:
    """Runs work on the main thread soon, whatever that thread is doing.

    A trace can end only on the thread that began it. Python runs signal handlers in the main
    thread, between two bytecode instructions. A request only sets Python's flag for a pending
    signal: no signal is sent, so no system call is interrupted.
    """

    # A real-time signal that programs hardly ever use; only Linux has these.
    _number: Any = signal.SIGRTMAX - 4 if hasattr(signal, "SIGRTMAX") else None

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def prepare(self) -> None:
        """Install the handler, once and in the main thread, unless the program uses the signal."""
        is_main = threading.get_ident() == threading.main_thread().ident
        if self._number and is_main and signal.getsignal(self._number) == signal.SIG_DFL:
            signal.signal(self._number, self._asked)

    def _asked(self, number: int, frame: Any) -> None:
        self._work()

    def ask_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Repeat the request until the work is done, for `seconds` at most; return `is_done()`."""
        end = time.monotonic() + seconds
        while not is_done() and time.monotonic() < end:
            if not self._number or signal.getsignal(self._number) != self._asked:
                break
            _thread.interrupt_main(self._number)
            time.sleep(0.05)
        return is_done()


# --- steps ----------------------------------------------------------------------------------------


@dataclass
class _OpenStep:
    thing: Thing
    number: int
    trace: AllocationTrace
    before: tuple[HeldMemory, ...]
    compiles: int
    names: list[NamedMemory] = field(default_factory=list)
    calls: list[WrapperCall] = field(default_factory=list)
    # Time spans in which the tool itself allocated.
    own: list[tuple[int, int]] = field(default_factory=list)
    # Set when the step has ended.
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def begin(self) -> int:
        return self.trace.begun

    def note(self, tensor: Any, name: str, graph: str = "", place: str = "") -> None:
        address, size = memory_of(tensor)
        if size:
            self.names.append(NamedMemory(time.monotonic_ns(), address, size, name, graph, place))


class StepTracer:
    """Decides which steps are traced, and keeps their events."""

    def __init__(self, longest: float = LONGEST) -> None:
        """`longest` is the most seconds that a step may take."""
        self._longest = longest
        self._main_thread = _MainThread(self._end_at_once)
        self.profilers = ProgramProfilers(self._make_way)
        self.has_table = False
        # Incremented whenever a compile begins.
        self.compiles = 0
        self._counts: Counter[Thing] = Counter()
        self._traced: Counter[Thing] = Counter()
        # Functions that are called in the steps of others.
        self._covered: set[Thing] = set()
        self._open: _OpenStep | None = None
        # The current first call of a function, and its arguments.
        self._first: tuple[Thing, Mapping[Any, Any]] | None = None
        self._thread: int | None = None
        self._kept: dict[Thing, TracedStep] = {}
        self._peaks: list[StepPeak] = []
        self._results: list[CallResult] = []
        self.notes: dict[str, None] = {}

    @property
    def is_open(self) -> bool:
        return self._open_here is not None

    @property
    def _open_here(self) -> _OpenStep | None:
        """The step that is being traced on this thread; it may end at any time.

        For a GPU, autograd runs backward passes on a separate thread, which the trace includes.
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
        """Begin an outermost call; with `waits`, the first is traced once its graph is compiled."""
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
        """Release the arguments of a call that returned or raised."""
        self._first = None

    def call_ended(self, thing: Thing, result: Any) -> None:
        if self._is_own_thread() and self._counts[thing] <= _COMPARED:
            self.note_result(f"{thing[0]} {thing[1]}", self._counts[thing], result)

    def note_result(self, thing: str, number: int, result: Any) -> None:
        """Keep a summary of a call's result; do nothing during CUDA graph capture."""
        if is_capturing():
            return
        step, begun = self._open, time.monotonic_ns()
        try:
            self._results.append(CallResult(thing, number, summaries_of(result)))
        finally:
            if step is not None:
                step.own.append((begun, time.monotonic_ns()))

    # --- steps ------------------------------------------------------------------------------------

    def _begin(self, thing: Thing, number: int, arguments: Mapping[Any, Any]) -> None:
        before = held_memory(arguments)
        if not self.profilers.leave_it_free:
            self.notes[OWN_PROFILER] = None
            return
        self._main_thread.prepare()
        self._open = step = _OpenStep(thing, number, AllocationTrace(), before, self.compiles)
        # A raw thread, so that threading.enumerate() in the program does not show it.
        _thread.start_new_thread(self._watch, (step,))

    def _watch(self, step: _OpenStep) -> None:
        """Have a step ended once its time is up.

        A step that began on a thread other than the main one is ended by the next call there.
        """
        if not step.is_over.wait(self._longest):
            self._main_thread.ask_until(lambda: self._open is not step, math.inf)

    def _taken(self) -> _OpenStep | None:
        """Take the open step, so that nothing else ends it, and return it."""
        step, self._open = self._open, None
        if step is not None:
            step.is_over.set()
        return step

    def _is_late(self, step: _OpenStep) -> bool:
        return time.monotonic_ns() - step.begin >= self._longest * 1e9

    def _end_at_once(self) -> None:
        """End the step; called on the main thread at any point of the program."""
        step = self._open
        if step is None or self._thread != threading.get_ident() or _is_in_backward():
            return
        if self.profilers.are_used:
            SCOPE.guard(self._drop)
        elif self._is_late(step):
            SCOPE.guard(self.close, TIME_UP)

    def _make_way(self) -> None:
        """Discard the trace, because the program is about to use torch's profiler."""
        if self._open is None:
            return
        self.notes[OWN_PROFILER] = None
        if self._thread == threading.get_ident():
            self._drop()
        elif not self._main_thread.ask_until(lambda: self._open is None, LONGEST_WAIT):
            self._taken()  # Discarded: ending it on another thread would crash.

    def _drop(self) -> None:
        step = self._taken()
        if step is not None:
            step.trace.end()

    def close(self, ended_by: str) -> None:
        step = self._taken()
        if step is None:
            return
        end = time.monotonic_ns()
        events = (
            event
            for event in step.trace.stop()
            if not any(begin <= event.at <= end for begin, end in step.own)
        )
        kind, name, place = step.thing
        self._traced[step.thing] += 1
        found = TracedStep(
            name,
            kind,
            place,
            step.number,
            step.begin,
            end,
            compiled=step.compiles != self.compiles,
            ended_by=ended_by,
            events=tuple(events),
            names=tuple(step.names),
            calls=tuple(step.calls),
            before=step.before,
            after=held_memory(),
            has_totals=self.has_table,
        )
        if found.events:  # A step without events says nothing about memory.
            self._peaks.append(StepPeak(name, step.number, found.peaks))
        known = self._kept.get(step.thing)
        if known is None or _rank(found) > _rank(known):
            self._kept[step.thing] = found

    # --- calls of wrappers ------------------------------------------------------------------------

    def graph_entered(self, graph: str) -> None:
        if self._first is not None and self._open is None and self._is_own_thread():
            (thing, arguments), self._first = self._first, None
            self._begin(thing, 1, arguments)
        step = self._open_here
        if step is not None:
            step.calls.append(WrapperCall(graph, time.monotonic_ns()))

    def graph_named(self, graph: str, values: Mapping[str, Any]) -> None:
        step = self._open_here
        if step is None or not step.calls:
            return
        sizes = {name: value for name, value in values.items() if type(value) is int}
        for name, value in values.items():
            if name not in sizes:
                step.note(value, name, graph)
        if sizes:
            call = step.calls[-1]
            step.calls[-1] = replace(call, sizes={**call.sizes, **sizes})

    def graph_left(self, graph: str, result: Any) -> None:
        step = self._open_here
        if step is None:
            return
        for number, call in reversed(list(enumerate(step.calls))):
            if call.graph == graph and not call.end:
                returned = tuple(memory_of(tensor)[0] for _, tensor in tensors_in(result))
                step.calls[number] = replace(call, end=time.monotonic_ns(), returned=returned)
                return

    def operation_made(self, name: str, place: str, result: Any) -> None:
        step = self._open_here
        if step is not None:
            for _, tensor in tensors_in(result):
                step.note(tensor, name, place=place)

    # --- results ----------------------------------------------------------------------------------

    def as_data(self, pid: int) -> ProcessMemory:
        if not self.has_table:
            self.notes[NO_TABLE] = None
        steps = tuple(self._kept.values())
        return ProcessMemory(
            pid, steps, tuple(self._peaks), tuple(self._results), tuple(self.notes)
        )


def _rank(step: TracedStep) -> tuple[bool, bool, int]:
    """Return a sort key: steps with events rank highest, then those without a compile, then
    those with a higher peak.
    """
    peak = max(step.peaks.values(), default=0)
    return bool(step.events), not step.compiled and step.number > 1, peak
