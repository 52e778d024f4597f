"""Runs a graph at a size at which one of its kernels accesses a buffer out of bounds.

The graph captured by Dynamo, or exported for AOTInductor, is rebuilt from the recording, compiled
by Inductor with symbolic sizes, and called with made-up inputs of the size in question, in guarded
memory. Guards are not checked, because the size is known to satisfy them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.analysis.bounds.kernels import JudgedGraph, judged_indices
from inductoscope.analysis.bounds.sizes import AdmittedSizes, EdgeSize, edge_sizes
from inductoscope.analysis.bounds.verdicts import Broken
from inductoscope.model.entities import Recording
from inductoscope.model.memory import GraphMemory
from inductoscope.processes.children import ChildCall, ChildLimits, ChildResult, run_child
from inductoscope.recording.values import members
from inductoscope.targets.work_list import GraphOrder, TrialOrder, captured_graphs
from inductoscope.torch_facts.index_expressions import NotUnderstood, NoValue, value_of
from inductoscope.wording import count_of

Say = Callable[[str], None]


@dataclass(frozen=True)
class SizeTrial:
    """The outcome at one size. `fails`: the run shows that the kernel is wrong there."""

    graph: str
    kernel: str
    buffer: str
    sizes: Mapping[str, int]
    fails: bool
    text: str


def try_broken_sizes(
    recording: Recording, judged: list[JudgedGraph], *, seconds: float, say: Say
) -> Iterator[SizeTrial]:
    """Yield one trial for each kernel and buffer with an out-of-bounds access."""
    graphs = _captured(recording)
    seen = set()
    for found in judged:
        for access in found.accesses:
            key = (found.graph.key, access.kernel, access.buffer)
            if not isinstance(access.verdict, Broken) or key in seen:
                continue
            seen.add(key)
            say(f"running {found.graph.key} at a size that breaks {access.kernel}")
            sizes = _all_sizes(found.memory, access.verdict)
            graph, given = graphs.get(found.compile.id), access.verdict.values
            text, fails, _ = _try(graph, found.memory, [sizes], given, seconds)
            yield SizeTrial(*key, sizes, fails, text)


def try_edge_sizes(
    recording: Recording, judged: list[JudgedGraph], *, seconds: float, say: Say
) -> Iterator[SizeTrial]:
    """Try graphs with dynamic sizes at the ends of their ranges and where code paths change."""
    graphs = _captured(recording)
    for found in judged:
        indices = judged_indices(recording, found.graph)
        edges = list(edge_sizes(AdmittedSizes(found.memory), indices))
        if found.compile.id not in graphs or not edges:
            continue
        graph, key = graphs.pop(found.compile.id), found.graph.key
        say(f"running {key} at {count_of(len(edges), 'unusual size')}")
        choices = [edge.sizes for edge in edges]
        # All in one child process, so that the graph is compiled once.
        text, fails, calls = _try(graph, found.memory, choices, {}, seconds)
        last = edges[max(calls - 1, 0)]
        if fails:
            text = f"{_told(found.memory, last)}: {text}"
        elif calls:
            done = ", ".join(f"{edge.symbol} = {edge.value}" for edge in edges[:calls])
            text = f"{text} ({done})"
        yield SizeTrial(key, "", "", last.sizes if fails else {}, fails, text)


def _captured(recording: Recording) -> dict[str, GraphOrder]:
    return {graph.compile: graph for graph in captured_graphs(recording, exported=True)}


def _try(
    graph: GraphOrder | None,
    memory: GraphMemory,
    choices: Sequence[Mapping[str, int]],
    given: Mapping[str, int],
    seconds: float,
) -> tuple[str, bool, int]:
    """Call a graph at sizes; return a text, whether it shows a fault, and the number of calls."""
    if graph is None:
        return "the captured graph is not in the recording, so it cannot be run", False, 0
    try:
        sized = tuple(_at(graph, memory, sizes) for sizes in choices)
    except (NotUnderstood, NoValue):
        return "the inputs have sizes that cannot be computed from the recording", False, 0
    ended = _ended(TrialOrder(graph, sized, dict(given)), seconds)
    calls = sum(event.get("event") == "calling" for event in ended.events)
    said = ended.find("ran")
    if said is not None:
        return said["text"], said["fails"], calls
    if ended.signal and calls:
        return f"the compiled graph dies of {ended.signal} at this size", True, calls
    if ended.exit_code is None:
        return "the time was up before the graph had run", False, calls
    last = ended.output.strip().splitlines()[-1:] or ["no word of why"]
    return f"the graph could not be run here: {last[0][:300]}", False, calls


def _ended(order: TrialOrder, seconds: float) -> ChildResult:
    with tempfile.TemporaryDirectory(prefix="inductoscope-size-") as name:
        call = ChildCall(
            "inductoscope.inside.search.size_trial_child:try_sizes",
            {"order": asdict(order)},
            {
                **os.environ,
                "TORCHINDUCTOR_CACHE_DIR": str(Path(name) / "cache"),
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                # Otherwise torch starts Python to probe for vector instructions.
                "TORCHINDUCTOR_VEC_ISA_OK": "1",
                "TMPDIR": name,
            },
            Path(name),
        )
        return run_child(call, ChildLimits(seconds=seconds))


def _told(memory: GraphMemory, edge: EdgeSize) -> str:
    """Describe an edge size: its symbol, its significance, and the judgement on it."""
    symbol = memory.symbols[edge.symbol]
    low, high = AdmittedSizes(memory).ends(edge.symbol)
    admitted = f"{low or 0} or more" if high is None else f"{low or 0} to {high}"
    name = f"{edge.symbol} ({symbol.source})" if symbol.source else edge.symbol
    return f"{name} = {edge.value}, {edge.why} ({admitted})"


# --- the graph at a size --------------------------------------------------------------------------


def _all_sizes(memory: GraphMemory, broken: Broken) -> dict[str, int]:
    """Return values of all symbols: from the counterexample, or else from the recorded run."""
    usual = {
        name: int(symbol.value)
        for name, symbol in memory.symbols.items()
        if symbol.value.isdecimal()
    }
    return {**usual, **broken.sizes}


def _at(graph: GraphOrder, memory: GraphMemory, values: Mapping[str, int]) -> GraphOrder:
    """Return the graph with inputs of a size; raise if a size of an input is unknown."""
    sizes = AdmittedSizes(memory)

    def number(text: Any) -> int:
        return text if type(text) is int else value_of(sizes.read(str(text)), values)

    data = dict(graph.graph)
    data["nodes"] = [_sized(node, number) for node in data.get("nodes") or []]
    return replace(graph, graph=data)


def _sized(node: Any, number: Callable[[Any], int]) -> Any:
    value = members(members(node).get("value"))
    if not isinstance(node, dict) or node.get("op") != "placeholder":
        return node
    if isinstance(value.get("shape"), list) and isinstance(value.get("stride"), list):
        known = {name: [number(size) for size in value[name]] for name in ("shape", "stride")}
        return {**node, "value": {**value, **known, "hints": known["shape"]}}
    if value.get("type") == "SymInt":
        size = number(value.get("text"))
        return {**node, "value": {**value, "text": str(size), "hint": size}}
    return node
