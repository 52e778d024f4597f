"""Times calls of compiled functions in the program, alternating between compiled and eager.

Other load on a machine can make a run several times slower than the next, but affects consecutive
calls in one process alike. So half of the calls of a warm function are made in eager, which returns
the same values. The order within each pair is random, because a program may have periods of its
own. Only calls of one compiled function with arguments of the same kind are compared with each
other. A call whose result is differentiated ends with its backward pass.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.inside.gpu_use import uses_cuda
from inductoscope.inside.profiling.agent import Agent
from inductoscope.inside.profiling.call_clock import CallClock, TimedCalls, in_eager, is_traced
from inductoscope.inside.scope import SCOPE
from inductoscope.profiling.orders import Orders
from inductoscope.profiling.timings import DIFFERENTIATED, FUNCTION, IN_EAGER, ProcessTimes

# The most kinds of arguments per function; calls of further kinds are not alternated.
_MOST_GROUPS = 64
# The depth to which results are searched for tensors.
_DEPTH = 4
_PLAIN = (int, float, complex, bool, str, bytes, type(None))


# --- calls that do the same work ------------------------------------------------------------------


def kind_of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Return a key that is equal for calls that do the same work; None if there is none.

    Calls are alike if their arguments have the same shapes, dtypes and strides, their plain values
    are equal, and torch is in the same mode. Objects that cannot be inspected count as different
    from everything else.
    """
    torch: Any = sys.modules["torch"]
    with contextlib.suppress(Exception):  # Some tensor subclasses raise.
        original = getattr(function, "_torchdynamo_orig_callable", function)
        training = getattr(getattr(original, "__self__", None), "training", None)
        modes = torch.is_grad_enabled(), torch.is_autocast_enabled(), training
        return (*modes, _kind(torch, args), _kind(torch, kwargs))
    return None


def _kind(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout == torch.strided else value.layout
        about = value.dtype, value.device, tuple(value.shape), strides, value.requires_grad
        return type(value), *about
    if isinstance(value, _PLAIN):
        return type(value), value if value == value else "nan"
    if isinstance(value, (list, tuple)):
        return (type(value), *(_kind(torch, part) for part in value))
    if isinstance(value, Mapping):
        return (type(value), *((str(key), _kind(torch, part)) for key, part in value.items()))
    return type(value), id(value)


# --- backward passes ------------------------------------------------------------------------------

_TOO_DEEP = object()


def requires_grad(result: Any) -> bool:
    """Check whether a result requires grad, or may hold a tensor that does."""
    torch: Any = sys.modules["torch"]
    with contextlib.suppress(Exception):
        if not isinstance(result, torch.Tensor) and not torch.is_grad_enabled():
            return False
        return any(part is _TOO_DEEP or part.requires_grad for part in _tensors(result, 0))
    return True


def _tensors(result: Any, depth: int) -> Iterator[Any]:
    """Yield the tensors of a result; `_TOO_DEEP` stands for parts that are not searched."""
    torch: Any = sys.modules["torch"]
    if isinstance(result, torch.Tensor):
        yield result
        return
    if isinstance(result, _PLAIN):
        return
    if depth >= _DEPTH:
        yield _TOO_DEEP
        return
    if isinstance(result, (list, tuple)):
        parts = list(result)
    else:
        held = result if isinstance(result, Mapping) else getattr(result, "__dict__", {})
        parts = list(held.values())
    for part in parts:
        yield from _tensors(part, depth + 1)


class _BackwardPass:
    """The backward pass of one call.

    It begins when autograd reaches the first result of the call, and ends with the whole backward
    pass, the rest of which is the same, compiled or not. If several calls share one pass, their
    times cannot be separated, so none of them counts.
    """

    def __init__(
        self,
        going_on: list[_BackwardPass],
        started: Callable[[], Any],
        ended: Callable[[Any], None],
    ) -> None:
        """`ended` is called with the result of `started`, unless another call shares the pass.

        On a GPU, events may be recorded on the streams that are current in `started` and in
        `ended`: autograd sets the stream of the forward pass, and at the end waits for all
        streams.
        """
        self._going_on, self._started, self._ended = going_on, started, ended
        self._has_begun = False
        self._is_alone = True
        self._beginning: Any = None

    def follow(self, result: Any) -> None:
        from torch._dynamo import config

        if config.compiled_autograd:
            return  # Compiled autograd would trace into these hooks.
        tensors = [part for part in _tensors(result, 0) if part is not _TOO_DEEP]
        for function in dict.fromkeys(tensor.grad_fn for tensor in tensors):
            if function is not None:
                SCOPE.guard(function.register_prehook, self._reached)

    def _reached(self, gradients: Any) -> None:
        if not self._has_begun:
            SCOPE.guard(self._begin)

    def _begin(self) -> None:
        from torch.autograd import Variable

        for other in self._going_on:
            other._is_alone = self._is_alone = False
        self._has_begun = True
        self._going_on.append(self)
        Variable._execution_engine.queue_callback(self._end)
        self._beginning = self._started()

    def _end(self) -> None:
        if self in self._going_on:
            self._going_on.remove(self)
            if self._is_alone:
                SCOPE.guard(self._ended, self._beginning)


# --- calls on a GPU -------------------------------------------------------------------------------

# Cycles for which the GPU is kept idle: about half a millisecond at first. A call that takes longer
# to enqueue than the maximum is assumed to synchronize with the GPU.
_SHORTEST, _LONGEST = 1 << 20, 1 << 26
_GROWTH = 4
# The result for a call whose kernels began to run before all were enqueued.
NOT_MEASURED = -1


# The start time of a call, and the event after the idle kernel; None instead of the event for a
# call that is timed from beginning to end.
_StartedCall = tuple[int, Any]


class GpuStopwatch:
    """Times the cost of a call for a program that does not synchronize with the GPU.

    Such a program enqueues work while the GPU is still busy with earlier calls, so the cost of a
    call is the larger of two times: to enqueue its kernels, and to run them. Both are measured in
    one call: an idle kernel keeps the GPU from starting before everything is enqueued.

    A call that itself synchronizes would wait for the idle kernel, too. Such calls are timed from
    beginning to end. How to time a call is decided per thing, such as a compiled function.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._cycles: dict[Hashable, int] = {}

    def start(self, thing: Hashable) -> _StartedCall:
        import torch

        torch.cuda.synchronize()
        cycles = self._cycles.setdefault(thing, _SHORTEST)
        if cycles > _LONGEST:
            return self._clock(), None
        torch.cuda._sleep(cycles)
        released = torch.cuda.Event(enable_timing=True)
        released.record()
        return self._clock(), released

    def stop(self, call: _StartedCall, thing: Hashable, *, compiled: bool = False) -> int:
        """Stop timing, just after a call; return its cost in nanoseconds, or `NOT_MEASURED`.

        A call in which something was compiled is timed from beginning to end.
        """
        import torch

        began, released = call
        if released is None or compiled:
            torch.cuda.synchronize()
            return self._clock() - began
        enqueued = self._clock() - began
        began_early = released.query()
        done = torch.cuda.Event(enable_timing=True)
        done.record()
        torch.cuda.synchronize()
        if began_early:
            self._cycles[thing] *= _GROWTH
            return NOT_MEASURED
        milliseconds: float = released.elapsed_time(done)
        return max(enqueued, round(milliseconds * 1e6))


# --- the clock ------------------------------------------------------------------------------------


@dataclass
class _AlikeCalls:
    # Times of compiled (True) and eager (False) calls, without and with their backward passes.
    times: dict[bool, TimedCalls]
    steps: dict[bool, TimedCalls]
    compiled: Callable[..., Any]
    eager: Callable[..., Any]
    # The order of the next calls: True for compiled.
    coming: list[bool] = field(default_factory=list)
    is_differentiated: bool = False

    def note_differentiated(self) -> None:
        self.is_differentiated = True
        for times in self.times.values():
            times.kind = DIFFERENTIATED


class AlternatingClock(CallClock):
    """Times the outermost calls of functions, half of them in eager."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        super().__init__(clock)
        # A separate generator, so that the program's random numbers stay the same.
        self._random = random.Random(0)
        self._gpu = GpuStopwatch(clock)
        # The backward passes in progress.
        self._going_on: list[_BackwardPass] = []
        # Nanoseconds of the last timed call.
        self._last = 0
        self._functions = 0
        self._begun: int | None = None
        self._ended = 0
        self._thread: int | None = None
        # Switching between compiled and eager affects all threads, so only one can be measured.
        self._has_threads = False

    def timed(
        self,
        function: Callable[..., Any],
        name: str,
        kind: str = FUNCTION,
        place: str = "",
        group: str = "",
    ) -> Callable[..., Any]:
        """Wrap a function so that its calls alternate; return graphs and packages unchanged."""
        if kind != FUNCTION:
            return function
        self._functions += 1
        number = self._functions
        groups: dict[tuple[Any, ...], _AlikeCalls] = {}

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._depth.value or is_traced() or self._is_other_thread():
                return function(*args, **kwargs)
            key = kind_of_call(function, args, kwargs)
            if key is None or (key not in groups and len(groups) >= _MOST_GROUPS):
                return function(*args, **kwargs)
            if key not in groups:
                label = f"{number}.{len(groups) + 1}"
                groups[key] = self._new_group(function, name, place, label)
            return self._call(groups[key], args, kwargs)

        return call

    def _is_other_thread(self) -> bool:
        if self._thread is None:
            self._thread = threading.get_ident()
        self._has_threads = self._has_threads or self._thread != threading.get_ident()
        return self._has_threads

    def _new_group(
        self, function: Callable[..., Any], name: str, place: str, label: str
    ) -> _AlikeCalls:
        kinds = {True: FUNCTION, False: IN_EAGER}
        steps = f"{label} with backward"
        return _AlikeCalls(
            {side: self.entry(kind, name, place, label) for side, kind in kinds.items()},
            {side: self.entry(kind, name, place, steps) for side, kind in kinds.items()},
            super().timed(function, name, FUNCTION, place, label),
            super().timed(in_eager(function), name, IN_EAGER, place, label),
        )

    def _call(self, group: _AlikeCalls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self._begun is None:
            self._begun = self._clock()
        is_compiled, compiles = self._is_compiled_next(group), self.compiles
        result = (group.compiled if is_compiled else group.eager)(*args, **kwargs)
        self._ended = self._clock()
        if requires_grad(result):
            group.note_differentiated()
            SCOPE.guard(self._follow, result, group.steps[is_compiled], compiles)
        return result

    def _follow(self, result: Any, step: TimedCalls, compiles: int) -> None:
        """Extend the time of the call that just returned to the end of its backward pass."""
        forward = self._last
        thing = step.kind, step.name, step.place, step.group

        def ended(started: Any) -> None:
            # A changed count means that something was compiled in the pass.
            compiled = compiles != self.compiles
            backward = self._took(started, thing, compiled=compiled)
            self._ended = self._clock()
            is_measured = forward >= 0 and backward >= 0
            step.note(forward + backward if is_measured else NOT_MEASURED, compiled=compiled)
            self.called(step)

        _BackwardPass(self._going_on, lambda: self._started(thing), ended).follow(result)

    def _started(self, thing: tuple[str, ...]) -> Any:
        if not uses_cuda():
            return self._clock()
        self.waited_for_gpu = True
        return self._gpu.start(thing)

    def _took(self, started: Any, thing: tuple[str, ...], *, compiled: bool) -> int:
        if isinstance(started, int):
            self._last = super()._took(started, thing, compiled=compiled)
        else:
            self._last = self._gpu.stop(started, thing, compiled=compiled)
        return self._last

    def _is_compiled_next(self, group: _AlikeCalls) -> bool:
        if not (group.steps if group.is_differentiated else group.times)[True].is_warm:
            group.coming.clear()
            return True
        if not group.coming:
            group.coming = self._random.sample((True, False), 2)
        return group.coming.pop()

    def as_data(self, pid: int, settings: Mapping[str, str] | None = None) -> ProcessTimes:
        found = super().as_data(pid, settings)
        if self._has_threads:
            return replace(found, calls=(), several_threads=True)
        compiling = sum(sum(calls.compiling) for calls in found.calls)
        return replace(found, span=max(0, self._ended - (self._begun or 0) - compiling))


class AlternatingAgent(Agent):
    def __init__(self, orders: Orders, folder: Path) -> None:
        super().__init__(orders, folder)
        self.clock = AlternatingClock()


alternating_profiler = AlternatingAgent.part
