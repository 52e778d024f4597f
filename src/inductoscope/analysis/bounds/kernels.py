"""Judges all memory accesses of a recording's kernels, and the types of their indices."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from inductoscope.analysis.bounds.accesses import (
    NO_TIME,
    UNJUDGED,
    BodyJudge,
    GivenUp,
    PointBudget,
    judge_parts,
    out_of_reach,
    owner,
)
from inductoscope.analysis.bounds.index_range import IndexedBody, JudgedIndexType, judge_indices
from inductoscope.analysis.bounds.proof import polynomial, written
from inductoscope.analysis.bounds.sizes import AdmittedSizes
from inductoscope.analysis.bounds.verdicts import JudgedAccess, Verdict
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.join import compiled_graphs
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
from inductoscope.torch_facts.loop_bodies import printed_body, read_body, read_lengths, read_sum
from inductoscope.torch_facts.stages import AOT_INDUCTOR
from inductoscope.torch_facts.triton_indices import LARGEST_NARROW, NARROW, read_index_types

# --- loop bodies that need no proof ---------------------------------------------------------------
#
# Fixed sizes, and indices that are sums of loop variables: most bodies are like this. Reading them
# takes a few searches of the text, where a proof takes a syntax tree and polynomials: a rule that
# looks for what is broken passes over them.

# Words of any access, also at a computed index or under a mask.
_ANY_ACCESS = (
    *("ops.load", "ops.store", "ops.bucketize", "ops.masked", "ops.check_bounds"),
    "set_indirect",
)


@dataclass(frozen=True)
class PlainBody:
    """The iteration count of a loop body, and the largest position it uses of each buffer."""

    points: int
    largest: Mapping[str, int]


def read_plain_body(text: str) -> PlainBody | None:
    """Return the largest positions that a loop body uses; None if that takes a proof."""
    printed = printed_body(text)
    lengths = read_lengths(printed.ranges)
    if (
        len(lengths) != printed.ranges.count(":")
        or text.count("def ") != 1
        or sum(map(text.count, _ANY_ACCESS)) != len(printed.accesses)
    ):
        return None
    largest: dict[str, int] = {}
    for access in printed.accesses:
        found = read_sum(access.index, lengths)
        if found is None or found[0] < 0:
            return None
        position = found[0] + sum(step * (count - 1) for step, count in found[1])
        largest[access.buffer] = max(position, largest.get(access.buffer, 0))
    return PlainBody(math.prod(lengths.values()), largest)


def stays_plainly_inside(text: str, memory: GraphMemory) -> bool:
    """Check without a proof that a loop body stays inside its buffers."""
    body = read_plain_body(text)
    return body is not None and all(
        position < _elements(owner(name, memory)) for name, position in body.largest.items()
    )


def _elements(room: Room | None) -> int:
    """Return the number of positions of a buffer; 0 if sizes or strides are symbolic."""
    if room is None or len(room.size) != len(room.stride) or "0" in room.size:
        return 0
    if not all(text.isdecimal() and len(text) < 16 for text in (*room.size, *room.stride)):
        return 0
    pairs = zip(map(int, room.size), map(int, room.stride), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in pairs)


def fits_plainly(texts: Iterable[str], limit: int) -> bool:
    """Check without a proof that no index and no count of these bodies exceeds a limit."""
    bodies = map(read_plain_body, texts)
    return all(
        body is not None and max(body.points, *body.largest.values()) <= limit for body in bodies
    )


# --- all memory accesses of a recording's kernels -------------------------------------------------

# The most loop points to compute for one graph where no proof is found; a few seconds.
MOST_POINTS = 2_000_000
# The limit for a whole recording.
MOST_SECONDS = 300.0


def judge_recording(
    recording: Recording,
    *,
    points: int = MOST_POINTS,
    seconds: float = MOST_SECONDS,
    only_in_doubt: bool = False,
) -> Iterator[JudgedGraph]:
    """Yield every compiled graph, in order. Graphs from a cache have no loop bodies.

    `only_in_doubt` leaves out what plainly stays in its buffers, or fits into its type.
    """
    until = time.monotonic() + seconds
    for compile_, graph in compiled_graphs(recording):
        if graph.scheduled_after or graph.scheduled_before:
            budget = PointBudget(points, until)
            yield JudgedGraph(recording, compile_, graph, budget, only_in_doubt)


def judged_indices(recording: Recording, graph: InductorGraph) -> Iterator[Expression]:
    """Yield every index and loop length in the loop bodies of a graph."""
    for leaf in _leaves(recording, graph):
        try:
            body = read_body(recording.payload(leaf.body))
        except (NotUnderstood, *FAILURES):
            continue
        yield from (access.index for access in body.accesses)
        yield from body.ranges.values()


def _leaves(recording: Recording, graph: InductorGraph) -> list[ScheduledNode]:
    scheduled = read_schedule(recording, graph.scheduled_after or graph.scheduled_before)
    return [leaf for node in scheduled for leaf in node.leaves if leaf.body]


@dataclass
class JudgedGraph:
    """A graph that Inductor compiled, and the verdicts on its kernels, made when they are read."""

    recording: Recording
    compile: Compile
    graph: InductorGraph
    budget: PointBudget
    only_in_doubt: bool = False
    # Verdicts that loop bodies share: layers of a model repeat.
    known: dict[object, Verdict] = field(default_factory=dict)

    @cached_property
    def memory(self) -> GraphMemory:
        return read_memory(self.recording, self.compile, self.graph)

    @cached_property
    def leaves(self) -> list[ScheduledNode]:
        return _leaves(self.recording, self.graph)

    @cached_property
    def kernels(self) -> dict[str, str]:
        return {node: kernel.name for kernel in self.graph.kernels for node in kernel.nodes}

    @property
    def without_body(self) -> tuple[str, ...]:
        """Kernels without a loop body: calls of a library, and templates."""
        with_body = {self.kernels.get(leaf.name, "") for leaf in self.leaves}
        return tuple(k.name for k in self.graph.kernels if k.name not in with_body)

    # --- accesses ---------------------------------------------------------------------------------

    @cached_property
    def accesses(self) -> tuple[JudgedAccess, ...]:
        """The loads and stores, with verdicts."""
        return tuple(self._accesses())

    def _accesses(self) -> Iterator[JudgedAccess]:
        sizes = AdmittedSizes(self.memory)
        for leaf in self.leaves:
            text = self.recording.payload(leaf.body)
            if not (self.only_in_doubt and stays_plainly_inside(text, self.memory)):
                yield from self._of_leaf(leaf, text, sizes)
        for access, verdict in judge_parts(sizes, self.budget):
            index = str(access.index)
            yield JudgedAccess("", "", "", access.operation, access.buffer, index, verdict)

    def _of_leaf(
        self, leaf: ScheduledNode, text: str, sizes: AdmittedSizes
    ) -> Iterator[JudgedAccess]:
        kernel = self.kernels.get(leaf.name, "")
        try:
            if self.budget.is_late:
                raise GivenUp(NO_TIME)
            body = read_body(text)
            judge = BodyJudge(body, sizes, leaf.indirect, self.budget, self.known)
            judged = [(access, judge.judge(access)) for access in body.accesses]
        except UNJUDGED as why:
            lost = out_of_reach(why)
            yield JudgedAccess(kernel, leaf.name, "", "", "", "", lost, leaf.origins)
            return
        printed = {(a.operation, a.line): a.index for a in printed_body(text).accesses}
        for access, verdict in judged:
            yield JudgedAccess(
                kernel=kernel,
                node=leaf.name,
                line=access.line,
                operation=access.operation,
                buffer=access.buffer,
                index=printed.get((access.operation, access.line), str(access.index)),
                verdict=verdict,
                origins=leaf.origins,
            )

    # --- types of indices -------------------------------------------------------------------------

    @cached_property
    def index_types(self) -> tuple[JudgedIndexType, ...]:
        """The kernels with indices of 32 bits, with verdicts."""
        return tuple(self._index_types())

    def _index_types(self) -> Iterator[JudgedIndexType]:
        places = {leaf.name: place for place, leaf in enumerate(self.leaves)}
        for kernel in self.graph.kernels:
            own = sorted(places[node] for node in kernel.nodes if node in places)
            inside = [self.leaves[place] for place in own]
            texts = [self.recording.payload(leaf.body) for leaf in inside]
            if self.only_in_doubt and fits_plainly(texts, LARGEST_NARROW):
                continue
            types = read_index_types(self.recording.payload(kernel.payload), kernel.language)
            if inside and types is not None:
                bodies = partial(self._indexed_bodies, kernel, inside)
                is_checked = self.compile.flow != AOT_INDUCTOR
                verdict = judge_indices(types, bodies, self.memory, guards_are_checked=is_checked)
                yield JudgedIndexType(kernel.name, NARROW, verdict, kernel.origins)

    def _indexed_bodies(
        self, kernel: Kernel, leaves: list[ScheduledNode], sizes: AdmittedSizes
    ) -> Iterator[IndexedBody]:
        # Proofs only: no points are computed.
        budget = replace(self.budget, points=0)
        for leaf in leaves:
            if budget.is_late:
                raise GivenUp(NO_TIME)
            lines: dict[str, tuple[str, ...]] = {}
            for node, operation, line in kernel.lines:
                if node == leaf.name:
                    lines[operation] = (*lines.get(operation, ()), line)
            body = read_body(self.recording.payload(leaf.body))
            judge = BodyJudge(body, sizes, leaf.indirect, budget)
            yield IndexedBody(judge, _counts(leaf, sizes), lines)


def _counts(leaf: ScheduledNode, sizes: AdmittedSizes) -> tuple[Expression, Expression]:
    """Return the iteration counts of a loop body: pointwise, and reduction."""
    pointwise, reduction = (
        written(polynomial(Applied("mul", (ONE, *map(sizes.read, lengths)))))
        for lengths in (*leaf.sizes, (), ())[:2]
    )
    return pointwise, reduction
