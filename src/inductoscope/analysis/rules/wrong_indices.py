"""Rules about wrong indices: past a buffer's end, or too large for their type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from inductoscope.analysis.bounds.index_range import Limited, Overflows
from inductoscope.analysis.bounds.kernels import judge_recording
from inductoscope.analysis.bounds.sentences import (
    broken_sentence,
    does,
    index_sentence,
    sizes_sentence,
    who,
)
from inductoscope.analysis.bounds.verdicts import Broken
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import FxNode, read_graph
from inductoscope.model.join import compiled_graphs, final_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.recording.events import Kernel
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.triton_indices import NARROW, Wraparound, kernel_integers

# A summary must be fast: proofs are quick, computing points is not.
_POINTS = 20_000
_SECONDS = 5.0


def out_of_bounds(recording: Recording) -> Iterator[Finding]:
    """A kernel that leaves a buffer.

    What it finds: a load or store in a loop body whose index leaves the buffer, at sizes that the
    guards admit. The sizes, the point of the loops and the position are computed with whole
    numbers, and satisfy all masks and guards. Accesses that merely could not be proven are not
    reported.

    Why it matters: such a kernel reads or overwrites other memory: wrong numbers, an illegal memory
    access, or a crash somewhere else. It may do so only at sizes that the recorded run did not
    have.

    Example: a lowering that reads `x[i + 1]` up to the last `i`.

    What to do: `inductoscope bounds RECORDING` lists every access, and with `--try` runs the graph
    at such a size. If you registered the lowering or pass yourself, correct its index; else report
    it.
    """
    seen = set()
    for judged in judge_recording(recording, points=_POINTS, seconds=_SECONDS, only_in_doubt=True):
        for access in judged.accesses:
            key = (judged.compile.id, judged.graph.key, access.kernel, access.buffer)
            if not isinstance(access.verdict, Broken) or key in seen:
                continue
            seen.add(key)
            done = "places a part" if access.operation == "part" else does(access)
            sizes = sizes_sentence(judged, access.verdict.sizes)
            graph = read_graph(recording, final_graph(judged.compile, judged.graph))
            nodes = [node for node in (graph.nodes if graph else ()) if node.name in access.origins]
            yield Finding(
                title=f"{who(access)} {done} outside {access.buffer}"
                + (f" where {sizes}" if sizes else ""),
                is_problem=True,
                evidence=(broken_sentence(access, access.verdict),),
                advice="'inductoscope bounds RECORDING --try' runs the graph at a size that breaks "
                "it.",
                stage=stages.LOOP_BODY,
            ).at(judged.compile.id, _last_place(nodes))


def _last_place(nodes: list[FxNode]) -> str:
    """Return the program line of the last node that has one."""
    return next((str(node.place) for node in reversed(nodes) if node.place), "")


def index_overflow(recording: Recording) -> Iterator[Finding]:
    """A kernel whose indices do not fit into their type.

    What it finds: a generated kernel that computes indices with 32 bits, and sizes that the guards
    admit at which an index is larger than 2,147,483,647. The sizes are computed with whole numbers.
    For a package it also notes where torch only assumed that 32 bits suffice, because the export
    set no upper limit for a size.

    Why it matters: the index wraps around. The kernel then reads and writes other memory: wrong
    numbers or an illegal memory access, only with large tensors.

    Example: a backend that always chooses 32-bit indices and adds no guard.

    What to do: `inductoscope bounds RECORDING` lists every such kernel. For a package, export with
    `torch.export.Dim(..., max=...)`: torch then chooses by the limit. If you changed how torch
    chooses, correct that; else report it.
    """
    noted = set()
    graphs = judge_recording(recording, seconds=_SECONDS, only_in_doubt=True)
    for judged, found in ((graph, found) for graph in graphs for found in graph.index_types):
        is_problem = isinstance(found.verdict, Overflows)
        # One note per package that relies on small sizes.
        key = (judged.compile.id, found.kernel if is_problem else "")
        if not isinstance(found.verdict, (Overflows, Limited)) or key in noted:
            continue
        noted.add(key)
        yield Finding(
            title=f"{found.kernel} has indices that do not fit into {found.bits} bits"
            if is_problem
            else f"{judged.compile.function or 'a package'} is for tensors of less than 2**31 "
            "elements, and does not check that",
            is_problem=is_problem,
            evidence=(index_sentence(judged, found),),
            advice="'inductoscope bounds RECORDING' lists every kernel with indices of 32 bits."
            if is_problem
            else "Set a limit: torch.export.Dim(..., max=...). torch then chooses by it.",
            stage=stages.CODEGEN,
            compile=judged.compile.id,
        )


# --- values that are computed from indices --------------------------------------------------------

_VALUE = re.compile(r"(?:index|value)_expr(?:_\d+)?")
_MEMORY = re.compile(r"(?:load|store|store_reduction)(?:_\d+)?")
_ASKED = re.compile(
    r"^\s*(\w+) = ops\.(?:index|value)_expr\([^\n]*?(?:dtype=)?torch\.(\w+)\)", re.MULTILINE
)
_ADDRESS = "an address"


@dataclass(frozen=True)
class _KernelNode:
    """A scheduler node in one kernel of one graph."""

    compile: Compile
    kernel: Kernel
    leaf: ScheduledNode
    origins: tuple[FxNode, ...]

    @cached_property
    def is_wide(self) -> bool:
        """Whether all integers of the graph's operations here have 64 bits."""
        values = (node.value for node in self.origins)
        kinds = {str(v.get("dtype")) for v in values if isinstance(v, dict) and "dtype" in v}
        return {kind for kind in kinds if "int" in kind} == {"torch.int64"}


def narrow_value(recording: Recording) -> Iterator[Finding]:
    """Values computed in 32 bits where the graph asks for 64.

    What it finds: a line of a Triton kernel that computes a value from an index (`arange`,
    positions, a mask) in 32-bit integers, although the loop body asks for int64 and the values do
    not fit. A cast after the computation does not help: `(1000000000*x0).to(tl.int64)` has already
    wrapped around. A cast before it or 64-bit indices do help, and then there is no finding.
    Addresses computed this way are found too. The type and range of every part come from the
    kernel's own text.

    Why it matters: an index expression used as a value has its own type, which need not be that of
    the index. If the two differ and the range is large, results are wrong without any error; eager
    computes the same in 64 bits.

    Example: `torch.arange(0, 11, device="cuda") * 1000000000` gives -1294967296 for 3000000000.

    What to do: `torch._inductor.config.constant_and_index_propagation = False` makes Inductor
    multiply values, not indices. Or compute in float64, or pass the factor in as a tensor.
    """
    for compile_, graph in compiled_graphs(recording):
        kernels = [kernel for kernel in graph.kernels if kernel.language == "Triton"]
        if not kernels or not _may_be_wide(recording, compile_, graph, kernels):
            continue
        final = read_graph(recording, final_graph(compile_, graph))
        nodes = {node.name: node for node in (final.nodes if final else ())}
        groups = read_schedule(recording, graph.scheduled_after)
        leaves = {leaf.name: leaf for group in groups for leaf in group.leaves}
        for kernel in kernels:
            places = {
                name: _KernelNode(
                    compile_,
                    kernel,
                    leaves[name],
                    tuple(nodes[origin] for origin in leaves[name].origins if origin in nodes),
                )
                for name in {owner for owner, _, _ in kernel.lines if owner in leaves}
            }
            yield from _narrow_lines(recording, kernel, places)


def _may_be_wide(
    recording: Recording, compile_: Compile, graph: InductorGraph, kernels: list[Kernel]
) -> bool:
    """Check cheaply, by text, whether a graph may use 64-bit values; most have floats only."""
    operations = {operation for kernel in kernels for _, operation, _ in kernel.lines}
    if any(map(_VALUE.fullmatch, operations)):
        return True
    return any(map(_MEMORY.fullmatch, operations)) and "torch.int64" in recording.payload(
        final_graph(compile_, graph)
    )


def _narrow_lines(
    recording: Recording, kernel: Kernel, places: Mapping[str, _KernelNode]
) -> Iterator[Finding]:
    # Most kernels need no 64-bit values; only the others are parsed.
    lines = {
        line: (places[owner], asked)
        for owner, operation, line in reversed(kernel.lines)
        if owner in places and (asked := _asked_wide(recording, places[owner], operation))
    }
    if not lines:
        return
    integers = kernel_integers(recording.payload(kernel.payload))
    if integers is None:
        return
    for line, (place, asked) in reversed(lines.items()):
        wrap = next((wrap for wrap in integers.wraps(line) if wrap.bits == NARROW), None)
        if wrap is not None:
            yield _narrow(place, line, asked, wrap)


def _asked_wide(recording: Recording, place: _KernelNode, operation: str) -> str:
    """Return the 64-bit type that an operation asks for; empty if it asks for less."""
    if _MEMORY.fullmatch(operation):
        return _ADDRESS if place.is_wide else ""
    if not _VALUE.fullmatch(operation):
        return ""
    asked = dict(_ASKED.findall(recording.payload(place.leaf.body))).get(operation, "")
    return asked if asked == "int64" or ("float" in asked and place.is_wide) else ""


def _narrow(place: _KernelNode, line: str, asked: str, wrap: Wraparound) -> Finding:
    nodes = ", ".join(node.name for node in place.origins) or place.leaf.name
    span = f"{wrap.low:,} to {wrap.high:,}"
    says = "it is used as an address" if asked == _ADDRESS else f"the loop body asks for {asked}"
    return Finding(
        title=f"{nodes}: computed in 32 bits, but the values range from {span}",
        is_problem=True,
        # Later operations may hide the wraparound: only the wrong value itself is proven.
        confidence="proven" if wrap.is_exact and asked == "int64" else "likely",
        evidence=(
            f"kernel {place.kernel.name}: {line}",
            f"{wrap.text} is 32-bit arithmetic and ranges from {span}; {says}",
        ),
        advice="torch._inductor.config.constant_and_index_propagation = False makes Inductor "
        "multiply values in their own type. Compare with eager: 'inductoscope doctor SCRIPT'.",
        stage=stages.CODEGEN,
    ).at(place.compile.id, _last_place(list(place.origins)))
