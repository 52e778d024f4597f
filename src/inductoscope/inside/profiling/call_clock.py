"""Times compiled calls inside the program: functions, graphs, packages.

Only the outermost call is timed: a compiled function with all the graphs that it runs, or a graph
that no function calls, as autograd does for a backward pass. A call in which something is compiled
is kept apart, and so is the first one after that, which still fills caches.
"""

from __future__ import annotations

import atexit
import functools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.inside.gpu_use import uses_cuda
from inductoscope.inside.program_settings import set_by_the_tool
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.start import InsidePart
from inductoscope.profiling.orders import Orders, orders_from
from inductoscope.profiling.timings import (
    FOLDER,
    FUNCTION,
    GRAPH,
    PACKAGE,
    CallTimes,
    ProcessTimes,
    write_times,
)
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

# Calls of one thing whose times are kept; of more, as many that are chosen at random.
_MOST_KEPT = 4096
_MOST_APART = 256


@dataclass
class Reservoir:
    """So many of a stream of numbers, each with the same chance to be among them."""

    size: int = _MOST_KEPT
    count: int = 0
    total: int = 0
    kept: list[int] = field(default_factory=list)
    # Of its own: the program's random numbers stay as they are.
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def add(self, value: int) -> None:
        """One more number."""
        self.count += 1
        self.total += value
        if len(self.kept) < self.size:
            self.kept.append(value)
            return
        place = self._random.randrange(self.count)
        if place < self.size:
            self.kept[place] = value


@dataclass
class TimedCalls:
    """What was measured of one compiled thing so far."""

    name: str
    kind: str
    place: str
    group: str = ""
    steady: Reservoir = field(default_factory=Reservoir)
    compiling: list[int] = field(default_factory=list)
    warming: list[int] = field(default_factory=list)
    dropped: int = 0
    is_warm: bool = False
    # The place of its first call among the first calls of all of them; 0 before that.
    order: int = 0

    def note(self, duration: int, *, compiled: bool) -> None:
        """One more call."""
        if duration < 0:
            self.dropped += 1
        elif compiled:
            self.compiling.append(duration)
            self.is_warm = False
        elif not self.is_warm:
            self.warming.append(duration)
            self.is_warm = True
        else:
            self.steady.add(duration)

    def as_data(self) -> CallTimes:
        """What is written down."""
        return CallTimes(
            self.name,
            self.kind,
            self.place,
            self.steady.count,
            self.steady.total,
            tuple(self.steady.kept),
            tuple(self.compiling[:_MOST_APART]),
            tuple(self.warming[:_MOST_APART]),
            self.dropped,
            self.group,
        )


class _CallDepth(threading.local):
    value = 0


class CallClock:
    """Times the outermost compiled calls of this process, on all its threads."""

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        after_call: Callable[[], None] = lambda: None,
    ) -> None:
        """`after_call` is called after every call, when its time has been taken."""
        self._clock = clock
        self._after_call = after_call
        # Asked before a warm call of a thing: whether something else measures it, and disturbs its
        # time. A thing is its kind, name and place.
        self.disturbs: Callable[[tuple[str, str, str]], bool] = lambda thing: False
        self.disturbed_ended: Callable[[], None] = lambda: None
        self._depth = _CallDepth()
        self._timed: dict[tuple[str, str, str, str], TimedCalls] = {}
        # Raised whenever a compile begins, on any thread.
        self.compiles = 0
        self.waited_for_gpu = False

    def compile_begins(self) -> None:
        """Something is about to be compiled."""
        self.compiles += 1

    def entry(self, kind: str, name: str, place: str, group: str = "") -> TimedCalls:
        """What is known of the calls of one thing."""
        key = kind, name, place, group
        return self._timed.setdefault(key, TimedCalls(name, kind, place, group))

    def timed(
        self,
        function: Callable[..., Any],
        name: str,
        kind: str = FUNCTION,
        place: str = "",
        group: str = "",
    ) -> Callable[..., Any]:
        """The function; its outermost calls are timed, those of a group together."""
        depth = self._depth
        key = kind, name, place, group
        timed = self.entry(kind, name, place, group)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if depth.value or is_traced():
                return function(*args, **kwargs)
            depth.value = 1
            try:
                compiles = self.compiles
                is_disturbed = timed.is_warm and self.disturbs((kind, name, place))
                started = self._started(key)
                try:
                    result = function(*args, **kwargs)
                    has_compiled = compiles != self.compiles
                    took = self._took(started, key, compiled=has_compiled)
                finally:
                    if is_disturbed:
                        self.disturbed_ended()
                if has_compiled or not is_disturbed:
                    timed.note(took, compiled=has_compiled)
                self.called(timed)
            finally:
                depth.value = 0
            self._after_call()
            return result

        return call

    def called(self, timed: TimedCalls) -> None:
        """It was called: things are numbered by their first call."""
        if timed.order:
            return
        timed.order = 1 + sum(1 for other in list(self._timed.values()) if other.order)
        if timed.kind == GRAPH:
            # What torch calls it depends on how it is compiled; its place in the program does not.
            numbered = sum(1 for other in list(self._timed.values()) if _is_called_graph(other))
            timed.name = f"graph {numbered}"

    def _started(self, thing: tuple[str, ...]) -> Any:
        """What `_took` needs to know of the moment before a call."""
        self._wait_for_gpu()
        return self._clock()

    def _took(self, started: Any, thing: tuple[str, ...], *, compiled: bool) -> int:
        """Nanoseconds that the call took; negative if that could not be measured."""
        self._wait_for_gpu()
        return int(self._clock() - started)

    def _wait_for_gpu(self) -> None:
        """On a GPU a call returns before its work is done."""
        if uses_cuda():
            sys.modules["torch.cuda"].synchronize()
            self.waited_for_gpu = True

    def as_data(self, pid: int, settings: Mapping[str, str] | None = None) -> ProcessTimes:
        """Everything that was measured so far, of what was called."""
        torch: Any = sys.modules.get("torch")
        called = sorted(
            (timed for timed in list(self._timed.values()) if timed.order),
            key=lambda timed: timed.order,
        )
        return ProcessTimes(
            pid,
            tuple(timed.as_data() for timed in called),
            threads=torch.get_num_threads() if torch is not None else 0,
            torch=str(getattr(torch, "__version__", "")),
            waited_for_gpu=self.waited_for_gpu,
            settings=settings or {},
        )


def _is_called_graph(timed: TimedCalls) -> bool:
    return timed.kind == GRAPH and timed.order > 0


def is_traced() -> bool:
    """Whether Dynamo follows the call rather than making it."""
    compiler: Any = sys.modules.get("torch.compiler")
    return bool(compiler is not None and compiler.is_compiling())


# --- The profiler inside a process of the user's program ------------------------------------------
#
# It times compiled calls, and writes what it measured when the program ends, and now and then
# before that.

_CONFIG = "torch._inductor.config"
_CONTEXT = hooked.TORCH_DYNAMO_CONTEXT_CALL
_COMPILES = hooked.RUN_START_CALLBACKS
_LOADED = hooked.LOAD_BY_KEY_PATH
_PACKAGE_CALL = hooked.AOTICOMPILED_MODEL_CALL

# Seconds between two times that what was measured is written.
_WRITE_EVERY = 5.0
_LONGEST_ERROR = 300


def call_profiler(folder: Path) -> InsidePart:
    """Time compiled calls."""
    return Agent(orders_from(), folder).part()


class Agent:
    """Measures in one process. Other profilers derive from it to measure more."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        self.orders, self.folder = orders, folder
        self.place = folder / FOLDER
        self.clock = CallClock(after_call=self._write_now_and_then)
        self._written = time.monotonic()
        self.pid = os.getpid()
        # Why a change of the program could not be made.
        self.not_applied = ""

    def part(self) -> InsidePart:
        """What it puts into the process."""
        return InsidePart(self.hooks(), self.on_import(), begin=self._write_at_exit)

    # --- what was asked for -----------------------------------------------------------------------

    def on_import(self) -> dict[str, Callable[[], None]]:
        """What to do once torch, and its settings, are there."""

        return {"torch": self._noting(self._execute), _CONFIG: self._noting(self._settle)}

    def _noting(self, change: Callable[[], None]) -> Callable[[], None]:
        """A change of the program; that it failed is written down, and the program goes on."""

        def make() -> None:
            try:
                change()
            except Exception as error:
                self.not_applied = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]

        return make

    def _execute(self) -> None:
        if self.orders.code:
            exec(f"import torch\n{self.orders.code}", {})

    def _settle(self) -> None:
        for name, value in self.orders.settings.items():
            set_by_the_tool(f"{_CONFIG}.{name}")
            owner, last = _owner(name)
            setattr(owner, last, value)

    def _settings_now(self) -> dict[str, str]:
        if _CONFIG not in sys.modules:
            return {}
        found = {}
        for name in self.orders.settings:
            owner, last = _owner(name)
            found[name] = repr(getattr(owner, last, None))
        return found

    # --- what is measured -------------------------------------------------------------------------

    def hooks(self) -> tuple[Hook, ...]:
        """The hooks around compiled functions, graphs and packages."""
        return (
            Hook(
                stage=stages.DYNAMO,
                records="seconds of every call of a compiled function",
                wraps=(Wrap(_CONTEXT, self._around_functions), Wrap(_COMPILES, self._counting)),
            ),
            Hook(
                stage=stages.WRAPPER,
                records="seconds of every call of a compiled graph",
                wraps=(Wrap(_LOADED, self._around_graphs),),
            ),
            Hook(
                stage=stages.RUNTIME,
                records="seconds of every call of a package of AOTInductor",
                wraps=(Wrap(_PACKAGE_CALL, self.around_packages),),
            ),
        )

    def _around_functions(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_function(context: Any, function: Any) -> Any:
            compiled = original(context, function)
            if type(context).__name__ != "OptimizeContext" or isinstance(compiled, type):
                return compiled
            if not isinstance(compiled, type(compile_function)):
                return compiled  # A module, whose call comes through here by itself.
            return self.clock.timed(compiled, *_described(function))

        return compile_function

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run_start_callbacks(*args: Any, **kwargs: Any) -> Any:
            self.clock.compile_begins()
            return original(*args, **kwargs)

        return run_start_callbacks

    def _around_graphs(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> Any:
            module = original(cls, key, path, *args, **kwargs)
            if callable(getattr(module, "call", None)):
                SCOPE.guard(self.graph_loaded, module, path)
            return module

        return load

    def graph_loaded(self, module: Any, path: str) -> None:
        """A wrapper was loaded: its calls are timed."""
        module.call = self.clock.timed(module.call, "graph", GRAPH, path)

    def around_packages(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Calls of packages are timed."""
        timed = self.clock.timed(original, "package", PACKAGE)

        @functools.wraps(original)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            return timed(model, *args, **kwargs)

        return call

    # --- what is written --------------------------------------------------------------------------

    def _write_at_exit(self) -> None:
        atexit.register(self._end)

    def _end(self) -> None:
        if os.getpid() == self.pid:
            SCOPE.guard(self.ends)
        self._write()

    def ends(self) -> None:
        """The program ends: the last chance to measure."""

    def _write_now_and_then(self) -> None:
        if time.monotonic() - self._written > _WRITE_EVERY:
            self._write()

    def _write(self) -> None:
        if os.getpid() == self.pid:
            SCOPE.guard(self.write_files)

    def write_files(self) -> None:
        """Write what was measured so far."""
        self._written = time.monotonic()
        found = self.clock.as_data(self.pid, self._settings_now())
        found = replace(found, not_applied=self.not_applied)
        if found.calls or found.not_applied or found.several_threads:
            self.place.mkdir(parents=True, exist_ok=True)
            write_times(found, self.place)


def _owner(name: str) -> tuple[Any, str]:
    """The object that holds a setting, and its name there: `cpp.simdlen` is one of `cpp`."""
    *path, last = name.split(".")
    owner: Any = sys.modules[_CONFIG]
    for part in path:
        owner = getattr(owner, part)
    return owner, last


def _described(function: Any) -> tuple[str, str, str]:
    """The name, kind and place of a compiled function."""
    holder = getattr(function, "__self__", None)
    if holder is not None and hasattr(type(holder), "forward"):
        code = getattr(getattr(type(holder), "forward", None), "__code__", None)
        name = type(holder).__name__
    else:
        code = getattr(function, "__code__", None)
        name = getattr(function, "__qualname__", type(function).__name__)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return name, FUNCTION, place
