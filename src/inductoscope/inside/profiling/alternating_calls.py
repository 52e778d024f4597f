"""Inside the program: which calls of a function do the same work.

Calls are alike if their arguments have the same shapes, types and places in memory order, their
plain values are equal, and torch is in the same mode. What cannot be looked into counts as
different from everything else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.inside.gpu_use import uses_cuda
from inductoscope.inside.profiling.call_clock import (
    Agent,
    CallClock,
    TimedCalls,
    is_traced,
)
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.start import InsidePart
from inductoscope.profiling.orders import orders_from
from inductoscope.profiling.timings import FUNCTION, ProcessTimes

_PLAIN = (int, float, complex, bool, str, bytes, type(None))
# How deep results are searched for tensors.
_DEPTH = 4


def kind_of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Equal for calls that do the same work; None for arguments that do not say what they are."""
    with contextlib.suppress(Exception):  # Tensors of other libraries refuse the one or other.
        return _kind_of_call(function, args, kwargs)
    return None


def _kind_of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    torch: Any = sys.modules["torch"]
    modes = torch.is_grad_enabled(), torch.is_autocast_enabled()
    original = getattr(function, "_torchdynamo_orig_callable", function)
    training = getattr(getattr(original, "__self__", None), "training", None)
    return (*modes, training, _kind(torch, args), _kind(torch, kwargs))


def _kind(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _kind_of_tensor(torch, value)
    if isinstance(value, _PLAIN):
        return type(value), value if value == value else "nan"
    if isinstance(value, (list, tuple)):
        return (type(value), *(_kind(torch, part) for part in value))
    if isinstance(value, Mapping):
        return (type(value), *((str(key), _kind(torch, part)) for key, part in value.items()))
    return type(value), id(value)


def _kind_of_tensor(torch: Any, tensor: Any) -> Any:
    strides = tensor.stride() if tensor.layout == torch.strided else tensor.layout
    return (
        type(tensor),
        tensor.dtype,
        tensor.device,
        tuple(tensor.shape),
        strides,
        (tensor.requires_grad),
    )


def requires_grad(result: Any) -> bool:
    """Whether a result can be differentiated, or may hold something that can."""
    with contextlib.suppress(Exception):
        return _requires_grad(result, 0)
    return True


def _requires_grad(result: Any, depth: int) -> bool:
    torch: Any = sys.modules["torch"]
    if isinstance(result, torch.Tensor):
        return bool(result.requires_grad)
    if isinstance(result, _PLAIN) or not torch.is_grad_enabled():
        return False
    if depth >= _DEPTH:
        return True
    if isinstance(result, Mapping):
        parts = list(result.values())
    elif isinstance(result, (list, tuple)):
        parts = list(result)
    else:
        parts = list(getattr(result, "__dict__", {}).values())
    return any(_requires_grad(part, depth + 1) for part in parts)


# --- Inside the program: a call is over when its backward pass is ---------------------------------
#
# A backward pass begins when autograd reaches the first result of the call, and ends with the
# whole pass that it belongs to: what comes after it there is the same, compiled or not. Of
# several calls in one pass it is not known which took how long, so none of them counts.


# How deep results are searched for tensors.
_RESULT_DEPTH = 4


class BackwardPasses:
    """The backward passes of calls whose results are differentiated."""

    def __init__(self) -> None:
        self._going_on: list[_BackwardPass] = []

    def follow(self, result: Any, started: Callable[[], Any], ended: Callable[[Any], None]) -> None:
        """Call `started` when its backward pass begins, and `ended` with what that returned.

        `ended` is called only if the pass is its own. Of work on a GPU, the first stream that is
        current in `started` and the last one in `ended` are those that the pass uses: autograd sets
        the one of the forward pass, and at the end waits for all of them.
        """
        from torch._dynamo import config

        if config.compiled_autograd:
            return  # It would compile what is hooked in here.
        found = _BackwardPass(self._going_on, started, ended)
        for function in dict.fromkeys(_gradient_functions(result, 0)):
            SCOPE.guard(function.register_prehook, found.reached)


class _BackwardPass:
    def __init__(
        self,
        going_on: list[_BackwardPass],
        started: Callable[[], Any],
        ended: Callable[[Any], None],
    ) -> None:
        self._going_on, self._started, self._ended = going_on, started, ended
        self._has_begun = False
        self._is_alone = True
        # What `started` returned.
        self._beginning: Any = None

    def reached(self, gradients: Any) -> None:
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


def _gradient_functions(result: Any, depth: int) -> Iterator[Any]:
    """The nodes of autograd's graph that made the tensors of a result."""
    torch: Any = sys.modules["torch"]
    if isinstance(result, torch.Tensor):
        if result.grad_fn is not None:
            yield result.grad_fn
        return
    if depth >= _RESULT_DEPTH:
        return
    if isinstance(result, Mapping):
        parts = list(result.values())
    elif isinstance(result, (list, tuple)):
        parts = list(result)
    else:
        parts = list(getattr(result, "__dict__", {}).values())
    for part in parts:
        yield from _gradient_functions(part, depth + 1)


# --- What a call costs a program that does not wait for the GPU -----------------------------------
#
# Such a program enqueues work while the GPU is still busy with earlier calls, so that a call costs
# whatever takes longer: to enqueue its kernels, or to run them. Both are measured in one call: the
# GPU is given an idle kernel first, and cannot begin before everything is enqueued.
#
# A call that itself waits for the GPU waits for the idle kernel too. Such calls are timed from
# beginning to end.


# Cycles for which the GPU is kept idle: about half a millisecond at first. If a call takes longer
# to enqueue than even the longest, it is taken for one that waits.
_SHORTEST, _LONGEST = 1 << 20, 1 << 26
_GROWTH = 4
# The time of a call that began to run while it was still being enqueued says nothing.
NOT_MEASURED = -1


@dataclass
class _StartedCall:
    began: int
    # None for a call that is timed from beginning to end.
    released: Any = None


class GpuStopwatch:
    """Times calls on the current stream; a call belongs to a thing, which says how to time it."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._cycles: dict[Hashable, int] = {}

    def start(self, thing: Hashable) -> _StartedCall:
        """Just before a call."""
        import torch

        torch.cuda.synchronize()
        cycles = self._cycles.setdefault(thing, _SHORTEST)
        if cycles > _LONGEST:
            return _StartedCall(self._clock())
        torch.cuda._sleep(cycles)
        released = torch.cuda.Event(enable_timing=True)
        released.record()
        return _StartedCall(self._clock(), released)

    def stop(self, call: _StartedCall, thing: Hashable, *, compiled: bool = False) -> int:
        """Just after it: nanoseconds that it costs, or `NOT_MEASURED`.

        A call in which something was compiled is timed from beginning to end.
        """
        import torch

        if call.released is None or compiled:
            torch.cuda.synchronize()
            return self._clock() - call.began
        enqueued = self._clock() - call.began
        began_early = call.released.query()
        done = torch.cuda.Event(enable_timing=True)
        done.record()
        torch.cuda.synchronize()
        if began_early:
            self._cycles[thing] *= _GROWTH
            return NOT_MEASURED
        milliseconds: float = call.released.elapsed_time(done)
        return max(enqueued, round(milliseconds * 1e6))


# --- The program's own arguments, kept for timing its graphs alone --------------------------------
#
# How long a gather takes depends on where it reads, and how long a branch takes on the values.
# Graphs that are timed alone are therefore called with what the program gave its compiled
# functions. It lies in a private folder until the trials have ended.

INPUTS_FOLDER = "inputs"

# Bytes that are kept of one process; what does not fit is made up.
_MOST_BYTES = 256 << 20
# How deep arguments are searched for tensors.
_ARGUMENT_DEPTH = 4

# What has to be equal for a tensor to stand for an input of a graph.
Form = tuple[Any, ...]


class KeptInputs:
    """Inside the program: writes the arguments of calls, one of each form."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forms: set[Form] = set()
        self._bytes = 0

    def keep(self, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Write what is new among these arguments; called before they are used, and may change."""
        torch: Any = sys.modules["torch"]
        found = [tensor for tensor in _tensors((args, kwargs), 0) if self._wants(tensor)]
        if not found:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{os.getpid()}-{len(self._forms)}.pt"
        copies = [copy for tensor in found if (copy := _on_cpu(tensor)) is not None]
        torch.save(copies, self._folder / name)

    def _wants(self, tensor: Any) -> bool:
        form, size = form_of(tensor), tensor.numel() * tensor.element_size()
        if form in self._forms or self._bytes + size > _MOST_BYTES:
            return False
        self._forms.add(form)
        self._bytes += size
        return True


def _tensors(value: Any, depth: int) -> Iterator[Any]:
    torch: Any = sys.modules["torch"]
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout == torch.strided and value.device.type in ("cpu", "cuda"):
            yield value
        return
    if depth < _ARGUMENT_DEPTH and isinstance(value, (tuple, list, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part, depth + 1)


def _on_cpu(tensor: Any) -> Any:
    """Its values with its strides; None for a view that has elements in common with itself."""
    torch: Any = sys.modules["torch"]
    made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)
    with contextlib.suppress(RuntimeError):
        return made.copy_(tensor.detach())
    return None


def form_of(tensor: Any) -> Form:
    """The type, shape and strides of a tensor."""
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    return str(tensor.dtype), shape, strides


def kept_inputs(folder: Path) -> dict[Form, Any]:
    """What was kept, by its form; what cannot be read is left out."""
    torch: Any = sys.modules["torch"]
    found: dict[Form, Any] = {}
    for path in sorted(folder.glob("*.pt")):
        with contextlib.suppress(Exception):  # The program may have been ended while it wrote.
            for tensor in torch.load(path, weights_only=True):
                found.setdefault(form_of(tensor), tensor)
    return found


# --- Inside the program: compiled functions are called compiled and in eager, in turns ------------
#
# What else a machine does can make a run several times slower than the next. Calls that follow
# each other in one process fare alike, so half of the calls of a warm function are made
# uncompiled: the program goes on with the same values. Which call of two comes first is drawn at
# random, because a program has rhythms of its own. Only calls of one compiled function with
# arguments of the same kind are compared with each other. A call whose result is differentiated
# ends with its backward pass.

# The kind of a call that was made uncompiled.
IN_EAGER = "function in eager"
# The kind of calls whose result is differentiated: without their backward passes they are half.
DIFFERENTIATED = "function without its backward pass"
# What follows the label of calls that end with their backward pass.
_WITH_BACKWARD = " with backward"

# Kinds of arguments of one function; calls with more than that are made as they are.
_MOST_GROUPS = 64


def alternating_profiler(folder: Path) -> InsidePart:
    """Time compiled calls and uncompiled ones in turns."""
    agent = Agent(orders_from(), folder)
    kept = KeptInputs(folder / INPUTS_FOLDER) if agent.orders.keeps_inputs else None
    agent.clock = AlternatingClock(kept=kept)
    return agent.part()


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
