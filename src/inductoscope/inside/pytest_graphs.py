"""Watches what the test that is running compiles, and keeps the first calls of each graph."""

from __future__ import annotations

import functools
import itertools
import os
import re
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.inside.compare.graphs import snapshot
from inductoscope.inside.doctor.compile_conditions import how_compiled, is_traced
from inductoscope.inside.install import describe_torch
from inductoscope.inside.observe import current_compile_id
from inductoscope.inside.pytest_calls import (
    KeptSuiteCall,
    SuiteGraph,
    keep_call,
    said_by,
    why_never_kept,
    why_not_kept,
)
from inductoscope.inside.scope import BROKEN, SCOPE
from inductoscope.inside.search.wrong_result_location import places_of
from inductoscope.pytest_plugin.results import NOT_CHECKED, CheckedCall, SuiteGraphData
from inductoscope.torch_facts.frames import shorten

_OBJECT = re.compile(r"<(?:[\w.<>]*\.)?(\w+) object at 0x[0-9a-f]+>")
_BROKEN = "inductoscope itself failed"


@dataclass
class SeenInTest:
    """The graphs that one test has compiled and called so far."""

    graphs: list[SuiteGraphData] = field(default_factory=list)
    calls: list[KeptSuiteCall] = field(default_factory=list)
    not_kept: dict[str, CheckedCall] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def next_call_of(self, graph: SuiteGraph) -> int:
        """Counts the calls of a graph."""
        number = self._numbers[graph.name] = self._numbers.get(graph.name, 0) + 1
        return number

    @property
    def bytes(self) -> int:
        """How much is kept."""
        return sum(call.size for call in self.calls)

    def note(self, graph: SuiteGraph, number: int, why: str) -> None:
        """A call that is not kept; one of each graph is enough."""
        self.not_kept[graph.name] = CheckedCall(
            graph.name, graph.compile_id, number, NOT_CHECKED, why
        )


class GraphWatch:
    """Keeps compiled graphs by test. One for each process that runs tests."""

    def __init__(self, calls: int, prefix: str, on_graph: Callable[[], bool]) -> None:
        """`on_graph` is called for every graph; it says whether a new recording begins with it."""
        self._most, self._prefix, self._on_graph = calls, prefix, on_graph
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        # By torch's id of the compile, which begins anew after a reset.
        self._by_id: weakref.WeakValueDictionary[str, SuiteGraph] = weakref.WeakValueDictionary()
        # The test that is running; None between tests, and where nothing is to be checked.
        self.seen: SeenInTest | None = None
        # Whether the tool itself calls compiled code now.
        self.is_busy = False

    # --- compiling ----------------------------------------------------------------------------

    def compile(
        self, original: Callable[..., Any], output: Any, module: GraphModule, examples: Any
    ) -> Callable[..., Any]:
        """Have a graph compiled as ever, and return what keeps its calls."""
        __tracebackhide__ = True
        if self.is_busy or os.getpid() != self._pid:
            compiled: Callable[..., Any] = original(output, module, examples)
            return compiled
        if self._on_graph():
            SCOPE.guard(describe_torch)
        graph = SCOPE.guard(self._new_graph, output, module)
        compiled = original(output, module, examples)
        if not isinstance(graph, SuiteGraph) or not isinstance(compiled, types.FunctionType):
            return compiled
        graph.compiled = compiled
        return self._keeping(graph, compiled)

    def _new_graph(self, output: Any, module: GraphModule) -> SuiteGraph | None:
        """Described before it is compiled: that may change it. None if it is not Inductor's."""
        compile_id = current_compile_id() or "?"
        name = f"{self._prefix}{next(self._numbers)}"
        options, dynamic, backend = how_compiled(output)
        kept = snapshot(module)
        source = next(iter(places_of(kept.graph.nodes)), "")
        if self.seen is not None:
            # An object is named by its class, not by where it is in memory.
            named = _OBJECT.sub(r"\1", backend)
            data = SuiteGraphData(name, compile_id, shorten(source), named)
            self.seen.graphs.append(data)
        if backend:
            return None
        graph = SuiteGraph(name, compile_id, kept, options, dynamic)
        graph.off = self._why_never(output, graph)
        self._by_id[compile_id] = graph
        return graph

    def _why_never(self, output: Any, graph: SuiteGraph) -> str:
        import torch._inductor.config as config

        if graph.compile_id.startswith("!"):
            return "it is compiled autograd's"
        if getattr(output, "package", None) is not None:
            return "torch stores it in a package"
        settings = {"triton.cudagraphs": config.triton.cudagraphs, **graph.options}
        return why_never_kept(graph.module, settings)

    def note_backward(self, compile_id: str) -> None:
        """The backward graph of a compile is there."""
        graph = self._by_id.get(compile_id)
        if graph is not None:
            graph.has_backward = True

    # --- calling ------------------------------------------------------------------------------

    def _keeping(self, graph: SuiteGraph, compiled: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compiled)
        def call(*arguments: Any, **others: Any) -> Any:
            __tracebackhide__ = True
            if self.seen is None or self.is_busy or others or os.getpid() != self._pid:
                return compiled(*arguments, **others)
            kept = SCOPE.guard(self._keep, graph, arguments)
            if kept is None or kept is BROKEN:
                return compiled(*arguments)
            try:
                result = compiled(*arguments)
            except Exception as error:
                kept.raised = said_by(error)
                raise
            SCOPE.guard(kept.returned)
            return result

        return call

    def _keep(self, graph: SuiteGraph, arguments: tuple[Any, ...]) -> KeptSuiteCall | None:
        seen = self.seen
        if seen is None or is_traced(arguments) or torch.jit.is_tracing():
            return None
        number = seen.next_call_of(graph)
        if number > self._most:
            return None
        seen.note(graph, number, _BROKEN)  # Unless what follows gets through.
        why = why_not_kept(graph, arguments, seen.bytes)
        if why:
            seen.note(graph, number, why)
            return None
        kept = keep_call(graph, number, arguments)
        seen.not_kept.pop(graph.name, None)
        seen.calls.append(kept)
        return kept
