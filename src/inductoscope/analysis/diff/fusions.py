"""Fusions that one run has and the other has not, with torch's reason for each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from itertools import combinations, pairwise
from typing import Literal

from inductoscope.analysis.diff.entities import FusionChange
from inductoscope.analysis.diff.materials import scheduler
from inductoscope.analysis.diff.side import Side
from inductoscope.model.schedule import ScheduledNode

Identities = dict[str, Hashable]
Parts = list[list[ScheduledNode]]


def identities(first: Side, second: Side) -> tuple[Identities, Identities, str]:
    """What tells the scheduler nodes of both runs, and how sure that is.

    Where both runs scheduled the same, a node is told by its place; otherwise by the operations in
    it and which of those it is.
    """
    one, other = scheduler(first), scheduler(second)
    if one is not None and other is not None and one.canonical == other.canonical:
        return _by_place(first), _by_place(second), "proven"
    return _by_operations(first), _by_operations(second), "likely"


def _by_place(side: Side) -> Identities:
    return {leaf.name: number for number, leaf in enumerate(side.before)}


def _by_operations(side: Side) -> Identities:
    seen: Counter[Hashable] = Counter()
    found: Identities = {}
    for leaf in side.before:
        key = (leaf.kind, leaf.loops, leaf.kernel, side.operations(leaf))
        found[leaf.name] = (key, seen[key])
        seen[key] += 1
    return found


def fusion_changes(first: Side, second: Side) -> Iterator[FusionChange]:
    """Lost ones first; nothing where one of the runs has no schedule."""
    if not (first.before and first.after and second.before and second.after):
        return
    ours, theirs, confidence = identities(first, second)
    yield from _torn("lost", (first, ours), (second, theirs), confidence)
    yield from _torn("gained", (second, theirs), (first, ours), confidence)


def _torn(
    what: Literal["lost", "gained"],
    fused: tuple[Side, Identities],
    torn: tuple[Side, Identities],
    confidence: str,
) -> Iterator[FusionChange]:
    """Groups of the `fused` run whose nodes lie in several groups of the `torn` run."""
    side, names = fused
    other, other_names = torn
    nodes = {other_names[leaf.name]: leaf for leaf in other.before}
    place = {
        other_names[leaf.name]: number
        for number, group in enumerate(other.after)
        for leaf in group.leaves
        if leaf.name in other_names
    }
    for group in side.after:
        parts: dict[int, list[ScheduledNode]] = defaultdict(list)
        for leaf in group.leaves:
            identity = names.get(leaf.name)
            if identity in place:
                parts[place[identity]].append(nodes[identity])
        for one, two in _neighbours(list(parts.values())):
            yield _change(what, other, one, two, confidence)


def _neighbours(parts: Parts) -> Iterator[tuple[list[ScheduledNode], list[ScheduledNode]]]:
    """Parts between which data flows; those that only share an input are told once each."""
    flowing = [(a, b) for a, b in combinations(parts, 2) if _flows(a, b) or _flows(b, a)]
    linked = {id(part) for pair in flowing for part in pair}
    yield from flowing
    for one, two in pairwise(parts):
        if id(one) not in linked or id(two) not in linked:
            yield one, two


def _flows(producers: list[ScheduledNode], consumers: list[ScheduledNode]) -> bool:
    written = {name for leaf in producers for name in leaf.writes}
    return any(name in written for leaf in consumers for name in leaf.reads)


def _change(
    what: Literal["lost", "gained"],
    torn: Side,
    one: list[ScheduledNode],
    two: list[ScheduledNode],
    confidence: str,
) -> FusionChange:
    reason, is_torchs = refusal(torn, {leaf.name for leaf in one}, {leaf.name for leaf in two})
    return FusionChange(
        what=what,
        operations=_operations(torn, one),
        others=_operations(torn, two),
        nodes=tuple(leaf.name for leaf in one),
        other_nodes=tuple(leaf.name for leaf in two),
        reason=reason,
        in_torchs_words=is_torchs,
        confidence=confidence,
    )


def _operations(side: Side, leaves: list[ScheduledNode]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for leaf in leaves for word in side.operations(leaf)))


def refusal(side: Side, one: set[str], two: set[str]) -> tuple[str, bool]:
    """Why torch did not fuse two sets of nodes, and whether it said so itself."""
    possible = False
    for pair in reversed(side.graph.pairs if side.graph else ()):
        first, second = set(pair.first.split("_")), set(pair.second.split("_"))
        if not ((first & one and second & two) or (first & two and second & one)):
            continue
        if not pair.possible and pair.reasons:
            return "; ".join(pair.reasons), True
        possible = possible or pair.possible
    if possible:
        return "torch found it possible, and fused otherwise", False
    return "torch does not say: it did not consider the pair", False
