"""Values that are computed in 32 bits where the graph says 64.

What it finds: a line of a Triton kernel that computes a value from an index (`arange`, positions, a
mask) in 32-bit integers, although the loop body asks for int64 and the values do not fit. A cast
behind the computation does not help: `(1000000000*x0).to(tl.int64)` has wrapped before. A cast in
front of it, or 64-bit indices, do, and then nothing is found. An address that is computed so is
found too. Type and range of every part are read off the kernel's own text.

Why it matters: in a loop body an index expression that is used as a value has a type of its own,
which is not that of the index. Where the two differ and the range is large, results are wrong
without any error: eager computes the same in 64 bits.

Example: `torch.arange(0, 11, device="cuda") * 1000000000` gives -1294967296 for 3000000000.

What to do: `torch._inductor.config.constant_and_index_propagation = False` makes Inductor multiply
values, not indices. Or compute in float64, or make the factor a tensor that is an input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from inductoscope.diagnose.finding import Confidence, Finding
from inductoscope.model.entities import Compile, InductorGraph, Kernel, Recording
from inductoscope.model.fx import FxGraph, FxNode, read_graph
from inductoscope.model.index_ranges import KernelIndices, Wrap, kernel_indices
from inductoscope.model.join import final_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule

_VALUE = re.compile(r"(?:index|value)_expr(?:_\d+)?")
_MEMORY = re.compile(r"(?:load|store|store_reduction)(?:_\d+)?")
_ASKED = re.compile(
    r"^\s*(\w+) = ops\.(?:index|value)_expr\([^\n]*?(?:dtype=)?torch\.(\w+)\)", re.MULTILINE
)
_ADVICE = (
    "torch._inductor.config.constant_and_index_propagation = False has Inductor multiply values "
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

    @property
    def integers(self) -> set[str]:
        """Integer types of what the graph computes here."""
        kinds = {str(node.value.get("dtype")) for node in self.origins if _is_tensor(node)}
        return {kind for kind in kinds if "int" in kind}


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per kernel line."""
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            kernels = [kernel for kernel in graph.kernels if kernel.language == "Triton"]
            if any(_MEMORY.fullmatch(op) or _VALUE.fullmatch(op) for op in _operations(kernels)):
                yield from _check_graph(recording, compile_, graph, kernels)


def _operations(kernels: list[Kernel]) -> Iterator[str]:
    return (operation for kernel in kernels for _, operation, _ in kernel.lines)


def _check_graph(
    recording: Recording, compile_: Compile, graph: InductorGraph, kernels: list[Kernel]
) -> Iterator[Finding]:
    final = read_graph(recording, final_graph(compile_, graph))
    groups = read_schedule(recording, graph.scheduled_after)
    leaves = {leaf.name: leaf for group in groups for leaf in group.leaves}
    for kernel in kernels:
        indices = kernel_indices(recording.payload(kernel.digest))
        seen: set[str] = set()
        for owner, operation, line in kernel.lines:
            leaf = leaves.get(owner)
            if leaf is None or line in seen:
                continue
            seen.add(line)
            place = _Place(compile_, graph, kernel, leaf, _origins(final, leaf))
            yield from _check_line(recording, place, indices, operation, line)


def _origins(final: FxGraph | None, leaf: ScheduledNode) -> tuple[FxNode, ...]:
    found = [final.node(name) for name in leaf.origins] if final else []
    return tuple(node for node in found if node is not None)


def _is_tensor(node: FxNode) -> bool:
    return isinstance(node.value, dict) and "dtype" in node.value


def _check_line(
    recording: Recording, place: _Place, indices: KernelIndices, operation: str, line: str
) -> Iterator[Finding]:
    if _VALUE.fullmatch(operation):
        asked = dict(_ASKED.findall(recording.payload(place.leaf.body))).get(operation, "")
        means_wide = asked == "int64" or ("float" in asked and place.integers == {"torch.int64"})
    elif _MEMORY.fullmatch(operation):
        asked = "an address"
        means_wide = place.integers == {"torch.int64"}
    else:
        return
    for wrap in indices.wraps(line) if means_wide else ():
        if wrap.range.bits == 32:
            yield _finding(place, line, asked, wrap)
            return


def _finding(place: _Place, line: str, asked: str, wrap: Wrap) -> Finding:
    # What comes of the value afterwards may hide that it has wrapped, so only a value is proven.
    confidence: Confidence = "proven" if wrap.is_exact and asked == "int64" else "likely"
    nodes = ", ".join(node.name for node in place.origins) or place.leaf.name
    last = next((node.place for node in reversed(place.origins) if node.place), None)
    says = "an address is computed" if asked == "an address" else f"the loop body says {asked}"
    return Finding(
        rule="narrow_value",
        title=f"{nodes}: computed in 32 bits, with values of {_span(wrap)}",
        is_problem=True,
        confidence=confidence,
        evidence=(
            f"kernel {place.kernel.name}: {line}",
            f"{wrap.text} is 32-bit arithmetic, and reaches {_span(wrap)}; {says}",
        ),
        advice=_ADVICE,
        stage="codegen",
        source=str(last) if last else "",
        compile=place.compile.id,
    )


def _span(wrap: Wrap) -> str:
    return f"{wrap.range.low:,} to {wrap.range.high:,}"
