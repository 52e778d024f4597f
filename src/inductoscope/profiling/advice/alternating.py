"""Inside the program: compiled functions are called compiled and in eager, in turns.

What else a machine does can make a run several times slower than the next. Calls that follow each
other in one process fare alike, so half of the calls of a warm function are made uncompiled: the
program goes on with the same values. Which call of two comes first is drawn at random, because a
program has rhythms of its own. Only calls of one compiled function with arguments of the same kind
are compared with each other. A call whose result is differentiated ends with its backward pass.
"""

from __future__ import annotations

import functools
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.capture.install import Installer
from inductoscope.capture.scope import SCOPE
from inductoscope.profiling.advice.argument_kinds import kind_of_call, requires_grad
from inductoscope.profiling.advice.backward_passes import BackwardPasses
from inductoscope.profiling.advice.gpu_stopwatch import NOT_MEASURED, GpuStopwatch
from inductoscope.profiling.advice.kept_inputs import FOLDER, KeptInputs
from inductoscope.profiling.agent import Agent, start_agent
from inductoscope.profiling.call_clock import CallClock, TimedCalls, is_traced
from inductoscope.profiling.gpu_use import uses_cuda
from inductoscope.profiling.orders import orders_from
from inductoscope.profiling.timings import FUNCTION, ProcessTimes

# The kind of a call that was made uncompiled.
IN_EAGER = "function in eager"
# The kind of calls whose result is differentiated: without their backward passes they are half.
DIFFERENTIATED = "function without its backward pass"
# What follows the label of calls that end with their backward pass.
_WITH_BACKWARD = " with backward"
AGENT = "profiling.advice.alternating"

# Kinds of arguments of one function; calls with more than that are made as they are.
_MOST_GROUPS = 64


def start(folder: str) -> Installer:
    """Time compiled calls and uncompiled ones in turns. Called on import of torch."""
    agent = Agent(orders_from(), Path(folder))
    kept = KeptInputs(Path(folder) / FOLDER) if agent.orders.keeps_inputs else None
    agent.clock = AlternatingClock(kept=kept)
    return start_agent(agent)


@dataclass
class _AlikeCalls:
    """Calls of one function with arguments of one kind."""

    name: str
    place: str
    label: str
    compiled: Callable[..., Any]
    eager: Callable[..., Any]
    # What was measured of them with their backward passes, compiled and in eager.
    steps: dict[bool, TimedCalls]
    # What the next calls are: True for compiled.
    coming: list[bool] = field(default_factory=list)
    is_differentiated: bool = False


@dataclass(frozen=True)
class _Step:
    """A call that is over when its backward pass is."""

    timed: TimedCalls
    # Nanoseconds of the call itself; negative if that could not be measured.
    forward: int
    # How many compiles had begun before it.
    compiles: int

    @property
    def backward(self) -> tuple[str, ...]:
        """Its backward pass, among what is timed."""
        return self.timed.kind, self.timed.name, self.timed.place, self.timed.group


class AlternatingClock(CallClock):
    """Times the outermost calls of functions, half of them in eager."""

    def __init__(
        self, clock: Callable[[], int] = time.perf_counter_ns, kept: KeptInputs | None = None
    ) -> None:
        super().__init__(clock)
        self._kept = kept
        # Of its own: the program's random numbers stay as they are.
        self._random = random.Random(0)
        self._gpu = GpuStopwatch(clock)
        self._backward = BackwardPasses()
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
            if key not in groups:
                if key is None or len(groups) >= _MOST_GROUPS:
                    return function(*args, **kwargs)
                label = f"{number}.{len(groups) + 1}"
                groups[key] = self._new_group(function, name, place, label)
                if self._kept is not None:
                    SCOPE.guard(self._kept.keep, args, kwargs)
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
        compiled = super().timed(function, name, FUNCTION, place, label)
        eager = super().timed(_in_eager(function), name, IN_EAGER, place, label)
        whole = f"{label}{_WITH_BACKWARD}"
        kinds = {True: FUNCTION, False: IN_EAGER}
        steps = {side: self.entry(kind, name, place, whole) for side, kind in kinds.items()}
        return _AlikeCalls(name, place, label, compiled, eager, steps)

    def _call(self, group: _AlikeCalls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self._begun is None:
            self._begun = self._clock()
        is_compiled, compiles = self._is_compiled_next(group), self.compiles
        result = (group.compiled if is_compiled else group.eager)(*args, **kwargs)
        self._ended = self._clock()
        if requires_grad(result):
            self._is_differentiated(group)
            step = _Step(group.steps[is_compiled], self._last, compiles)
            SCOPE.guard(
                self._backward.follow,
                result,
                lambda: self._started(step.backward),
                lambda started: self._step_ended(step, started),
            )
        return result

    def _is_differentiated(self, group: _AlikeCalls) -> None:
        group.is_differentiated = True
        for kind in (FUNCTION, IN_EAGER):
            self._timed[kind, group.name, group.place, group.label].kind = DIFFERENTIATED

    def _step_ended(self, step: _Step, started: Any) -> None:
        """A call is over with its backward pass; more compiles have begun if one was in it."""
        compiled = step.compiles != self.compiles
        backward = self._took(started, step.backward, compiled=compiled)
        self._ended = self._clock()
        is_measured = step.forward >= 0 and backward >= 0
        took = step.forward + backward if is_measured else NOT_MEASURED
        step.timed.note(took, compiled=compiled)
        self.called(step.timed)

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
        known = self._timed[FUNCTION, group.name, group.place, group.label]
        if not (group.steps[True] if group.is_differentiated else known).is_warm:
            group.coming.clear()
            return True
        if not group.coming:
            group.coming = self._random.sample((True, False), 2)
        return group.coming.pop()

    def as_data(self, pid: int, settings: Mapping[str, str] | None = None) -> ProcessTimes:
        """Everything that was measured so far; nothing where threads disturb each other."""
        found = super().as_data(pid, settings)
        if self._has_threads:
            return replace(found, calls=(), several_threads=True)
        compiling = sum(sum(calls.compiling) for calls in found.calls)
        return replace(found, span=max(0, self._ended - (self._begun or 0) - compiling))


def _in_eager(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        torch: Any = sys.modules["torch"]
        with torch.compiler.set_stance("force_eager"):
            return function(*args, **kwargs)

    return call
