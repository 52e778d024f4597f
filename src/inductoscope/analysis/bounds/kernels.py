"""Loop bodies that need no proof: fixed sizes, and indices that are sums of loop variables.

Most bodies are like this. Reading them takes a few searches of the text, where a proof takes a
syntax tree and polynomials: a rule that looks for what is broken passes over them.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from inductoscope.analysis.bounds.accesses import (
    BodyJudge,
    OutOfTime,
    PointBudget,
    judge_body,
    judge_parts,
)
from inductoscope.analysis.bounds.index_range import IndexedBody, JudgedIndexType, judge_indices
from inductoscope.analysis.bounds.proof import polynomial, written
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import JudgedAccess, OutOfReach, Verdict
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.memory import GraphMemory, Room, read_memory
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.recording.events import Kernel
from inductoscope.torch_facts.index_expressions import (
    FAILURES,
    ONE,
    Applied,
    Expression,
    NotUnderstood,
)
from inductoscope.torch_facts.loop_bodies import read_body
from inductoscope.torch_facts.stages import AOT_INDUCTOR
from inductoscope.torch_facts.triton_indices import LARGEST_NARROW, NARROW, read_index_types

# Each begins with plain text, which is found far faster than the beginning of a line.
_RANGES = re.compile(r"var_ranges = \{([^{}\n]*)\}\n")
_LENGTH = re.compile(r"(\w+): ([1-9]\d{0,14})")
_INDEX = re.compile(r"\n(index\d+) = (.+)")
_TERM = re.compile(r"(?:(\d{1,15})\*)?([A-Za-z_]\w*)|(\d{1,15})")
_NAMED = re.compile(r"\n    (\w+) = self\.get_index\('(\w+)'\)(?=\n|$)")
_ACCESS = re.compile(r"ops\.(?:load|store|store_reduction)\('(\w+)', (\w+)[,)]")
# An access, or what makes one at an index that is computed, or only where a mask holds.
_ANY_ACCESS = (
    *("ops.load", "ops.store", "ops.bucketize", "ops.masked", "ops.check_bounds"),
    "set_indirect",
)
_MOST_NAMES = 16


@dataclass(frozen=True)
class PlainBody:
    """How often a body runs, and the largest position that it uses of each buffer."""

    points: int
    largest: Mapping[str, int]


# Several rules look at the bodies of a whole recording, one after the other.
@lru_cache(maxsize=1 << 16)
def read_plain_body(text: str) -> PlainBody | None:
    """The largest positions that a loop body uses; None where that takes a proof."""
    ranges = _RANGES.findall(text)
    accesses = _ACCESS.findall(text)
    if (
        len(ranges) != 1
        or text.count("def ") != 1
        or sum(map(text.count, _ANY_ACCESS)) != len(accesses)
    ):
        return None
    lengths = {name: int(length) for name, length in _LENGTH.findall(ranges[0])}
    if len(lengths) != ranges[0].count(":"):
        return None
    indices = {name: _largest(sum_, lengths) for name, sum_ in _INDEX.findall(text)}
    named = dict(_NAMED.findall(text))
    largest: dict[str, int] = {}
    for buffer, variable in accesses:
        position = indices.get(named.get(variable, ""))
        if position is None:
            return None
        largest[buffer] = max(position, largest.get(buffer, 0))
    return PlainBody(math.prod(lengths.values()), largest)


def _largest(written: str, lengths: Mapping[str, int]) -> int | None:
    """The value of a sum at the ends of the loops; None where it is no sum of loop variables."""
    total = 0
    for term in written.split(" + "):
        found = _TERM.fullmatch(term)
        if found is None:
            return None
        factor, name, number = found.groups()
        if number is not None:
            total += int(number)
        elif name in lengths:
            total += int(factor or 1) * (lengths[name] - 1)
        else:
            return None
    return total


class PlainBuffers:
    """The buffers of a graph, each looked at once."""

    def __init__(self, memory: GraphMemory) -> None:
        self._memory = memory
        self._elements: dict[str, int] = {}

    def hold(self, text: str) -> bool:
        """Whether a look tells that a loop body stays in them."""
        body = read_plain_body(text)
        return body is not None and all(
            position < self._elements_of(name) for name, position in body.largest.items()
        )

    def _elements_of(self, name: str) -> int:
        if name not in self._elements:
            self._elements[name] = _elements(name, self._memory)
        return self._elements[name]


def _elements(name: str, memory: GraphMemory) -> int:
    """The positions of a buffer; 0 where a look does not tell."""
    room: Room | None = None
    for _ in range(_MOST_NAMES):
        room = memory.rooms.get(name)
        if room is None or not room.same_as:
            break
        name = room.same_as
    if room is None or room.same_as or len(room.size) != len(room.stride):
        return 0
    if not all(text.isdecimal() and len(text) < 16 for text in (*room.size, *room.stride)):
        return 0
    if "0" in room.size:
        return 0
    pairs = zip(map(int, room.size), map(int, room.stride), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in pairs)


def fits_plainly(leaves: Iterable[ScheduledNode], texts: Iterable[str], limit: int) -> bool:
    """Whether a look tells that no index and no count of these loop bodies is beyond a limit."""
    bodies = [read_plain_body(text) for text in texts]
    sizes = [size for leaf in leaves for lengths in leaf.sizes for size in lengths]
    if not all(size.isdecimal() and len(size) < 16 for size in sizes):
        return False
    counts = [math.prod(int(s) for lengths in leaf.sizes for s in lengths) for leaf in leaves]
    return all(
        body is not None and body.points <= limit and max(body.largest.values(), default=0) <= limit
        for body in bodies
    ) and all(count <= limit for count in counts)


# --- All memory accesses of a recording's kernels, judged -----------------------------------------

# Points of loops that are computed for one graph where a proof is not found; a few seconds.
MOST_POINTS = 2_000_000
# For a whole recording.
MOST_SECONDS = 300.0


@dataclass(frozen=True)
class JudgedGraph:
    """The accesses of one graph that Inductor compiled."""

    compile: Compile
    graph: InductorGraph
    memory: GraphMemory
    accesses: tuple[JudgedAccess, ...]
    # Kernels without a loop body: calls of a library, and templates.
    without_body: tuple[str, ...]
    # Kernels that index with fewer than 64 bits.
    index_types: tuple[JudgedIndexType, ...] = ()


def judge_recording(
    recording: Recording,
    *,
    points: int = MOST_POINTS,
    seconds: float = MOST_SECONDS,
    only_accesses_in_doubt: bool = False,
) -> Iterator[JudgedGraph]:
    """Every graph that was compiled, in order. One that came from a cache has no loop bodies.

    `only_accesses_in_doubt` leaves out bodies that plainly stay in their buffers, and index types.
    """
    until = time.monotonic() + seconds
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            if graph.scheduled_after or graph.scheduled_before:
                judged = judge_graph(
                    recording,
                    compile_,
                    graph,
                    points=points,
                    until=until,
                    only_in_doubt=only_accesses_in_doubt,
                )
                if not only_accesses_in_doubt:
                    narrow = tuple(_narrow_kernels(recording, compile_, graph, until))
                    judged = replace(judged, index_types=narrow)
                yield judged


def judge_index_types(
    recording: Recording, *, seconds: float = MOST_SECONDS
) -> Iterator[tuple[JudgedGraph, JudgedIndexType]]:
    """Every kernel whose indices of fewer than 64 bits are in doubt; accesses are not judged."""
    until = time.monotonic() + seconds
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            memory = read_memory(recording, compile_, graph)
            found = tuple(_narrow_kernels(recording, compile_, graph, until, only_in_doubt=True))
            judged = JudgedGraph(compile_, graph, memory, (), (), found)
            for kernel in found:
                yield judged, kernel


def judged_indices(recording: Recording, graph: InductorGraph) -> Iterator[Expression]:
    """Every index in the loop bodies of a graph."""
    for node in read_schedule(recording, graph.scheduled_after or graph.scheduled_before):
        for leaf in node.leaves:
            try:
                body = read_body(recording.payload(leaf.body)) if leaf.body else None
            except (NotUnderstood, *FAILURES):
                continue
            if body is not None:
                yield from (access.index for access in body.accesses)
                yield from body.ranges.values()


def judge_graph(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    *,
    points: int,
    until: float,
    only_in_doubt: bool = False,
) -> JudgedGraph:
    """The accesses of one graph, without its types of indices."""
    memory = read_memory(recording, compile_, graph)
    sizes, budget = AdmittedSizes(memory), PointBudget(points, until)
    scheduled = read_schedule(recording, graph.scheduled_after or graph.scheduled_before)
    leaves = [leaf for node in scheduled for leaf in node.leaves]
    kernels = {node: kernel.name for kernel in graph.kernels for node in kernel.nodes}
    work, buffers = _GraphWork(sizes, budget, {}), PlainBuffers(memory)
    judged = [
        access
        for leaf in leaves
        if leaf.body and not (only_in_doubt and buffers.hold(recording.payload(leaf.body)))
        for access in _judge_leaf(recording, leaf, kernels.get(leaf.name, ""), work)
    ]
    judged += [
        JudgedAccess("", "", "", access.operation, access.buffer, str(access.index), verdict)
        for access, verdict in judge_parts(sizes, budget)
    ]
    with_body = {kernels.get(leaf.name, "") for leaf in leaves if leaf.body}
    others = tuple(k.name for k in graph.kernels if k.name not in with_body)
    return JudgedGraph(compile_, graph, memory, tuple(judged), others)


@dataclass(frozen=True)
class _GraphWork:
    """State that the loop bodies of a graph share."""

    sizes: AdmittedSizes
    budget: PointBudget
    known: dict[object, Verdict]


def _judge_leaf(
    recording: Recording, leaf: ScheduledNode, kernel: str, work: _GraphWork
) -> Iterator[JudgedAccess]:
    text = recording.payload(leaf.body)
    try:
        if work.budget.is_late:
            raise OutOfTime
        body = read_body(text)
        judged = list(judge_body(body, work.sizes, leaf.indirect, work.budget, work.known))
    except (NotUnderstood, OutOfTime, *FAILURES) as why:
        lost = OutOfReach(_why_lost(why))
        yield JudgedAccess(kernel, leaf.name, "", "", "", "", lost, leaf.origins)
        return
    written = _written_indices(text)
    for access, verdict in judged:
        yield JudgedAccess(
            kernel=kernel,
            node=leaf.name,
            line=access.line,
            operation=access.operation,
            buffer=access.buffer,
            index=written.get((access.operation, access.line), str(access.index)),
            verdict=verdict,
            origins=leaf.origins,
        )


def _narrow_kernels(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    until: float,
    *,
    only_in_doubt: bool = False,
) -> Iterator[JudgedIndexType]:
    """Kernels whose text has indices of 32 bits, judged."""
    memory = read_memory(recording, compile_, graph)
    scheduled = read_schedule(recording, graph.scheduled_after or graph.scheduled_before)
    leaves = {leaf.name: leaf for node in scheduled for leaf in node.leaves if leaf.body}
    order = {name: number for number, name in enumerate(leaves)}
    for kernel in graph.kernels:
        inside = [leaves[n] for n in sorted(order.keys() & kernel.nodes, key=order.__getitem__)]
        if not inside or (only_in_doubt and _fits_plainly(recording, inside)):
            continue
        types = read_index_types(recording.payload(kernel.payload), kernel.language)
        if types is not None:
            bodies = partial(_indexed_bodies, recording, kernel, inside, PointBudget(0, until))
            is_checked = compile_.flow != AOT_INDUCTOR
            verdict = judge_indices(types, bodies, memory, guards_are_checked=is_checked)
            yield JudgedIndexType(kernel.name, NARROW, verdict, kernel.origins)


def _fits_plainly(recording: Recording, leaves: list[ScheduledNode]) -> bool:
    texts = [recording.payload(leaf.body) for leaf in leaves]
    return fits_plainly(leaves, texts, LARGEST_NARROW)


def _indexed_bodies(
    recording: Recording,
    kernel: Kernel,
    leaves: list[ScheduledNode],
    budget: PointBudget,
    sizes: AdmittedSizes,
) -> Iterator[IndexedBody]:
    for leaf in leaves:
        if budget.is_late:
            raise OutOfTime
        lines: dict[str, tuple[str, ...]] = {}
        for node, operation, line in kernel.lines:
            if node == leaf.name:
                lines[operation] = (*lines.get(operation, ()), line)
        judge = BodyJudge(read_body(recording.payload(leaf.body)), sizes, leaf.indirect, budget)
        yield IndexedBody(judge, _counts(leaf, sizes), lines)


def _counts(leaf: ScheduledNode, sizes: AdmittedSizes) -> tuple[Expression, Expression]:
    """How often a loop body runs: outside a reduction, and in one."""
    pointwise, reduction = (
        written(polynomial(Applied("mul", (ONE, *map(sizes.read, lengths)))))
        for lengths in (*leaf.sizes, (), ())[:2]
    )
    return pointwise, reduction


def _why_lost(why: Exception) -> str:
    if isinstance(why, OutOfTime):
        return str(why)
    return f"not understood: {why if isinstance(why, NotUnderstood) else type(why).__name__}"


def _written_indices(text: str) -> dict[tuple[str, str], str]:
    """The index of each line as torch printed it."""
    indices: dict[str, str] = {}
    names: dict[str, str] = {}
    found: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" = ")
        if rest.startswith("self.get_index('"):
            names[name] = indices.get(rest.partition("'")[2].partition("'")[0], "")
        elif rest.startswith("ops."):
            operation, _, arguments = rest.removeprefix("ops.").partition("(")
            parts = arguments.split(", ")
            if len(parts) > 1 and parts[1].rstrip(")") in names:
                found[operation, name] = names[parts[1].rstrip(")")]
        elif name and not line.startswith(" "):
            indices[name] = rest
    return found
