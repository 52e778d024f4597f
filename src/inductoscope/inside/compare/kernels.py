"""Finds the first kernel whose result differs from its graph.

The wrapper that Inductor generates, in Python or in C++, is rewritten so that it announces every
kernel call and reports every buffer that the kernel got. The first buffer that does not hold the
value of its node names the kernel and the node.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.inside.compare import cpp_reports
from inductoscope.inside.compare.bug_or_rounding import OutputDifference, is_close, judge_tensor
from inductoscope.inside.compare.graphs import (
    Aside,
    NodeValues,
    ValuesInStep,
    input_names,
    inputs_for,
    named_inputs,
    snapshot,
)
from inductoscope.inside.compare.reference import FEW_SAMPLES_FIRST
from inductoscope.inside.compare.value_in_tiles import ValueInTiles, comparable
from inductoscope.inside.compare.values import copy_values, is_plain, shared_copies
from inductoscope.inside.memory_budget import ask_for_main_memory
from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import KernelLaunched
from inductoscope.torch_facts import cpp_wrappers, python_wrappers


class EnoughSeen(Exception):
    """Raised by a callback of a watch to end the call: later kernels only propagate the error."""


@dataclass(frozen=True)
class LoadedWrapper:
    """A generated wrapper that is loaded in this process, and its graph."""

    module: Any
    path: str
    graph: WatchedGraph


@dataclass
class KernelWatch:
    """A watch that rewrites wrappers to report their kernels and buffers, and checks these."""

    compare: bool = True
    # Compute eager's values in step with the kernels, for graphs of any size.
    in_step: bool = False
    # Called after every kernel that gets a buffer.
    on_kernel: Callable[[str], None] = lambda kernel: None
    # Called with the kernel and all buffers that it got or made.
    on_buffers: Callable[[str, dict[str, Any]], None] = lambda kernel, buffers: None
    # Called with a graph and the buffers of each of its kernels, before it is first called.
    on_graph: Callable[[WatchedGraph, dict[str, list[str]]], None] = lambda graph, buffers: None
    # Called at once for every buffer that differs from its node.
    on_divergence: Callable[[KernelDivergence], None] = lambda found: None
    divergences: list[KernelDivergence] = field(default_factory=list)
    # How many calls of kernels had a buffer that was compared.
    compared: int = 0
    graphs: list[WatchedGraph] = field(default_factory=list)
    _loading: WatchedGraph | None = None

    @property
    def known_inputs(self) -> dict[str, Any]:
        """The inputs of all graphs that were called, by name."""
        found: dict[str, Any] = {}
        for graph in self.graphs:
            found.update(graph.inputs)
        return found

    @contextlib.contextmanager
    def watching(self) -> Iterator[KernelWatch]:
        """Rewrite wrappers that are created inside the block."""
        from torch._inductor.codecache import PyCodeCache

        load = PyCodeCache.__dict__["load_by_key_path"].__func__

        def load_watched(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> Any:
            module = load(cls, key, path, *args, **kwargs)
            # Loading a wrapper may load its kernels, as modules of their own.
            if self._loading is not None and hasattr(module, "call"):
                graph, self._loading = self._loading, None
                self._change(module, path, graph)
            return module

        with contextlib.ExitStack() as stack:
            stack.enter_context(told_of_code(self._note_code))
            PyCodeCache.load_by_key_path = classmethod(load_watched)
            stack.callback(setattr, PyCodeCache, "load_by_key_path", classmethod(load))
            stack.enter_context(cpp_reports.original_errors())
            yield self

    @contextlib.contextmanager
    def watching_loaded(self, wrappers: Iterable[LoadedWrapper]) -> Iterator[KernelWatch]:
        """Have wrappers that were loaded earlier report inside the block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(cpp_reports.original_errors())
            for wrapper in wrappers:
                stack.enter_context(self._exchanged(wrapper))
                self.graphs.append(wrapper.graph)
                stack.callback(wrapper.graph.forget)
            yield self

    def _exchanged(self, wrapper: LoadedWrapper) -> contextlib.AbstractContextManager[None]:
        """Replace a loaded wrapper by a reporting one inside the block."""
        module, path, graph = wrapper.module, wrapper.path, wrapper.graph
        if not hasattr(module, "inductor_entry"):
            return python_wrappers.exchanged(module, *self._reporting(path, graph))
        text = Path(path).read_text("utf-8")
        reporting = cpp_wrappers.with_reports(text, graph.written)
        if reporting is None:
            return contextlib.nullcontext()
        reports = GraphReports(self, graph, reporting.reports)
        cpp_reports.report_to(reports, reporting.name)
        return python_wrappers.exchanged_entry(module, path, reporting.text)

    def _note_code(self, lowered: Any, code: Any) -> None:
        """Handle generated code: a Python wrapper is loaded next, a C++ one is compiled next."""
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
        cpp_reports.report_to(GraphReports(self, graph, wrapper.reports), wrapper.name)
        self.graphs.append(graph)

    def _reporting(self, path: str, graph: WatchedGraph) -> tuple[Any, dict[str, Any]]:
        """Return the code of a reporting Python wrapper, and the functions that it calls."""
        text = Path(path).read_text("utf-8")
        wrapper = python_wrappers.reporting_wrapper(path, text, graph.written)
        self.on_graph(graph, wrapper.buffers)
        reports = GraphReports(self, graph, wrapper.reports)
        names = (python_wrappers.BEGIN, python_wrappers.BEFORE, python_wrappers.AFTER)
        functions = (reports.begin, reports.before, reports.after)
        return wrapper.code, dict(zip(names, functions, strict=True))

    def _change(self, module: Any, path: str, graph: WatchedGraph) -> None:
        code, names = self._reporting(path, graph)
        python_wrappers.replace_functions(module, path, code, names)
        self.graphs.append(graph)


class GraphReports:
    """A receiver of one wrapper's reports, which compares buffers with the graph."""

    def __init__(
        self, watch: KernelWatch, graph: WatchedGraph, reports: Sequence[Sequence[str]]
    ) -> None:
        self._watch = watch
        self._graph = graph
        self._reports = reports
        # The number of reports of each buffer.
        self._mentions = Counter(name for buffers in reports for name in buffers)
        # How often each buffer was reported in this call.
        self._seen: dict[str, int] = {}
        self._live = LiveBuffers(graph, self._mentions)

    def begin(self, arguments: list[Any], constants: Mapping[str, Any] = {}) -> None:
        """Note a call of the graph; `constants` are the tensors that C++ code holds."""
        graph = self._graph
        graph.forget()
        self._seen.clear()
        self._live.clear()
        names = input_names(graph.module)
        written = [number for number, name in enumerate(names) if name in graph.written]
        if self._watch.in_step:
            given = shared_copies(arguments, written)
            ask_for_main_memory(sum(given[number].nbytes for number in graph.donated))
            for number in graph.donated:
                given[number] = Aside.of(given[number])
        else:
            given = copy_values(list(arguments))
        graph.inputs = named_inputs(graph.module, given)
        if self._watch.compare:
            inputs = inputs_for(graph.module, graph.inputs)
            held = {graph.constants.get(name, name): item for name, item in constants.items()}
            try:
                if self._watch.in_step:
                    compared = graph.compared_nodes(self._reports)
                    graph.expected = ValuesInStep(graph.module, inputs, held, compared)
                else:
                    graph.expected = NodeValues(graph.module, copy_values(inputs), held)
            except Exception:
                graph.expected = None  # The graph cannot be interpreted.

    def before(self, kernel: str) -> None:
        SCOPE.emit(KernelLaunched(kernel=kernel))

    def after(self, kernel: str, buffers: dict[str, Any]) -> None:
        """Compare each buffer after the kernel that makes it.

        A buffer that is written again later is compared after the last kernel that gets it.
        """
        if buffers:
            self._watch.on_kernel(kernel)
            self._watch.on_buffers(kernel, buffers)
        graph, seen, mentions = self._graph, self._seen, self._mentions
        tensors = {name: v for name, v in buffers.items() if isinstance(v, torch.Tensor)}
        for name in buffers:
            seen[name] = seen.get(name, 0) + 1
        made = [name for name in buffers if seen[name] == 1]
        is_compared = False
        # The order is that of the graph, since a value computed from a wrong value is wrong, too.
        for name in sorted(tensors, key=graph.place_of):
            value = tensors[name]
            is_first, is_last = seen[name] == 1, seen[name] >= mentions.get(name, 1)
            if is_first or name in graph.rewritten:
                graph.reported.add(name)
                graph.checked[name] = value.detach().clone()
            if is_last if name in graph.rewritten else is_first:
                self._note(divergence_of(graph, kernel, name, value), made)
                origin, _ = graph.origins.get(name, (None, ()))
                if origin is not None and graph.expected is not None:
                    is_compared = True
                    graph.expected.took_from(origin, value.detach())
                    graph.checked[name].copy_(value)
        self._watch.compared += is_compared
        if self._watch.compare:
            self._note(self._live.after(kernel, buffers), made)
        if self._watch.in_step:
            for name in [name for name in graph.checked if not self._live.is_needed(name)]:
                del graph.checked[name]

    def _note(self, found: KernelDivergence | None, made: Sequence[str]) -> None:
        """Record a wrong buffer, with the nodes of all buffers that its kernel made."""
        if found is not None:
            every = (*found.origins, *self._graph.nodes_with(found.buffer, made))
            found = replace(found, kernel_origins=tuple(dict.fromkeys(every)))
            self._watch.divergences.append(found)
            self._watch.on_divergence(found)


def _operator(node: Any) -> str:
    """Return the operator that an AOTInductor model calls through its proxy executor."""
    return str(getattr(getattr(node, "node", None), "target", "") or getattr(node, "name", ""))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # Unset outside of AOTInductor.


@contextlib.contextmanager
def told_of_code(note: Callable[[Any, Any], None]) -> Iterator[None]:
    """Call `note` with every lowered graph and its generated code, inside the block."""
    from torch._inductor.graph import GraphLowering

    codegen = GraphLowering.codegen

    def codegen_told(lowered: Any, *args: Any, **kwargs: Any) -> Any:
        result = codegen(lowered, *args, **kwargs)
        if not getattr(lowered, "is_const_graph", False):
            note(lowered, result)
        return result

    GraphLowering.codegen = codegen_told
    try:
        yield
    finally:
        GraphLowering.codegen = codegen


# --- What is known of a lowered graph, and whether a buffer holds what its node computes ----------
#
# A buffer whose IR has an origin node must hold the value of that node, which an interpreter
# computes from the same graph on the same inputs.


@dataclass(frozen=True)
class KernelDivergence:
    """The first buffer whose contents differ from its origin node's value."""

    kernel: str
    buffer: str
    node: str
    text: str
    # Names of the FX nodes that went into the buffer.
    origins: tuple[str, ...]
    graph: WatchedGraph
    # `origins`, and the nodes that went into other buffers of the kernel.
    kernel_origins: tuple[str, ...] = ()
    # Whether the buffer was right, and the kernel has changed it though it must not.
    is_overwritten: bool = False
    # The buffer of the kernel that has the same memory.
    shares_memory_with: str = ""


@dataclass
class WatchedGraph:
    """A lowered graph: the origin of each buffer, and the inputs of the current call."""

    module: GraphModule
    origins: dict[str, tuple[str | None, tuple[str, ...]]]
    lowered: Any
    # Buffers that are written again later, with the nodes that do it.
    rewritten: dict[str, set[str]] = field(default_factory=dict)
    # For each buffer, the buffers that are computed from it.
    readers: dict[str, set[str]] = field(default_factory=dict)
    # For each buffer, the buffers of the same kernel; some of them are never in memory.
    together: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # The types that the lowered graph gives to buffers.
    planned: dict[str, torch.dtype] = field(default_factory=dict)
    # Constants of the generated code, with the attributes of the module that they come from.
    constants: dict[str, str] = field(default_factory=dict)
    # Inputs and constants that the graph writes to.
    written: tuple[str, ...] = ()
    # The numbers of inputs whose memory compiled code uses for buffers.
    donated: tuple[int, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict)
    expected: NodeValues | ValuesInStep | None = None
    # The buffers that were reported, and their contents as far as they are kept.
    reported: set[str] = field(default_factory=set)
    checked: dict[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {node.name: place for place, node in enumerate(self.module.graph.nodes)}

    def place_of(self, buffer: str) -> int:
        """Return the position of a buffer's node in the graph; the end if it has none."""
        origin, _ = self.origins.get(buffer, (None, ()))
        return self._places.get(origin or "", len(self._places))

    def nodes_in(self, buffers: Iterable[str]) -> tuple[str, ...]:
        """Return the names of all nodes that went into these buffers."""
        every = [self.origins[name][1] for name in buffers if name in self.origins]
        return tuple(dict.fromkeys(node for nodes in every for node in nodes))

    def compared_nodes(
        self, reports: Sequence[Sequence[str]]
    ) -> list[tuple[str, list[Container[str]]]]:
        """Return the node of each reported buffer, and the nodes that its kernels read.

        A report has the buffers that a kernel reads, which were reported before, and makes.
        """
        found: dict[str, tuple[str, list[Container[str]]]] = {}
        # A buffer without a node stands for the nodes that its own kernel reads.
        known: dict[str, set[str]] = {}
        made_by: dict[str, int] = {}
        for number, buffers in enumerate(reports):
            made = [name for name in buffers if name not in known]
            sources = self._read_for(made).union(buffers).difference(made)
            read = set().union(*(known.get(name, ()) for name in sources))
            for name in buffers:
                node = self.origins.get(name, (None, ()))[0]
                if name in made:
                    known[name] = {node} if node else read
                    made_by.update(dict.fromkeys(known[name] - made_by.keys(), number))
                if node and (name in made or name in self.rewritten):
                    # What reads no buffer may read memory that the last kernel has filled.
                    given = read or _MadeBefore(made_by, number - 1)
                    found.setdefault(name, (node, []))[1].append(given)
        return [*found.values()]

    def _read_for(self, buffers: Sequence[str]) -> set[str]:
        """Return the buffers that are read for these; one of reused memory is not in the report."""
        others = {other for name in buffers for other in self.together.get(name, (name,))}
        return set().union(*(self._reads.get(name, ()) for name in others)) - others

    @cached_property
    def _reads(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for source, readers in self.readers.items():
            for name in readers:
                found.setdefault(name, set()).add(source)
        return found

    def nodes_with(self, buffer: str, made: Iterable[str]) -> tuple[str, ...]:
        """Return all nodes of the kernel that made or wrote `buffer` and made the others."""
        others = (name for each in (buffer, *made) for name in self.together.get(each, (each,)))
        written = self.rewritten.get(buffer, ())
        return tuple(dict.fromkeys((*written, *self.nodes_in(dict.fromkeys(others)))))

    def forget(self) -> None:
        self.inputs, self.expected, self.reported, self.checked = {}, None, set(), {}


@dataclass(frozen=True)
class _MadeBefore:
    """The nodes that kernels before this one make; no set of each kernel holds all of them."""

    made_by: Mapping[str, int]
    number: int

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.made_by.get(name, self.number) < self.number


def described(lowered: Any) -> WatchedGraph:
    """Describe a lowered graph as far as needed to watch its kernels."""
    origins: dict[str, tuple[str | None, tuple[str, ...]]] = {}
    planned = {}
    rewritten = _rewritten(lowered)
    constants = dict(lowered.allocated_constant_name)
    written = {*lowered.graph_inputs, *constants} & set(rewritten)
    for name, buffer in lowered.name_to_buffer.items():
        origin = buffer.get_origin_node()
        every = tuple(node.name for node in getattr(buffer, "origins", ()))
        origins[name] = (None if origin is None else origin.name, every)
        dtype = getattr(getattr(buffer, "layout", None), "dtype", None)
        if dtype is not None:
            planned[name] = dtype
        # A write to an input is a buffer of its own in the lowered graph.
        for target in written & set(_mutated_by(buffer)):
            origins[target] = origins[name]
    return WatchedGraph(
        snapshot(lowered.module),
        origins,
        lowered,
        rewritten=rewritten,
        readers=_readers(lowered),
        together=_together(lowered),
        planned=planned,
        constants=constants,
        written=tuple(sorted(written)),
        donated=tuple(lowered.bw_donated_idxs or ()) if lowered.is_backward else (),
    )


def _rewritten(lowered: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for operation in lowered.operations:
        writers = {node.name for node in getattr(operation, "origins", ())}
        for name in _mutated_by(operation):
            found.setdefault(name, set()).update(writers)
    return found


def _scheduled(lowered: Any) -> Sequence[Any]:
    """Return the scheduler's nodes after fusion."""
    nodes: Sequence[Any] = getattr(getattr(lowered, "scheduler", None), "nodes", ())
    return nodes


def _together(lowered: Any) -> dict[str, tuple[str, ...]]:
    kernels = [tuple(node.get_buffer_names()) for node in _scheduled(lowered)]
    return {name: names for names in kernels for name in names}


def _readers(lowered: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in _scheduled(lowered):
        for read in node.read_writes.reads:
            if not _is_only_for_order(read):
                found.setdefault(read.name, set()).update(node.get_buffer_names())
    return found


def _is_only_for_order(read: Any) -> bool:
    """Check for a dependency that only orders operations, without a read."""
    from torch._inductor.dependencies import WeakDep

    return isinstance(read, WeakDep) and getattr(read, "is_fake", True)


def _mutated_by(operation: Any) -> list[str]:
    # Some operations do not report mutations; they are compared like any other.
    with contextlib.suppress(AttributeError, NotImplementedError):
        return list(operation.get_mutation_names())
    return []


def divergence_of(
    graph: WatchedGraph, kernel: str, name: str, value: torch.Tensor
) -> KernelDivergence | None:
    origin, origins = graph.origins.get(name, (None, ()))
    expected = graph.expected
    if origin is None or expected is None:
        return None
    eager = expected.value(origin)
    if not isinstance(eager, torch.Tensor) or eager.numel() != value.numel():
        return None
    value = value.detach()
    planned = planned_dtype(graph, name, value)
    if planned != value.dtype:
        text = f"{name} is {value.dtype}, and the lowered graph takes it for {planned}"
        return KernelDivergence(kernel, name, origin, text, origins, graph)
    if eager.dtype != value.dtype:
        text = f"{name} is {value.dtype}, its node {origin} is {eager.dtype}"
        return KernelDivergence(kernel, name, origin, text, origins, graph)
    is_reshaped, value = eager.shape != value.shape, value.reshape(eager.shape)
    if isinstance(expected, ValuesInStep):
        difference = _judge_in_step(expected, name, origin, value)
    else:
        difference = _judge_whole(expected, name, origin, value)
    if difference is None or _holds_later_value(graph, name, value):
        return None
    if is_reshaped and _same_in_some_order(eager, value):
        return None
    since_right = _since_right_values(graph, origins)
    return KernelDivergence(kernel, name, origin, difference.text, since_right, graph)


def _judge_whole(
    expected: NodeValues, name: str, node: str, value: torch.Tensor
) -> OutputDifference | None:
    """Return how a buffer is wrong; None if it is right."""
    eager = expected.value(node)
    if is_close(eager, value):
        return None
    reference = expected.reference(node)
    reference = reference if isinstance(reference, torch.Tensor) else None
    for count in FEW_SAMPLES_FIRST:
        samples = expected.samples(node, count)
        difference, is_wrong = judge_tensor(name, eager, value, reference, samples)
        if not is_wrong:
            return None
    return difference


def _judge_in_step(
    expected: ValuesInStep, name: str, node: str, value: torch.Tensor
) -> OutputDifference | None:
    """Return how a buffer is wrong, judged in tiles; None if it is right."""
    seen = ValueInTiles(comparable(expected.value(node)))
    seen.take_compiled(comparable(value))
    if seen.is_close:
        return None
    form = expected.form_of(node)
    known = expected.known_noise.get(form)
    if known is not None and seen.explained_by(known):
        expected.explained += 1
        return None
    for sample in expected.samples(node):
        seen.take_sample(comparable(sample))
        if seen.is_explained:
            break
    if seen.is_explained and not seen.is_suspicious:
        expected.known_noise[form] = seen.known_noise
        return None
    reference = expected.reference(node)
    parts = seen.parts_of(comparable(reference)) if isinstance(reference, torch.Tensor) else ()
    if not parts and not seen.samples:
        return None  # How far rounding moves it is not known.
    difference, is_wrong = seen.judged(name, parts)
    return difference if is_wrong else None


def _since_right_values(graph: WatchedGraph, origins: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes between the last right values and these.

    A buffer names its own node. Its kernel may have computed other nodes before, without storing
    their values.
    """
    nodes = {node.name: node for node in graph.module.graph.nodes}
    right = {graph.origins[name][0] for name in graph.reported if name in graph.origins}
    found = dict.fromkeys(name for name in origins if name in nodes)
    waiting = [*found]
    while waiting:
        for read in nodes[waiting.pop()].all_input_nodes:
            is_open = read.op == "call_function" and read.name not in right
            if is_open and read.name not in found:
                found[read.name] = None
                waiting.append(read.name)
    return tuple(found)


def _holds_later_value(graph: WatchedGraph, name: str, value: torch.Tensor) -> bool:
    """Check whether a buffer holds the value of a later node, written by the same kernel."""
    expected = graph.expected
    writers = graph.rewritten.get(name, ()) if expected is not None else ()
    later = [expected.value(node) for node in writers if expected is not None]
    return any(
        isinstance(item, torch.Tensor)
        and (item.numel(), item.dtype) == (value.numel(), value.dtype)
        and is_close(item.reshape(-1), value.reshape(-1))
        for item in later
    )


def planned_dtype(graph: WatchedGraph, buffer: str, like: torch.Tensor) -> torch.dtype:
    """Return a buffer's dtype in the lowered graph, or else the dtype of `like`."""
    return graph.planned.get(buffer, like.dtype)


def _same_in_some_order(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Check for equal values in any order: a buffer may permute its node's values."""
    if one.dtype.is_complex:
        return False
    mine, other = one.flatten().double().sort().values, two.flatten().double().sort().values
    return torch.allclose(mine, other, rtol=1e-4, atol=1e-5, equal_nan=True)


# --- Buffers that change although nothing may write to them any more ------------------------------
#
# Memory that is used again too early, or a kernel that writes past the end of its own buffer,
# spoils a value that was right. The kernel that reads it next is not to blame, and the one that
# made it is not either: the one after which it has changed is.

_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class _Kept:
    """A buffer, and the contents it must keep until its last read."""

    kernel: str
    value: torch.Tensor
    copy: torch.Tensor


@dataclass
class LiveBuffers:
    """The buffers of one call that are still to be read."""

    graph: WatchedGraph
    # The buffers that are reported in a call; others exist only inside of a kernel.
    reported: Container[str]
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def clear(self) -> None:
        self._kept.clear()
        self._seen.clear()

    def after(self, kernel: str, reported: Mapping[str, Any]) -> KernelDivergence | None:
        """Return the live buffer that a kernel has overwritten, if any."""
        # An operator may give several tensors at once: then it has read what it reads, too.
        self._seen.update(reported)
        buffers = {name: value for name, value in reported.items() if is_plain(value)}
        self._kept = {name: kept for name, kept in self._kept.items() if self.is_needed(name)}
        for name, kept in self._kept.items():
            if not _holds(kept.value, kept.copy):
                self._kept = {}  # Later kernels read a wrong value.
                return self._divergence(kernel, name, kept, buffers)
        for name, value in buffers.items():
            if name not in self._kept and self.is_needed(name) and self._has_room_for(value):
                copy = self.graph.checked.get(name)
                self._kept[name] = _Kept(kernel, value, value.clone() if copy is None else copy)
        return None

    def _has_room_for(self, value: torch.Tensor) -> bool:
        """Check the limit on kept memory, all of which is compared after every kernel."""
        kept = sum(item.value.nbytes for item in self._kept.values())
        return kept + value.nbytes <= _MOST_BYTES

    def is_needed(self, name: str) -> bool:
        """Check whether a read-only use of the buffer has yet to run."""
        readers = self.graph.readers.get(name, set())
        made_from_it = {reader for reader in readers if reader in self.reported}
        return name not in self.graph.rewritten and not made_from_it <= self._seen

    def _divergence(
        self, kernel: str, name: str, kept: _Kept, buffers: Mapping[str, torch.Tensor]
    ) -> KernelDivergence:
        others = {other: value for other, value in buffers.items() if other != name}
        shared = [other for other, value in others.items() if _overlap(value, kept.value)]
        text = f"{name}, which {kept.kernel} has made and which is read later, is overwritten"
        why = f"{shared[-1]} has the same memory" if shared else "it has memory of its own"
        made = shared or [*others] or [name]
        origin, origins = self.graph.origins.get(made[-1], (None, ()))
        return KernelDivergence(
            kernel,
            name,
            origin or "",
            f"{text}: {why}",
            origins,
            self.graph,
            is_overwritten=True,
            shares_memory_with=shared[-1] if shared else "",
        )


def _holds(value: torch.Tensor, copy: torch.Tensor) -> bool:
    """Compare bit by bit, because NaN may be among the values."""
    now, then = (item.detach().reshape(-1).contiguous() for item in (value, copy))
    return torch.equal(now.view(torch.uint8), then.view(torch.uint8))


def _overlap(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.device != two.device or not one.numel() or not two.numel():
        return False
    (start, end), (other_start, other_end) = _extent(one), _extent(two)
    return start < other_end and other_start < end


def _extent(value: torch.Tensor) -> tuple[int, int]:
    """Return the address of a tensor's first byte, and of the byte after its last."""
    steps = zip(value.shape, value.stride(), strict=True)
    last = sum((size - 1) * step for size, step in steps)
    return value.data_ptr(), value.data_ptr() + (last + 1) * value.element_size()


# --- Keeps what is needed to watch the kernels of the program's own compiled graphs later ---------
#
# A graph whose results have to be examined further need not be compiled again.


class KeptWrappers:
    """The wrappers that this process has loaded, each with a description of its graph."""

    def __init__(self) -> None:
        self.wrappers: list[LoadedWrapper] = []
        # The compiled graph whose call turned out to be wrong.
        self.called: Callable[..., Any] | None = None
        self._thread = threading.local()

    def generate(self, original: Callable[..., Any], lowered: Any, *args: Any, **more: Any) -> Any:
        """Generate code for a graph, whose wrapper the same thread loads next."""
        result = original(lowered, *args, **more)
        SCOPE.guard(self._note_graph, lowered)
        return result

    def load(
        self, original: Callable[..., Any], cls: Any, key: str, path: str, *args: Any, **more: Any
    ) -> Any:
        """Load a generated module, a wrapper or one of its kernels."""
        module = original(cls, key, path, *args, **more)
        SCOPE.guard(self._note_module, module, path)
        return module

    def _note_graph(self, lowered: Any) -> None:
        if not getattr(lowered, "is_const_graph", False):
            self._thread.graph = described(lowered)

    def _note_module(self, module: Any, path: str) -> None:
        graph: WatchedGraph | None = getattr(self._thread, "graph", None)
        if graph is not None and hasattr(module, "call"):
            self._thread.graph = None
            self.wrappers.append(LoadedWrapper(module, path, graph))

    def let_go(self) -> None:
        """Release the lowered graphs, which hold the whole state of a compile.

        They serve to examine a wrong call, and hardly ever is a later call wrong.
        """
        for wrapper in self.wrappers:
            wrapper.graph.lowered = None


KEPT_WRAPPERS = KeptWrappers()
