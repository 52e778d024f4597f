"""Inside the program: compiled functions are called compiled and in eager, in turns.

What else a machine does can make a run several times slower than the next. Calls that follow each
other in one process fare alike, so half of the calls of a warm function are made uncompiled: the
program goes on with the same values. Which call of two comes first is drawn at random, because a
program has rhythms of its own. Only calls of one compiled function with arguments of the same kind
are compared with each other. A call whose result is differentiated ends with its backward pass.
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
from inductoscope.inside.start import InsidePart
from inductoscope.profiling.orders import orders_from
from inductoscope.profiling.timings import DIFFERENTIATED, FUNCTION, IN_EAGER, ProcessTimes

# Kinds of arguments of one function; calls with more than that are made as they are.
_MOST_GROUPS = 64
# How deep results are searched for tensors.
_DEPTH = 4
_PLAIN = (int, float, complex, bool, str, bytes, type(None))


# --- which calls do the same work -----------------------------------------------------------------


def kind_of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Equal for calls that do the same work; None for arguments that do not say what they are.

    Calls are alike if their arguments have the same shapes, types and places in memory order, their
    plain values are equal, and torch is in the same mode. What cannot be looked into counts as
    different from everything else.
    """
    torch: Any = sys.modules["torch"]
    with contextlib.suppress(Exception):  # Tensors of other libraries refuse the one or other.
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
    """Whether a result can be differentiated, or may hold something that can."""
    torch: Any = sys.modules["torch"]
    with contextlib.suppress(Exception):
        if not isinstance(result, torch.Tensor) and not torch.is_grad_enabled():
            return False
        return any(part is _TOO_DEEP or part.requires_grad for part in _tensors(result, 0))
    return True


def _tensors(result: Any, depth: int) -> Iterator[Any]:
    """The tensors of a result; `_TOO_DEEP` stands for what is not searched."""
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

    It begins when autograd reaches the first result of the call, and ends with the whole pass that
    it belongs to: what comes after it there is the same, compiled or not. Of several calls in one
    pass it is not known which took how long, so none of them counts.
    """

    def __init__(
        self,
        going_on: list[_BackwardPass],
        started: Callable[[], Any],
        ended: Callable[[Any], None],
    ) -> None:
        """`ended` is called with what `started` returned, and only if the pass is its own.

        Of work on a GPU, the first stream that is current in `started` and the last one in `ended`
        are those that the pass uses: autograd sets the one of the forward pass, and at the end
        waits for all of them.
        """
        self._going_on, self._started, self._ended = going_on, started, ended
        self._has_begun = False
        self._is_alone = True
        self._beginning: Any = None

    def follow(self, result: Any) -> None:
        """Wait for autograd to reach the result."""
        from torch._dynamo import config

        if config.compiled_autograd:
            return  # It would compile what is hooked in here.
        tensors = [part for part in _tensors(result, 0) if part is not _TOO_DEEP]
        for function in dict.fromkeys(tensor.grad_fn for tensor in tensors):
            if function is not None:
                SCOPE.guard(function.register_prehook, self._reached)

    def _reached(self, gradients: Any) -> None:
        """Autograd is about to differentiate one of the results."""
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

# Cycles for which the GPU is kept idle: about half a millisecond at first. If a call takes longer
# to enqueue than even the longest, it is taken for one that waits.
_SHORTEST, _LONGEST = 1 << 20, 1 << 26
_GROWTH = 4
# The time of a call that began to run while it was still being enqueued says nothing.
NOT_MEASURED = -1


# When a call began, and the event that lets the GPU begin; None for a call that is timed from
# beginning to end.
_StartedCall = tuple[int, Any]


class GpuStopwatch:
    """Times what a call costs a program that does not wait for the GPU.

    Such a program enqueues work while the GPU is still busy with earlier calls, so that a call
    costs whatever takes longer: to enqueue its kernels, or to run them. Both are measured in one
    call: the GPU is given an idle kernel first, and cannot begin before everything is enqueued.

    A call that itself waits for the GPU waits for the idle kernel too. Such calls are timed from
    beginning to end. A call belongs to a thing, which says how to time it.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._cycles: dict[Hashable, int] = {}

    def start(self, thing: Hashable) -> _StartedCall:
        """Just before a call."""
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
        """Just after it: nanoseconds that it costs, or `NOT_MEASURED`.

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
    """Calls of one function with arguments of one kind."""

    # What was measured of them compiled, in eager, and of both with their backward passes.
    times: dict[bool, TimedCalls]
    steps: dict[bool, TimedCalls]
    compiled: Callable[..., Any]
    eager: Callable[..., Any]
    # What the next calls are: True for compiled.
    coming: list[bool] = field(default_factory=list)
    is_differentiated: bool = False

    def note_differentiated(self) -> None:
        """Without their backward passes these calls are half."""
        self.is_differentiated = True
        for times in self.times.values():
            times.kind = DIFFERENTIATED


class AlternatingClock(CallClock):
    """Times the outermost calls of functions, half of them in eager."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        super().__init__(clock)
        # Of its own: the program's random numbers stay as they are.
        self._random = random.Random(0)
        self._gpu = GpuStopwatch(clock)
        # Backward passes that are under way.
        self._going_on: list[_BackwardPass] = []
        # Nanoseconds of the call that was timed last.
        self._last = 0
        self._functions = 0
        self._begun: int | None = None
        self._ended = 0
        self._thread: int | None = None
        # Whether a call is compiled is the same for all threads, so only one can be examined.
        self._has_threads = False

    def timed(
        self,
        function: Callable[..., Any],
        name: str,
        kind: str = FUNCTION,
        place: str = "",
        group: str = "",
    ) -> Callable[..., Any]:
        """The function; graphs and packages are left alone."""
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
        """The call that just returned is over with its backward pass."""
        forward = self._last
        thing = step.kind, step.name, step.place, step.group

        def ended(started: Any) -> None:
            # More compiles have begun if one was in it.
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
        """The calls so far; none where threads disturb each other."""
        found = super().as_data(pid, settings)
        if self._has_threads:
            return replace(found, calls=(), several_threads=True)
        compiling = sum(sum(calls.compiling) for calls in found.calls)
        return replace(found, span=max(0, self._ended - (self._begun or 0) - compiling))


def alternating_profiler(folder: Path) -> InsidePart:
    """Time compiled calls and uncompiled ones in turns."""
    agent = Agent(orders_from(), folder)
    agent.clock = AlternatingClock()
    return agent.part()
