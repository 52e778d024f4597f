"""torch's decisions about a pair, one for each time the scheduler considered the pair.

torch decides about groups: 'op0_op1 with op2' in round 2 is a decision about op0 with op2 and about
op1 with op2. This module traces every decision back to single nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inductoscope.analysis.fusion.pairs import UNRELATED, Pair
from inductoscope.model.entities import InductorGraph
from inductoscope.model.schedule import ScheduledNode
from inductoscope.recording.codec import NOT_IN_JSON
from inductoscope.recording.events import Fusion, FusionPair
from inductoscope.torch_facts.fusion_reasons import (
    HORIZONTAL,
    NOT_EXPLAINED,
    VERTICAL,
    Explanation,
    explain_reason,
    explain_silence,
)
from inductoscope.verdicts import Confidence

Key = tuple[str, str]

# torch puts 64 nodes into a group; a text with far more parts is not a group's name.
_MOST_PARTS = 2000


@dataclass(frozen=True)
class Consideration:
    """One decision on a pair, as single nodes or as parts of two groups."""

    round: int
    first: str
    second: str
    # A candidate is only checked; an attempt ends in a fusion unless it is refused.
    step: Literal["candidate", "attempt"]
    # fused, possible (but not fused by this decision) or refused.
    outcome: str
    kind: str
    torch: str = ""
    # The reason in plain words, and the confidence in it.
    reason: str = ""
    confidence: Confidence = "proven"
    shared_bytes: int | None = None
    score: Mapping[str, Any] | None = None
    # The values that torch checked, if it gave no reason.
    looked_at: Mapping[str, Any] | None = None
    # The two groups to decide about, if this was only a step of that decision.
    within: tuple[str, ...] = ()
    explanation: Explanation = field(default=NOT_EXPLAINED, metadata=NOT_IN_JSON)


class Groups:
    """The single nodes inside the groups that torch names."""

    def __init__(self, nodes: Iterable[ScheduledNode], fusions: Iterable[Fusion]) -> None:
        self._known: dict[str, tuple[str, ...]] = {node.name: (node.name,) for node in nodes}
        for fusion in fusions:
            if fusion.result not in self._known:
                both = (*self.leaves(fusion.first), *self.leaves(fusion.second))
                self._known[fusion.result] = tuple(dict.fromkeys(both))

    def leaves(self, name: str) -> tuple[str, ...]:
        """Return the nodes inside a group; the name itself if the group is unknown."""
        if name not in self._known:
            self._known[name] = self._split(name) or (name,)
        return self._known[name]

    def _split(self, name: str) -> tuple[str, ...]:
        """Split a group's name, which joins node names with '_'; they may contain '_' too."""
        parts, found = name.split("_"), []
        while parts and len(parts) <= _MOST_PARTS:
            sizes = range(len(parts), 0, -1)
            size = next((n for n in sizes if "_".join(parts[:n]) in self._known), 0)
            if not size:
                return ()
            found.append("_".join(parts[:size]))
            parts = parts[size:]
        return tuple(leaf for part in found for leaf in self._known[part])


def considered(
    graph: InductorGraph, nodes: Mapping[str, ScheduledNode], pairs: dict[Key, Pair]
) -> dict[Key, list[Consideration]]:
    """Return the decisions on each pair, in order. Adds pairs without shared data to `pairs`."""
    groups = Groups(nodes.values(), graph.fusions)
    partners = _partners(pairs)
    position = {name: number for number, name in enumerate(nodes)}
    found: dict[Key, list[Consideration]] = defaultdict(list)
    for decision in decisions_of(graph, nodes):
        first, second = groups.leaves(decision.first), groups.leaves(decision.second)
        keys = _keys(first, second, partners)
        if not keys and all(name in position for name in (*first, *second)):
            key = (first[-1], second[0])
            key = key if position[key[0]] <= position[key[1]] else (key[1], key[0])
            pairs.setdefault(key, Pair(*key, UNRELATED))
            keys = [key]
        for key in keys:
            found[key].append(decision)
    return found


def decisions_of(graph: InductorGraph, nodes: Mapping[str, ScheduledNode]) -> list[Consideration]:
    """Yield every decision of a graph, on single nodes and on groups, in order."""
    settings = fusion_settings(graph)
    inner = _reasons_inside(graph.pairs)
    done = {(fusion.round, fusion.first, fusion.second) for fusion in graph.fusions}
    decisions = [
        _decision(pair, settings, nodes, inner)
        for pair in graph.pairs
        # The fusion itself stands for the attempt that led to it.
        if not (pair.attempted and pair.possible and (pair.round, pair.first, pair.second) in done)
    ]
    decisions += [_fused(fusion) for fusion in graph.fusions]
    # Candidates first, then attempts, then their results.
    return sorted(decisions, key=lambda d: (d.round, d.outcome == "fused", d.step == "attempt"))


def fusion_settings(graph: InductorGraph) -> Mapping[str, Any]:
    """Return torch's settings for fusion during the run; empty if not recorded."""
    return next((round_.settings for round_ in graph.rounds if round_.settings), {})


def settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items()) or "no change"


def _partners(pairs: Iterable[Key]) -> dict[str, dict[str, Key]]:
    found: dict[str, dict[str, Key]] = defaultdict(dict)
    for key in pairs:
        found[key[0]][key[1]] = key
        found[key[1]][key[0]] = key
    return found


def _keys(
    first: tuple[str, ...], second: tuple[str, ...], partners: dict[str, dict[str, Key]]
) -> list[Key]:
    others = set(second)
    return [
        key
        for name in first
        for other, key in partners.get(name, {}).items()
        if other in others and other != name
    ]


def _fused(fusion: Fusion) -> Consideration:
    return Consideration(
        round=fusion.round,
        first=fusion.first,
        second=fusion.second,
        step="attempt",
        outcome="fused",
        kind=fusion.type,
        score=fusion.score or None,
    )


def _reasons_inside(pairs: Iterable[FusionPair]) -> dict[Any, tuple[str, ...]]:
    """Return the reasons logged for the parts while torch decided about their groups."""
    found: dict[Any, tuple[str, ...]] = {}
    for pair in pairs:
        if pair.within and not pair.possible:
            key = (pair.round, *pair.within)
            found[key] = (*found.get(key, ()), *pair.reasons)
    return found


def _decision(
    pair: FusionPair,
    settings: Mapping[str, Any],
    nodes: Mapping[str, ScheduledNode],
    inner: Mapping[Any, tuple[str, ...]],
) -> Consideration:
    reasons = pair.reasons or inner.get((pair.round, pair.first, pair.second), ())
    explanation = NOT_EXPLAINED
    confidence: Confidence = "proven"
    looked_at: Mapping[str, Any] = pair.decided
    if not pair.possible and reasons:
        explanation = explain_reason(reasons[-1])
    elif not pair.possible:
        confidence = "proven" if looked_at else "likely"
        looked_at = looked_at or _guessed(pair, nodes)
        explanation = explain_silence(looked_at, settings)
        confidence = confidence if explanation.words else "unknown"
    return Consideration(
        round=pair.round,
        first=pair.first,
        second=pair.second,
        step="attempt" if pair.attempted else "candidate",
        outcome="possible" if pair.possible else "refused",
        kind=pair.type,
        torch="; ".join(dict.fromkeys(reasons)),
        reason=explanation.words,
        confidence=confidence,
        shared_bytes=pair.shared,
        looked_at=looked_at or None,
        within=pair.within,
        explanation=explanation,
    )


def _guessed(pair: FusionPair, nodes: Mapping[str, ScheduledNode]) -> Mapping[str, Any]:
    """Infer unrecorded inputs of the C++ backend's decision; for single nodes only."""
    both = [nodes[name] for name in (pair.first, pair.second) if name in nodes]
    if len(both) != 2 or any(node.device != "cpu" or not node.group for node in both):
        return {}
    return {
        "gate": VERTICAL if pair.type.startswith("vertical") else HORIZONTAL,
        "sizes": [node.group for node in both],
        "members": [1, 1],
        "class": [node.kind for node in both],
    }
