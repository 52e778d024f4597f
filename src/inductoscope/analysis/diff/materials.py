"""The output of each stage for a graph: original lines, and lines under canonical names.

One function per stage in `STAGES`; None means that a run has nothing of that stage. A new
stage is one function and one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from inductoscope.analysis.diff.sides import Renaming, Side, graph_lines, without_comments
from inductoscope.model.entities import NativeCompile
from inductoscope.model.fx import FxGraph, FxNode, describe_value, read_graph
from inductoscope.model.schedule import ScheduledNode
from inductoscope.recording.events import Kernel
from inductoscope.torch_facts.stages import (
    AOT,
    AUTOTUNE,
    DYNAMO,
    JOINT_PASS,
    LOOP_BODY,
    POST_GRAD_PASS,
    PRE_GRAD_PASS,
    SCHEDULER,
    WRAPPER,
)
from inductoscope.wording import count_of

_HASHES = re.compile(r"\b[0-9A-F]{64}\b|\bc[a-z0-9]{51}\b")
_ARGUMENTS = re.compile(r"\s*([\w, ]+?),? = args$")
_KERNEL_NAMES = re.compile(r"\b(?:cpp|triton)_\w+_\d+\b")
_PATHS = re.compile(r"(?:/[\w.@+-]+){2,}")


@dataclass(frozen=True)
class Material:
    """The output of a stage: lines to show, lines to compare, and its operations."""

    lines: tuple[str, ...]
    canonical: tuple[str, ...]
    operations: tuple[str, ...] = ()


# --- FX graphs ------------------------------------------------------------------------------------


def _graph_material(*graphs: FxGraph | None) -> Material | None:
    known = [graph for graph in graphs if graph is not None]
    if not known:
        return None
    return Material(
        lines=tuple(_node_text(node) for graph in known for node in graph.nodes),
        canonical=tuple(line for graph in known for line in graph_lines(graph)),
        operations=tuple(node.target for graph in known for node in graph.calls),
    )


def _node_text(node: FxNode) -> str:
    value = describe_value(node.value)
    text = f"%{node.name}" if node.op == "placeholder" else str(node)
    return f"{text}: {value}" if value else text


def _recorded(side: Side, *stages: str) -> Material | None:
    """Return the graphs that the compile's stages recorded in the last attempt."""
    last = {graph.stage: graph for graph in side.compile.graphs if graph.stage in stages}
    graphs = [read_graph(side.recording, graph.payload) for graph in last.values()]
    # A subset of the graphs would look like a different graph.
    return _graph_material(*graphs) if all(graphs) else None


def aot(side: Side) -> Material | None:
    phase = side.graph.phase if side.graph else "inference"
    return _recorded(side, "aot-joint", f"aot-{phase}")


# --- Inductor -------------------------------------------------------------------------------------


def _written(
    write: Callable[[Callable[[str], str]], Iterable[str]], renaming: Renaming
) -> Material | None:
    """Return the lines under the run's own names and under canonical ones; None if none."""
    lines = tuple(write(str))
    return Material(lines, tuple(write(renaming.text))) if lines else None


def ir(side: Side) -> Material | None:
    """Return the IR of each node. Nodes are identified by their order in the graph."""
    lowered = side.graph.lowered if side.graph else ()
    if not lowered:
        return None
    renaming = side.renaming()
    made = [json.dumps(item.ir, sort_keys=True, default=str) for item in lowered]
    parts = [
        f"{item.target} {text}" + (" falls back to eager" if item.fallback else "")
        for item, text in zip(lowered, made, strict=True)
    ]
    return Material(
        lines=tuple(f"{i.node} = {part}" for i, part in zip(lowered, parts, strict=True)),
        # Quotes are removed: names occur inside longer strings.
        canonical=tuple(
            renaming.text(part.replace("\\n", "\n").replace('"', " ")) for part in parts
        ),
        operations=tuple(item.target for item in lowered),
    )


def autotune(side: Side) -> Material | None:
    """Return the choices that torch took by content: their names only number the choices."""
    lines = []
    for search in side.graph.autotunes if side.graph else ():
        taken = next((c for c in search.choices if c.name == search.taken), None)
        name = re.sub(r"_\d+$", "", search.taken)
        lines.append(f"{search.operation}: {name} {taken.description if taken else ''}".rstrip())
    return _written(lambda named: map(named, lines), side.renaming())


def scheduler(side: Side) -> Material | None:
    return _written(
        lambda named: [_scheduled(leaf, named) for leaf in side.before], side.renaming()
    )


def _scheduled(leaf: ScheduledNode, named: Callable[[str], str]) -> str:
    """Format a node with its reads, an unordered set, sorted by canonical name."""
    buffers = [f"{b.name} {b.dtype}{list(b.size)} {list(b.stride)}" for b in leaf.buffers]
    text = (
        f"{leaf.name} {leaf.kind} {leaf.ir} {leaf.loops} {leaf.device} {leaf.group} "
        f"{leaf.sizes} {leaf.kernel} writes {', '.join(buffers)} reads "
    )
    return named(text) + ", ".join(sorted(named(name) for name in leaf.reads))


def fusion(side: Side) -> Material | None:
    """Return which nodes share a loop, regardless of the order of the groups."""
    groups = [[leaf.name for leaf in node.leaves] for node in side.after]
    return _written(
        lambda named: sorted(" + ".join(sorted(map(named, group))) for group in groups),
        side.renaming(),
    )


def loop_body(side: Side) -> Material | None:
    leaves = [leaf for node in side.after or side.before for leaf in node.leaves if leaf.body]
    order = {leaf.name: number for number, leaf in enumerate(side.before)}
    leaves.sort(key=lambda leaf: order.get(leaf.name, len(order)))
    texts = [side.recording.payload(leaf.body) for leaf in leaves]
    lines = [line for text in texts for line in text.splitlines()]
    return _written(lambda named: map(named, lines), side.renaming()) if all(texts) else None


def kernel(side: Side) -> Material | None:
    kernels = side.graph.kernels if side.graph else ()
    parts = [kernel_material(side, item) for item in kernels]
    if not parts or any(part is None for part in parts):
        return None
    return Material(
        lines=tuple(line for part in parts if part for line in part.lines),
        canonical=tuple(line for part in parts if part for line in part.canonical),
    )


def kernel_material(side: Side, item: Kernel) -> Material | None:
    """Return a kernel's source; for a library kernel, its name."""
    if item.language == "extern":
        return Material((item.name,), (item.name,))
    source = side.recording.payload(item.payload)
    if not source:
        return None
    renaming = Renaming()
    renaming.know([item.name], "kernel")
    lines = without_comments(source.splitlines())
    return Material(tuple(lines), tuple(_bare(renaming.text(line)) for line in lines))


def _bare(line: str) -> str:
    """Strip hashes and local paths."""
    return _PATHS.sub("/…", _HASHES.sub("#", line))


def wrapper(side: Side) -> Material | None:
    """Return the function that calls the kernels; kernel sources are compared as kernels.

    A graph out of a cache has a wrapper and nothing else, so names are known by the wrapper alone.
    """
    text = side.recording.payload(side.graph.wrapper) if side.graph else ""
    start = max(text.find("\nclass Runner"), text.find("\ndef call("))
    body = text[start:] if start >= 0 else ""
    end = body.find("\ndef benchmark_compiled_module")
    lines = without_comments((body[:end] if end >= 0 else body).splitlines())
    renaming = Renaming()
    # The names to which the wrapper unpacks its arguments: `primals_1, rsqrt = args`.
    taken = ",".join(match[1] for line in lines if (match := _ARGUMENTS.match(line)))
    renaming.know(filter(None, map(str.strip, taken.split(","))), "node")
    renaming.know(_KERNEL_NAMES.findall("\n".join(lines)), "kernel")
    found = _written(lambda named: map(named, lines), renaming)
    if found is None:
        return None
    return Material(found.lines, tuple(_bare(line) for line in found.canonical))


def native(side: Side) -> Material | None:
    """Return how the kernels were compiled to machine code, and the results."""
    kernels = side.graph.kernels if side.graph else ()
    lines = [
        f"{item.name}: {line}"
        for item in kernels
        for line in sorted({_native(n) for n in side.natives.of(item)})
    ]
    return _written(lambda named: map(named, lines), side.renaming())


def _native(item: NativeCompile) -> str:
    words = item.command.replace("-D ", "-D").split()
    flags = [word for word in words if word.startswith("-") and "/" not in word]
    facts = {"registers": item.registers, "spills": item.spills, "shared": item.shared}
    told = [f"{name} {value}" for name, value in facts.items() if value is not None]
    code = f"exit code {item.exit_code}" if item.exit_code else ""
    return " ".join(filter(None, (item.tool, *flags, item.config, *told, code)))


Extract = Callable[[Side], Material | None]

# Stages whose canonical names are those of the final graph and of the schedule.
NAMED_BY_OTHERS = ("ir", AUTOTUNE, SCHEDULER, "fusion", LOOP_BODY, "native")

# The compiler's order, so the first stage that differs is where the runs diverge.
STAGES: dict[str, Extract] = {
    DYNAMO: lambda side: _graph_material(side.captured),
    PRE_GRAD_PASS: lambda side: _recorded(side, "pre-grad"),
    AOT: aot,
    JOINT_PASS: lambda side: _recorded(side, "joint"),
    POST_GRAD_PASS: lambda side: _graph_material(side.final),
    "ir": ir,
    AUTOTUNE: autotune,
    SCHEDULER: scheduler,
    "fusion": fusion,
    LOOP_BODY: loop_body,
    "kernel": kernel,
    WRAPPER: wrapper,
    "native": native,
}


# --- Why a stage of a graph is not in a recording, in words ---------------------------------------


def why_missing(side: Side, stage: str, *, run: str) -> str:
    """Explain in a sentence why the run called `run` lacks a stage."""
    return f"the {run} run has none: {_reason(side, stage)}"


def why_unnamed(first: Side, second: Side) -> str:
    """Explain why the names of the two runs cannot be matched; empty if they can."""
    for side, other, run in ((first, second, "first"), (second, first, "second")):
        lacking = [what for what in side.unnamed if what not in other.unnamed]
        if lacking:
            return f"the {run} run lacks {' and '.join(lacking)}, which are needed to match names"
    return ""


def _reason(side: Side, stage: str) -> str:
    hit = any(lookup.outcome == "hit" for lookup in side.compile.caches)
    if (side.graph is not None and side.graph.cached) or (hit and stage != DYNAMO):
        return "the graph came from a cache ('run --fresh' recompiles everything)"
    raised = [error for error in side.compile.errors if not error.swallowed]
    if raised:
        return f"the compile raised {raised[-1].type} in stage {raised[-1].stage}"
    if side.compile.outcome == "not finished" or (side.graph and not side.graph.finished):
        return _unfinished(side)
    if side.compile.outcome == "skipped":
        return "Dynamo left the frame to eager"
    off = side.process.views_off if side.process else ()
    if off:
        return f"its hooks were off: {'; '.join(off)}"
    if side.recording.damage:
        return f"{count_of(len(side.recording.damage), 'part')} of the recording could not be read"
    if side.graph is None:
        return "Inductor did not compile the graph"
    return "nothing was recorded, or it was removed later"


def _unfinished(side: Side) -> str:
    stages = side.process.unfinished if side.process else ()
    if side.process is not None and side.process.stopped:
        return f"the recording stopped: {side.process.stopped}"
    return f"the run ended in stage {stages[-1].stage}" if stages else "the compile never finished"
