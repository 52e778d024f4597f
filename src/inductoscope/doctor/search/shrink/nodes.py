"""Leaves out every node that the failure does not need."""

from __future__ import annotations

from collections.abc import Generator

from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.shrink.bypass import bypassed
from inductoscope.doctor.search.shrink.shapes import all_resized
from inductoscope.doctor.search.shrink.shrink_pass import (
    Batch,
    Proposals,
    ShrinkPass,
    Subject,
    smallest_subset_of,
)
from inductoscope.doctor.search.subgraph import RecordedGraph, record_values, subgraph


def _measure(candidate: Candidate) -> tuple[int, int, int]:
    """Fewer operations; with as many, fewer attributes of the module, or else fewer inputs."""
    attributes = sum(node.op == "get_attr" for node in candidate.module.graph.nodes)
    return candidate.size, attributes, len(candidate.inputs)


def _propose(subject: Subject) -> Proposals:
    recorded = record_values(subject.candidate)
    start = yield from _suspected(recorded, subject)
    if start is None:
        # No suspicion is enough: it takes several nodes, which may have to read the same value.
        candidate = yield from bypassed(subject.candidate)
        recorded = record_values(candidate)
    kept = yield from smallest_subset_of(
        start or recorded.names, lambda names: subgraph(recorded, names)
    )
    # Where no node can be left out, inputs that no node reads can, and attributes become inputs.
    yield [subgraph(recorded, kept)]
    return None


def _suspected(
    recorded: RecordedGraph, subject: Subject
) -> Generator[Batch, int | None, list[str] | None]:
    """The first set of suspects that shows the failure by itself."""
    suspects = [
        [name for name in recorded.names if name in names_of_suspects]
        for names_of_suspects in subject.suspects
    ]
    suspects = [names for names in suspects if names and len(names) < len(recorded.names)]
    parts = [subgraph(recorded, names) for names in suspects]
    # Small shapes are tried along with it: where they show it too, a round of compiles is saved.
    small = [None if part is None else all_resized(part, _SMALL) for part in parts]
    pairs = zip(small, parts, strict=True)
    found = yield [each for pair in pairs for each in pair]
    return None if found is None else suspects[found // 2]


_SMALL = 2


PASS = ShrinkPass("nodes", "looking for the smallest part of {size} nodes", _measure, _propose)
