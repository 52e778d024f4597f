"""The memory profiler inside a process of the user's program: its agents, compiled and eager."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.inside.profiling import memory_steps
from inductoscope.inside.profiling.agent import Agent
from inductoscope.inside.profiling.call_clock import CallClock, in_eager, is_traced
from inductoscope.inside.profiling.memory_steps import PROGRAM_ENDED, StepTracer
from inductoscope.inside.scope import SCOPE
from inductoscope.profiling.orders import Orders
from inductoscope.profiling.timings import FUNCTION, GRAPH, write_measured
from inductoscope.torch_facts import python_wrappers
from inductoscope.torch_facts.frames import is_users
from inductoscope.torch_facts.python_wrappers import exchange
from inductoscope.torch_facts.torch_names import Hook


class MemoryAgent(Agent):
    """A profiler of allocations and frees from one call of a compiled function to the next."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        super().__init__(orders, folder)
        self.tracer = StepTracer()
        self.clock: SteppingClock = SteppingClock(self, self._write_now_and_then)
        # The amount of data at the last write.
        self._seen_when_written = 0

    def _execute(self) -> None:
        # The allocator keeps its table from the import of torch on.
        self.tracer.has_table = memory_steps.keep_table()
        super()._execute()

    def hooks(self) -> tuple[Hook, ...]:
        return (*super().hooks(), self.tracer.profilers.hook)

    def calls(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function to call in place of a compiled one: itself."""
        return function

    # Whether tracing of the first call starts only once its graph has been compiled.
    waits_for_graph = True

    def graph_loaded(self, module: Any, path: str) -> None:
        try:
            code = python_wrappers.named_wrapper(path, Path(path).read_text("utf-8"))
        except (OSError, SyntaxError, ValueError) as error:
            self.tracer.notes[f"{path} cannot be rewritten: {error}"] = None
            code = None
        if code is not None:
            exchange(module, code, self._names(path))
        else:
            module.call = self._around_cpp(module.call, path)
        super().graph_loaded(module, path)

    def _names(self, path: str) -> dict[str, Any]:
        told: dict[str, Callable[..., None]] = {
            python_wrappers.ENTERED: self.tracer.graph_entered,
            python_wrappers.NAMED: self.tracer.graph_named,
            python_wrappers.LEFT: self.tracer.graph_left,
        }
        return {name: functools.partial(SCOPE.guard, note, path) for name, note in told.items()}

    def _around_cpp(self, call: Callable[..., Any], path: str) -> Callable[..., Any]:
        self.tracer.notes["Buffers of wrappers in C++ have no names here: only their bytes."] = None
        names = self._names(path)

        @functools.wraps(call)
        def noted(args: Any) -> Any:
            names[python_wrappers.ENTERED]()
            result = call(args)
            names[python_wrappers.LEFT](result)
            return result

        return noted

    def ends(self) -> None:
        self.tracer.close(PROGRAM_ENDED)

    def write_files(self) -> None:
        super().write_files()
        found = self.tracer.as_data(self.pid)
        seen = len(found.peaks) + len(found.results) + len(found.notes)
        if seen > self._seen_when_written:  # A step may be large, so it is not written twice.
            self._seen_when_written = seen
            write_measured(found, self.place)


class SteppingClock(CallClock):
    """A clock that reports outermost calls to the tracer; their times include tracing."""

    def __init__(self, agent: MemoryAgent, after_call: Callable[[], None]) -> None:
        super().__init__(after_call=after_call)
        self._agent = agent
        # The wrappers of graphs that autograd has called.
        self._graphs: list[str] = []

    def compile_begins(self) -> None:
        super().compile_begins()
        self._agent.tracer.compiles += 1

    def timed(
        self,
        function: Callable[..., Any],
        name: str,
        kind: str = FUNCTION,
        place: str = "",
        group: str = "",
    ) -> Callable[..., Any]:
        agent, tracer = self._agent, self._agent.tracer
        made = agent.calls(function) if kind == FUNCTION else function
        timed = super().timed(made, name, kind, place, group)
        thing = kind, name, place

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._depth.value or is_traced():
                return timed(*args, **kwargs)
            if kind == GRAPH:
                result = timed(*args, **kwargs)
                SCOPE.guard(self._backward_ended, place, result)
                return result
            waits = agent.waits_for_graph and kind == FUNCTION
            begins = functools.partial(tracer.call_begins, waits=waits)
            SCOPE.guard(begins, thing, {**dict(enumerate(args, 1)), **kwargs})
            try:
                result = timed(*args, **kwargs)
            finally:
                tracer.call_left()
            SCOPE.guard(tracer.call_ended, thing, result)
            return result

        return call

    def _backward_ended(self, path: str, result: Any) -> None:
        """Note the result of a backward graph: gradients are compared between runs, too."""
        if path not in self._graphs:
            self._graphs.append(path)
            self._agent.tracer.note_result(f"backward {len(self._graphs)}", 1, result)


# --- in eager -------------------------------------------------------------------------------------


class EagerMemoryAgent(MemoryAgent):
    """A memory profiler that runs compiled functions in eager and notes the line of each tensor."""

    waits_for_graph = False

    def calls(self, function: Callable[..., Any]) -> Callable[..., Any]:
        eager = in_eager(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.tracer.is_open:
                return eager(*args, **kwargs)
            with _noting_mode(self.tracer.operation_made):
                return eager(*args, **kwargs)

        return call


def _noting_mode(note: Callable[[str, str, Any], None]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class NotingMode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            SCOPE.guard(note, str(function), _users_line(), result)
            return result

    return NotingMode()


def _users_line() -> str:
    """Return the innermost line of the program outside of torch and of this tool."""
    frame: Any = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


memory_profiler = MemoryAgent.part
eager_memory_profiler = EagerMemoryAgent.part
