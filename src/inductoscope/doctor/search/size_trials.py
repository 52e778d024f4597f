"""Runs a graph at a size at which one of its kernels leaves a buffer.

The graph that Dynamo captured, or that was exported for AOTInductor, is rebuilt from the recording,
compiled with Inductor for sizes that are symbols, and called with made-up inputs of the size in
question, in guarded memory. Nothing checks guards there, and none is needed: the size satisfies
them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.analysis.bounds.evaluation import NoValue, value_of
from inductoscope.analysis.bounds.expressions import NotUnderstood
from inductoscope.analysis.bounds.kernels import JudgedGraph
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import Broken, JudgedAccess
from inductoscope.model.entities import Recording
from inductoscope.model.memory import GraphMemory
from inductoscope.processes.limited import ChildLimits, ChildProgram, ChildResult, run_child
from inductoscope.recording.values import members
from inductoscope.targets.recompile.work_list import GraphOrder, captured_graphs

_CHILD = Path(__file__).with_name("size_trial_child.py")


@dataclass(frozen=True)
class SizeTrial:
    """What came of one size. `fails`: the run shows that the kernel is wrong there."""

    graph: str
    kernel: str
    buffer: str
    sizes: Mapping[str, int]
    fails: bool
    text: str


@dataclass(frozen=True)
class TrialOrder:
    """For the child: a graph as it was recorded, and with the size in place of the symbols."""

    recorded: GraphOrder
    sized: GraphOrder
    # Values that inputs must hold somewhere, by the input's name.
    values: Mapping[str, int]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def trial_order_from(text: str) -> TrialOrder:
    """The order that `to_json` wrote."""
    data = json.loads(text)
    graphs = {name: GraphOrder(**data[name]) for name in ("recorded", "sized")}
    return TrialOrder(values=data["values"], **graphs)


def try_broken_sizes(
    recording: Recording,
    judged: list[JudgedGraph],
    *,
    seconds: float,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[SizeTrial]:
    """One trial for each kernel and buffer that is broken."""
    graphs = {graph.compile: graph for graph in captured_graphs(recording, exported=True)}
    seen = set()
    for found in judged:
        for access in found.accesses:
            key = (found.graph.key, access.kernel, access.buffer)
            if not isinstance(access.verdict, Broken) or key in seen:
                continue
            seen.add(key)
            say(f"running {found.graph.key} at a size that breaks {access.kernel}")
            text, fails = _try(graphs.get(found.compile.id), found, access.verdict, seconds)
            yield _trial(found, access, access.verdict, text, fails)


def _trial(
    found: JudgedGraph, access: JudgedAccess, broken: Broken, text: str, fails: bool
) -> SizeTrial:
    sizes = all_sizes(found.memory, broken)
    return SizeTrial(found.graph.key, access.kernel, access.buffer, sizes, fails, text)


def _try(
    graph: GraphOrder | None, found: JudgedGraph, broken: Broken, seconds: float
) -> tuple[str, bool]:
    if graph is None:
        return "the captured graph is not in the recording, so it cannot be run", False
    try:
        order = trial_order(graph, found.memory, broken)
    except (NotUnderstood, NoValue):
        return "the inputs have sizes that cannot be computed from the recording", False
    with tempfile.TemporaryDirectory(prefix="inductoscope-size-") as name:
        (path := Path(name, "order.json")).write_text(order.to_json(), "utf-8")
        ended = run_child(
            ChildProgram(_CHILD, (str(path),), _environment(Path(name))),
            ChildLimits(seconds=seconds),
            Path(name),
            lambda event: None,
        )
    return _outcome(ended)


def _environment(scratch: Path) -> dict[str, str]:
    cache = scratch / "cache"
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Else torch starts Python to find out which instructions there are.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "TMPDIR": str(scratch),
    }


def _outcome(ended: ChildResult) -> tuple[str, bool]:
    said = next((e for e in reversed(ended.events) if e.get("event") == "ran"), None)
    if said is not None:
        return str(said.get("text", "")), said.get("fails") is True
    started = any(event.get("event") == "calling" for event in ended.events)
    if ended.signal and started:
        return f"the compiled graph dies of {ended.signal} at this size", True
    if ended.exit_code is None:
        return "the time was up before the graph had run", False
    last = ended.output.strip().splitlines()[-1:] or ["no word of why"]
    return f"the graph could not be run here: {last[0][:300]}", False


# --- the graph at a size --------------------------------------------------------------------------


def all_sizes(memory: GraphMemory, broken: Broken) -> dict[str, int]:
    """Every symbol: as the counterexample has it, else as the recorded run had it."""
    usual = {
        name: int(symbol.value)
        for name, symbol in memory.symbols.items()
        if symbol.value.isdecimal()
    }
    return {**usual, **broken.sizes}


def trial_order(graph: GraphOrder, memory: GraphMemory, broken: Broken) -> TrialOrder:
    """What the child needs; raises where a size of an input is not known."""
    sizes, values = AdmittedSizes(memory), all_sizes(memory, broken)

    def number(text: Any) -> int:
        return text if type(text) is int else value_of(sizes.read(str(text)), values)

    data = dict(graph.graph)
    data["nodes"] = [_sized(node, number) for node in data.get("nodes") or []]
    return TrialOrder(graph, replace(graph, graph=data), dict(broken.values))


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
