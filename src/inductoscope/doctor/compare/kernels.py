"""The first kernel whose result is not what its graph says.

The wrapper that Inductor generates, in Python or in C++, is rewritten so that it announces every
kernel call and reports every buffer that the kernel got. The first buffer that does not hold the
value of its node names the kernel and the node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.compare import cpp_reports, cpp_wrappers, python_wrappers
from inductoscope.doctor.compare.graphs import NodeValues, inputs_for, named_inputs
from inductoscope.doctor.compare.overwritten import LiveBuffers
from inductoscope.doctor.compare.values import copy_values
from inductoscope.doctor.compare.watched_graphs import (
    KernelDivergence,
    WatchedGraph,
    described,
    divergence_of,
)
from inductoscope.kernels.wrapper_code import exchanged
from inductoscope.recording.events.checking import KernelLaunched

TORCH_NAMES = {
    "torch._inductor.codecache": ("PyCodeCache.load_by_key_path",),
    "torch._inductor.graph": ("GraphLowering.codegen",),
    "torch._inductor.virtualized": ("V.extern_kernel_nodes",),
}


class EnoughSeen(Exception):
    """Raised by a callback of a watch, to end the call: what comes later only passes it on."""


@dataclass(frozen=True)
class LoadedWrapper:
    """A generated wrapper as it is loaded in this process, and the graph that it computes."""

    module: Any
    path: str
    graph: WatchedGraph


@dataclass
class KernelWatch:
    """Rewrites wrappers as they are made, and keeps what they report when they run."""

    compare: bool = True
    # Called after every kernel that gets a buffer.
    on_kernel: Callable[[str], None] = lambda kernel: None
    # Called with the kernel and all buffers that it got or made.
    on_buffers: Callable[[str, dict[str, Any]], None] = lambda kernel, buffers: None
    # Called with a graph and the buffers of each of its kernels, before it is first called.
    on_graph: Callable[[WatchedGraph, dict[str, list[str]]], None] = lambda graph, buffers: None
    # Called at once for every buffer that is not what its node says.
    on_divergence: Callable[[KernelDivergence], None] = lambda found: None
    divergences: list[KernelDivergence] = field(default_factory=list)
    graphs: list[WatchedGraph] = field(default_factory=list)
    _loading: WatchedGraph | None = None

    @property
    def known_inputs(self) -> dict[str, Any]:
        """Values of graph inputs by name, of all graphs that were called."""
        found: dict[str, Any] = {}
        for graph in self.graphs:
            found.update(graph.inputs)
        return found

    @contextlib.contextmanager
    def watching(self) -> Iterator[KernelWatch]:
        """While this is active, wrappers are rewritten as they are made."""
        from torch._inductor.codecache import PyCodeCache
        from torch._inductor.graph import GraphLowering

        codegen = GraphLowering.codegen
        load = PyCodeCache.__dict__["load_by_key_path"].__func__

        def codegen_watched(lowered: Any, *args: Any, **kwargs: Any) -> Any:
            result = codegen(lowered, *args, **kwargs)
            if not getattr(lowered, "is_const_graph", False):
                self._note_code(lowered, result)
            return result

        def load_watched(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> Any:
            module = load(cls, key, path, *args, **kwargs)
            # Loading a wrapper may load its kernels, as modules of their own.
            if self._loading is not None and hasattr(module, "call"):
                graph, self._loading = self._loading, None
                self._change(module, path, graph)
            return module

        with contextlib.ExitStack() as stack:
            _set(stack, GraphLowering, "codegen", codegen_watched)
            _set(stack, PyCodeCache, "load_by_key_path", classmethod(load_watched))
            stack.enter_context(cpp_reports.original_errors())
            yield self

    @contextlib.contextmanager
    def watching_loaded(self, wrappers: Iterable[LoadedWrapper]) -> Iterator[KernelWatch]:
        """While this is active, wrappers that were loaded before report what they do."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(cpp_reports.original_errors())
            for wrapper in wrappers:
                stack.enter_context(self._exchanged(wrapper))
                self.graphs.append(wrapper.graph)
                stack.callback(wrapper.graph.forget)
            yield self

    def _exchanged(self, wrapper: LoadedWrapper) -> contextlib.AbstractContextManager[None]:
        """While it is entered, a wrapper that was loaded before reports what it does."""
        module, path, graph = wrapper.module, wrapper.path, wrapper.graph
        if not hasattr(module, "inductor_entry"):
            return exchanged(module, *self._reporting(path, graph))
        text = Path(path).read_text("utf-8")
        reporting = cpp_wrappers.with_reports(text, graph.written)
        if reporting is None:
            return contextlib.nullcontext()
        reports = _GraphReports(self, graph, reporting.mentions)
        cpp_reports.report_to(reports, reporting.name)
        return python_wrappers.exchanged_entry(module, path, reporting.text)

    def _note_code(self, lowered: Any, code: Any) -> None:
        """Code was generated: a Python wrapper is loaded next, a C++ one is compiled next."""
        if getattr(lowered, "cpp_wrapper", False):
            self._change_cpp(lowered, code[0])
        elif not getattr(lowered, "aot_mode", False):
            # AOTInductor tunes kernels with a Python wrapper, on made-up inputs.
            self._loading = described(lowered)

    def _change_cpp(self, lowered: Any, code: Any) -> None:
        from torch._inductor.virtualized import V

        operators = [_operator(node) for node in _list(V.extern_kernel_nodes)]
        graph = described(lowered)
        wrapper = cpp_wrappers.with_reports(code.value, graph.written, operators)
        if wrapper is None:
            return
        code.value = wrapper.text
        cpp_reports.report_to(_GraphReports(self, graph, wrapper.mentions), wrapper.name)
        self.graphs.append(graph)

    def _reporting(self, path: str, graph: WatchedGraph) -> tuple[Any, dict[str, Any]]:
        """The code of a Python wrapper that reports what it does, and the functions it calls."""
        wrapper = python_wrappers.with_reports(path, graph.written)
        self.on_graph(graph, wrapper.buffers)
        reports = _GraphReports(self, graph, wrapper.mentions)
        return wrapper.code, python_wrappers.names_for(reports)

    def _change(self, module: Any, path: str, graph: WatchedGraph) -> None:
        code, names = self._reporting(path, graph)
        python_wrappers.replace_functions(module, path, code, names)
        self.graphs.append(graph)


class _GraphReports:
    """Receives what the wrapper of one graph reports, and compares it with the graph."""

    def __init__(self, watch: KernelWatch, graph: WatchedGraph, mentions: dict[str, int]) -> None:
        self._watch = watch
        self._graph = graph
        self._mentions = mentions
        # How often each buffer was reported in this call.
        self._seen: dict[str, int] = {}
        self._live = LiveBuffers(graph, mentions)

    def begin(self, arguments: list[Any], constants: Mapping[str, Any] = cpp_reports.NONE) -> None:
        graph = self._graph
        graph.checked.clear()
        self._seen.clear()
        self._live.clear()
        graph.inputs = named_inputs(graph.module, copy_values(list(arguments)))
        if self._watch.compare:
            inputs = inputs_for(graph.module, graph.inputs)
            held = {graph.constants.get(name, name): item for name, item in constants.items()}
            try:
                graph.expected = NodeValues(graph.module, copy_values(inputs), held)
            except Exception:
                graph.expected = None  # The graph cannot be interpreted.

    def before(self, kernel: str) -> None:
        SCOPE.emit(KernelLaunched(kernel=kernel))

    def after(self, kernel: str, buffers: dict[str, Any]) -> None:
        """A buffer is compared after the kernel that makes it. One that is written again later
        holds the value of its node only after the last kernel that gets it."""
        if buffers:
            self._watch.on_kernel(kernel)
            self._watch.on_buffers(kernel, buffers)
        graph, seen, mentions = self._graph, self._seen, self._mentions
        tensors = {name: v for name, v in buffers.items() if isinstance(v, torch.Tensor)}
        for name in buffers:
            seen[name] = seen.get(name, 0) + 1
        made = [name for name in buffers if seen[name] == 1]
        # In the order of the graph: what a kernel computes from a wrong value is wrong, too.
        for name in sorted(tensors, key=graph.place_of):
            value = tensors[name]
            is_first, is_last = seen[name] == 1, seen[name] >= mentions.get(name, 1)
            if is_first or name in graph.rewritten:
                graph.checked[name] = value.detach().clone()
            if is_last if name in graph.rewritten else is_first:
                self._note(divergence_of(graph, kernel, name, value), made)
        if self._watch.compare:
            self._note(self._live.after(kernel, buffers), made)

    def _note(self, found: KernelDivergence | None, made: Sequence[str]) -> None:
        """Keep a buffer that is wrong, with what went into those that were made along with it."""
        if found is not None:
            every = (*found.origins, *self._graph.nodes_with(found.buffer, made))
            found = replace(found, kernel_origins=tuple(dict.fromkeys(every)))
            self._watch.divergences.append(found)
            self._watch.on_divergence(found)


def _operator(node: Any) -> str:
    """The operator that an AOTInductor model calls through its executor."""
    return str(getattr(getattr(node, "node", None), "target", "") or getattr(node, "name", ""))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # Outside of AOTInductor it may be unset.


def _set(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    original = owner.__dict__[name]
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, original)
