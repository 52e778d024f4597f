"""Leaves out every node that the failure does not need."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence

from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.shrink.bypass import bypassed
from inductoscope.inside.search.shrink.shapes import all_resized
from inductoscope.inside.search.shrink.shrink_pass import (
    Batch,
    Proposals,
    ShrinkPass,
    Subject,
    smallest_subset_of,
)
from inductoscope.inside.search.subgraph import RecordedGraph, record_values, subgraph


def _measure(candidate: Candidate) -> tuple[int, int, int]:
    """Fewer operations; with as many, fewer attributes of the module, or else fewer inputs."""
    attributes = sum(node.op == "get_attr" for node in candidate.module.graph.nodes)
    return candidate.size, attributes, len(candidate.inputs)


def _propose(subject: Subject) -> Proposals:
    recorded = record_values(subject.candidate)
    suspects = _in_graph(recorded, subject.suspects)
    kernel = [names for names in _in_graph(recorded, [subject.of_kernel]) if names not in suspects]
    shown_by = yield from _first_that_shows_it(recorded, suspects, kernel)
    if shown_by is None or shown_by in kernel:
        # No suspicion is enough: it takes several nodes, which may have to read the same value.
        part = subgraph(recorded, shown_by) if shown_by else None
        candidate = yield from bypassed(part or subject.candidate, subject.guesses)
        recorded, shown_by = record_values(candidate), None
    kept = yield from smallest_subset_of(
        shown_by or recorded.names, lambda names: subgraph(recorded, names), subject.guesses
    )
    # Where no node can be left out, inputs that no node reads can, and attributes become inputs.
    yield [subgraph(recorded, kept)]
    return None


def _in_graph(recorded: RecordedGraph, sets: Iterable[Collection[str]]) -> list[list[str]]:
    """Sets of nodes, each once and in the order of the graph; without those with none or all."""
    found = {tuple(name for name in recorded.names if name in names): None for names in sets}
    return [[*names] for names in found if 0 < len(names) < len(recorded.names)]


def _first_that_shows_it(
    recorded: RecordedGraph, suspects: Sequence[list[str]], kernel: Sequence[list[str]]
) -> Generator[Batch, int | None, list[str] | None]:
    """The first set of nodes that shows the failure by itself."""
    parts = [subgraph(recorded, names) for names in suspects]
    # Small shapes are tried along with it: where they show it too, a round of compiles is saved.
    # Not of a kernel: much of it is left out next, and what is left may need its shapes.
    small = [None if part is None else all_resized(part, _SMALL) for part in parts]
    sets = [names for names in suspects for _ in range(2)] + [*kernel]
    pairs = [each for pair in zip(small, parts, strict=True) for each in pair]
    found = yield pairs + [subgraph(recorded, names) for names in kernel]
    return None if found is None else sets[found]


_SMALL = 2


PASS = ShrinkPass("nodes", "looking for the smallest part of {size} nodes", _measure, _propose)
