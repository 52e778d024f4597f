"""The profiler inside a process of the user's program.

It is started by the start-up hook when the program imports torch, times compiled calls, and writes
what it measured when the program ends, and now and then before that.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from inductoscope.capture import private_cache
from inductoscope.capture.hooks import HOOKS
from inductoscope.capture.install import Installer
from inductoscope.capture.program_settings import set_by_the_tool
from inductoscope.capture.scope import SCOPE
from inductoscope.capture.uncaught import record_until_exit
from inductoscope.processes.stack_signal import answer_with_stacks
from inductoscope.profiling.call_clock import CallClock
from inductoscope.profiling.orders import Orders, orders_from
from inductoscope.profiling.timings import FOLDER, FUNCTION, GRAPH, PACKAGE, write_times
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import Hook, TorchName, Wrap

TORCH_NAMES = {
    "torch._inductor.config": (),
}

_CONFIG = "torch._inductor.config"
_CONTEXT = TorchName("torch._dynamo.eval_frame", "_TorchDynamoContext.__call__")
_COMPILES = TorchName("torch._dynamo.callback", "CompilationCallbackHandler.run_start_callbacks")
_LOADED = TorchName("torch._inductor.codecache", "PyCodeCache.load_by_key_path")
_PACKAGE_CALL = TorchName("torch.export.pt2_archive._package", "AOTICompiledModel.__call__")

# Seconds between two times that what was measured is written.
_WRITE_EVERY = 5.0
_LONGEST_ERROR = 300


def start(folder: str) -> Installer:
    """Time compiled calls. Called on import of torch."""
    return start_agent(Agent(orders_from(), Path(folder)))


def start_agent(agent: Agent) -> Installer:
    """Start measuring, and recording where that was asked for."""
    records = agent.orders.records
    hooks = (*(HOOKS if records else ()), *agent.hooks())
    installer = Installer(hooks, on_import={**private_cache.on_import(), **agent.on_import()})
    if agent.is_started():
        return installer
    if records:
        SCOPE.open(agent.folder)
    installer.start()
    if records:
        record_until_exit()
        answer_with_stacks(agent.folder)
    agent.write_at_exit()
    return installer


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

    def is_started(self) -> bool:
        """Whether another of our start-up hooks came first in this process."""
        if getattr(sys, "inductoscope_profiles", None) == os.getpid():
            return True
        sys.inductoscope_profiles = os.getpid()  # type: ignore[attr-defined]
        return False

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

    def write_at_exit(self) -> None:
        """Write what was measured when the program ends."""
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
