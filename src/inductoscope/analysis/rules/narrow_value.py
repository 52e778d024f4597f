"""Values computed in 32 bits where the graph asks for 64.

What it finds: a line of a Triton kernel that computes a value from an index (`arange`, positions, a
mask) in 32-bit integers, although the loop body asks for int64 and the values do not fit. A cast
after the computation does not help: `(1000000000*x0).to(tl.int64)` has already wrapped around. A
cast before it or 64-bit indices do help, and then there is no finding. Addresses computed this way
are found too. The type and range of every part come from the kernel's own text.

Why it matters: an index expression used as a value has its own type, which need not be that of the
index. If the two differ and the range is large, results are wrong without any error; eager computes
the same in 64 bits.

Example: `torch.arange(0, 11, device="cuda") * 1000000000` gives -1294967296 for 3000000000.

What to do: `torch._inductor.config.constant_and_index_propagation = False` makes Inductor multiply
values, not indices. Or compute in float64, or pass the factor in as a tensor.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import (
    Compile,
    InductorGraph,
    Kernel,
    Recording,
)
from inductoscope.model.fx import FxNode, read_graph
from inductoscope.model.join import final_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.triton_indices import Wraparound, kernel_indices
from inductoscope.verdicts import Confidence

_VALUE = re.compile(r"(?:index|value)_expr(?:_\d+)?")
_MEMORY = re.compile(r"(?:load|store|store_reduction)(?:_\d+)?")
_ASKED = re.compile(
    r"^\s*(\w+) = ops\.(?:index|value)_expr\([^\n]*?(?:dtype=)?torch\.(\w+)\)", re.MULTILINE
)
_ADDRESS = "an address"
_ADVICE = (
    "torch._inductor.config.constant_and_index_propagation = False makes Inductor multiply values "
    "in their own type. Compare with eager: 'inductoscope doctor SCRIPT'."
)


@dataclass(frozen=True)
class _Place:
    """A scheduler node, as it is in one kernel of one graph."""

    compile: Compile
    graph: InductorGraph
    kernel: Kernel
    leaf: ScheduledNode
    origins: tuple[FxNode, ...]

    @cached_property
    def integers(self) -> set[str]:
        """Integer types of what the graph computes here."""
        kinds = {str(node.value.get("dtype")) for node in self.origins if _is_tensor(node)}
        return {kind for kind in kinds if "int" in kind}


# The same few names in every kernel.
@cache
def _is_memory(operation: str) -> bool:
    return _MEMORY.fullmatch(operation) is not None


@cache
def _is_value(operation: str) -> bool:
    return _VALUE.fullmatch(operation) is not None


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel line."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            kernels = [kernel for kernel in graph.kernels if kernel.language == "Triton"]
            if kernels and _may_be_wide(recording, compile_, graph, kernels):
                yield from _check_graph(recording, compile_, graph, kernels)


def _may_be_wide(
    recording: Recording, compile_: Compile, graph: InductorGraph, kernels: list[Kernel]
) -> bool:
    """Most graphs have floats only: seen from their text, in a fraction of the time."""
    operations = {operation for kernel in kernels for _, operation, _ in kernel.lines}
    if any(map(_is_value, operations)):
        return True
    return any(map(_is_memory, operations)) and "torch.int64" in recording.payload(
        final_graph(compile_, graph)
    )


def _check_graph(
    recording: Recording, compile_: Compile, graph: InductorGraph, kernels: list[Kernel]
) -> Iterator[Finding]:
    final = read_graph(recording, final_graph(compile_, graph))
    nodes = {node.name: node for node in (final.nodes if final else ())}
    groups = read_schedule(recording, graph.scheduled_after)
    leaves = {leaf.name: leaf for group in groups for leaf in group.leaves}
    for kernel in kernels:
        owners = {owner for owner, _, _ in kernel.lines if owner in leaves}
        places = {name: _place(compile_, graph, kernel, leaves[name], nodes) for name in owners}
        yield from _check_kernel(recording, kernel, places)


def _place(
    compile_: Compile,
    graph: InductorGraph,
    kernel: Kernel,
    leaf: ScheduledNode,
    nodes: Mapping[str, FxNode],
) -> _Place:
    origins = tuple(nodes[name] for name in leaf.origins if name in nodes)
    return _Place(compile_, graph, kernel, leaf, origins)


def _check_kernel(
    recording: Recording, kernel: Kernel, places: Mapping[str, _Place]
) -> Iterator[Finding]:
    # Most kernels ask for nothing wide; only the others are read.
    lines = {
        line: (places[owner], asked)
        for owner, operation, line in reversed(kernel.lines)
        if owner in places and (asked := _asked_wide(recording, places[owner], operation))
    }
    if not lines:
        return
    indices = kernel_indices(recording.payload(kernel.digest))
    for line, (place, asked) in reversed(lines.items()):
        wraps = (wrap for wrap in indices.wraps(line) if wrap.range.bits == 32)
        yield from (_finding(place, line, asked, wrap) for wrap in itertools.islice(wraps, 1))


def _is_tensor(node: FxNode) -> bool:
    return isinstance(node.value, dict) and "dtype" in node.value


def _asked_wide(recording: Recording, place: _Place, operation: str) -> str:
    """What an operation asks for, if that has 64 bits; empty where it does not."""
    if _is_memory(operation):
        return _ADDRESS if place.integers == {"torch.int64"} else ""
    if not _is_value(operation):
        return ""
    asked = dict(_ASKED.findall(recording.payload(place.leaf.body))).get(operation, "")
    is_wide = asked == "int64" or ("float" in asked and place.integers == {"torch.int64"})
    return asked if is_wide else ""


def _finding(place: _Place, line: str, asked: str, wrap: Wraparound) -> Finding:
    # What comes of the value afterwards may hide that it has wrapped, so only a value is proven.
    confidence: Confidence = "proven" if wrap.is_exact and asked == "int64" else "likely"
    nodes = ", ".join(node.name for node in place.origins) or place.leaf.name
    last = next((node.place for node in reversed(place.origins) if node.place), None)
    says = "it is used as an address" if asked == _ADDRESS else f"the loop body asks for {asked}"
    return Finding(
        rule="narrow_value",
        title=f"{nodes}: computed in 32 bits, but the values range from {_span(wrap)}",
        is_problem=True,
        confidence=confidence,
        evidence=(
            f"kernel {place.kernel.name}: {line}",
            f"{wrap.text} is 32-bit arithmetic and ranges from {_span(wrap)}; {says}",
        ),
        advice=_ADVICE,
        stage=stages.CODEGEN,
        source=str(last) if last else "",
        compile=place.compile.id,
    )


def _span(wrap: Wraparound) -> str:
    return f"{wrap.range.low:,} to {wrap.range.high:,}"
