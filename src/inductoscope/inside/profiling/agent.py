"""The profiler inside a process of the user's program.

It times compiled calls, and writes the measurements when the program ends, and now and then before.
Other profilers derive from it to measure more.
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
from types import FunctionType
from typing import Any

from inductoscope.inside.observe import around
from inductoscope.inside.profiling.call_clock import CallClock
from inductoscope.inside.program_settings import set_by_the_tool
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.start import InsidePart
from inductoscope.profiling.orders import Orders, orders_from
from inductoscope.profiling.timings import FOLDER, FUNCTION, GRAPH, PACKAGE, write_measured
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

_CONFIG = "torch._inductor.config"

# Seconds between two writes of the measurements.
_WRITE_EVERY = 5.0
_LONGEST_ERROR = 300


class Agent:
    def __init__(self, orders: Orders, folder: Path) -> None:
        self.orders, self.folder = orders, folder
        self.place = folder / FOLDER
        self.clock = CallClock(after_call=self._write_now_and_then)
        self._written = time.monotonic()
        self.pid = os.getpid()
        # Why a requested change could not be applied; empty if it was.
        self.not_applied = ""

    @classmethod
    def part(cls, folder: Path) -> InsidePart:
        """Make the part of the tool that profiles this process."""
        agent = cls(orders_from(), folder)
        return InsidePart(agent.hooks(), agent.on_import(), begin=agent._write_at_exit)

    # --- requested changes ------------------------------------------------------------------------

    def on_import(self) -> dict[str, Callable[[], None]]:
        """Return the work on imports: the requested changes of torch and its settings."""
        return {"torch": self._noting(self._execute), _CONFIG: self._noting(self._settle)}

    def _noting(self, change: Callable[[], None]) -> Callable[[], None]:
        """Wrap a change so that its failure is noted, and the program goes on."""

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
            setattr(sys.modules[_CONFIG], name, value)

    def _settings_now(self) -> dict[str, str]:
        config = sys.modules.get(_CONFIG)
        names = self.orders.settings if config is not None else ()
        return {name: repr(getattr(config, name, None)) for name in names}

    # --- measurements -----------------------------------------------------------------------------

    def hooks(self) -> tuple[Hook, ...]:
        return (
            Hook(
                stage=stages.DYNAMO,
                records="seconds of every call of a compiled function",
                wraps=(
                    Wrap(hooked.TORCH_DYNAMO_CONTEXT_CALL, around(self._compile_function)),
                    Wrap(hooked.RUN_START_CALLBACKS, around(self._begin_compile)),
                ),
            ),
            Hook(
                stage=stages.WRAPPER,
                records="seconds of every call of a compiled graph",
                wraps=(Wrap(hooked.LOAD_BY_KEY_PATH, around(self._load_graph)),),
            ),
            Hook(
                stage=stages.RUNTIME,
                records="seconds of every call of a package of AOTInductor",
                wraps=(Wrap(hooked.AOTICOMPILED_MODEL_CALL, self.around_packages),),
            ),
        )

    def _compile_function(self, original: Callable[..., Any], context: Any, function: Any) -> Any:
        compiled = original(context, function)
        # The call of a compiled module passes through here anyway.
        if type(context).__name__ != "OptimizeContext" or not isinstance(compiled, FunctionType):
            return compiled
        return self.clock.timed(compiled, *_described(function))

    def _begin_compile(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.clock.compile_begins()
        return original(*args, **kwargs)

    def _load_graph(
        self, original: Callable[..., Any], cls: Any, key: str, path: str, *args: Any, **kwargs: Any
    ) -> Any:
        module = original(cls, key, path, *args, **kwargs)
        if callable(getattr(module, "call", None)):
            SCOPE.guard(self.graph_loaded, module, path)
        return module

    def graph_loaded(self, module: Any, path: str) -> None:
        module.call = self.clock.timed(module.call, "graph", GRAPH, path)

    def around_packages(self, original: Callable[..., Any]) -> Callable[..., Any]:
        timed = self.clock.timed(original, "package", PACKAGE)

        @functools.wraps(original)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            return timed(model, *args, **kwargs)

        return call

    # --- output -----------------------------------------------------------------------------------

    def _write_at_exit(self) -> None:
        atexit.register(self._end)

    def _end(self) -> None:
        if os.getpid() == self.pid:
            SCOPE.guard(self.ends)
        self._write()

    def ends(self) -> None:
        """Finish measuring; called when the program ends."""

    def _write_now_and_then(self) -> None:
        if time.monotonic() - self._written > _WRITE_EVERY:
            self._write()

    def _write(self) -> None:
        if os.getpid() == self.pid:
            SCOPE.guard(self.write_files)

    def write_files(self) -> None:
        self._written = time.monotonic()
        found = self.clock.as_data(self.pid, self._settings_now())
        found = replace(found, not_applied=self.not_applied)
        if found.calls or found.not_applied or found.several_threads:
            write_measured(found, self.place)


def _described(function: Any) -> tuple[str, str, str]:
    holder = getattr(function, "__self__", None)
    if holder is not None and hasattr(type(holder), "forward"):
        code = getattr(getattr(type(holder), "forward", None), "__code__", None)
        name = type(holder).__name__
    else:
        code = getattr(function, "__code__", None)
        name = getattr(function, "__qualname__", type(function).__name__)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return name, FUNCTION, place


call_profiler = Agent.part
