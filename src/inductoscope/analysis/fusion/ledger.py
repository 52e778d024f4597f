"""The fusion ledger: every pair of scheduler nodes that share data, and what became of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from inductoscope.analysis.fusion.costs import Bandwidth, bandwidth_for
from inductoscope.analysis.fusion.decisions import (
    Consideration,
    Groups,
    considered,
    fusion_settings,
)
from inductoscope.analysis.fusion.evidence import Evidence
from inductoscope.analysis.fusion.never import unfusable, why_never
from inductoscope.analysis.fusion.pairs import SHARED, Moved, Pair, related_pairs
from inductoscope.analysis.fusion.reasons import Settings
from inductoscope.analysis.fusion.sizes import bytes_of
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import final_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.recording.values import members, texts

FUSED, REFUSED, NEVER = "fused", "refused", "never tried"


@dataclass(frozen=True)
class LedgerRow:
    """One pair of scheduler nodes and what became of it."""

    graph: str
    first: str
    second: str
    first_operations: tuple[str, ...]
    second_operations: tuple[str, ...]
    relation: str
    outcome: str
    kind: str
    # torch's score of the fusion; None where it was not fused, or not recorded.
    score: float | None
    moved: tuple[Moved, ...]
    # In plain words; torch's own; how the plain ones were established.
    reason: str
    torch: str
    confidence: str
    change: str
    tries: tuple[Settings, ...]
    # The condition that decided, in two or three words.
    label: str
    # What the decision hung on: index expressions, loops, limits, nodes in between.
    values: tuple[str, ...]
    considered: tuple[Consideration, ...]
    # Kernels at the end, by the group of nodes that each holds; and the kernels' names.
    groups: tuple[str, str]
    kernels: tuple[str, str]
    device: str

    @property
    def bytes(self) -> int | None:
        """Bytes that are moved once more because the two are not one kernel, or no longer are."""
        return Pair(self.first, self.second, self.relation, self.moved).bytes

    @property
    def certain(self) -> bool:
        """Whether `bytes` is known, or the most that it can be."""
        return all(moved.certain for moved in self.moved)

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds in which the pair was considered."""
        return tuple(dict.fromkeys(item.round for item in self.considered))


def ledger(recording: Recording) -> tuple[LedgerRow, ...]:
    """Every pair of every graph, in the order of the schedule."""
    return tuple(
        row
        for compile_ in recording.compiles
        for graph in compile_.inductor
        for row in graph_ledger(recording, compile_, graph)
    )


def graph_ledger(
    recording: Recording, compile_: Compile, graph: InductorGraph
) -> Iterator[LedgerRow]:
    """Every pair of one graph."""
    before = read_schedule(recording, graph.scheduled_before)
    nodes = {leaf.name: leaf for node in before for leaf in node.leaves}
    if not nodes or not graph.rounds:
        return
    pairs = related_pairs(nodes.values(), _input_bytes(recording, compile_, graph))
    decisions = considered(graph, nodes, pairs)
    finals = _final_groups(recording, graph, nodes)
    settings = fusion_settings(graph)
    groups = {name: final for name, (final, _) in finals.items()}
    scene = _Scene(
        graph=graph,
        nodes=nodes,
        finals=finals,
        users=_users(nodes),
        settings=settings,
        evidence=Evidence(recording, nodes, groups, settings),
        kernels={name: kernel.name for kernel in graph.kernels for name in kernel.nodes},
    )
    position = {name: number for number, name in enumerate(nodes)}
    for key in sorted(pairs, key=lambda key: (position[key[0]], position[key[1]])):
        yield scene.row(pairs[key], tuple(decisions.get(key, ())))


def _input_bytes(recording: Recording, compile_: Compile, graph: InductorGraph) -> dict[str, int]:
    """Sizes of the graph's inputs, by name."""
    final = read_graph(recording, final_graph(compile_, graph))
    found = {}
    for node in final.nodes if final else ():
        value = members(node.value) if node.op == "placeholder" else {}
        size = bytes_of(str(value.get("dtype", "")), texts(value.get("shape"))) if value else None
        if size is not None:
            found[node.name] = size
    return found


def _final_groups(
    recording: Recording, graph: InductorGraph, nodes: Mapping[str, ScheduledNode]
) -> dict[str, tuple[str, str]]:
    """The group that each node is in at the end: its name and its kind."""
    groups = Groups(nodes.values(), graph.fusions)
    found = {name: (name, node.kind) for name, node in nodes.items()}
    # Where the end of the schedule is missing, the fusions tell what has been done so far.
    for fusion in graph.fusions:
        for leaf in groups.leaves(fusion.result):
            found[leaf] = (fusion.result, "FusedSchedulerNode")
    for group in read_schedule(recording, graph.scheduled_after):
        for part in group.leaves:
            found[part.name] = (group.name, group.kind)
    return found


def _users(nodes: Mapping[str, ScheduledNode]) -> dict[str, dict[str, int]]:
    """Nodes that use each buffer and can be fused with something, numbered in order."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for node in nodes.values():
        if unfusable(node) is None:
            for name in dict.fromkeys([*node.reads, *node.writes]):
                found[name].setdefault(node.name, len(found[name]))
    return found


@dataclass(frozen=True)
class _Scene:
    """What is known of one graph."""

    graph: InductorGraph
    nodes: Mapping[str, ScheduledNode]
    finals: Mapping[str, tuple[str, str]]
    users: Mapping[str, Mapping[str, int]]
    settings: Mapping[str, Any]
    evidence: Evidence
    kernels: Mapping[str, str]

    def row(self, pair: Pair, items: tuple[Consideration, ...]) -> LedgerRow:
        """The pair's line in the ledger."""
        first, second = self.nodes[pair.first], self.nodes[pair.second]
        if pair.relation == SHARED and self.finals[pair.first][0] != self.finals[pair.second][0]:
            pair = replace(pair, moved=self.evidence.in_common(pair))
        return LedgerRow(
            graph=self.graph.key,
            first=pair.first,
            second=pair.second,
            first_operations=first.origins,
            second_operations=second.origins,
            relation=pair.relation,
            moved=pair.moved,
            considered=items,
            groups=(self.finals[pair.first][0], self.finals[pair.second][0]),
            kernels=(self.kernels.get(pair.first, ""), self.kernels.get(pair.second, "")),
            device=first.device,
            **self._outcome(pair, items),
        )

    def _outcome(self, pair: Pair, items: tuple[Consideration, ...]) -> dict[str, Any]:
        final, kind = self.finals[pair.first]
        if final == self.finals[pair.second][0]:
            return _fused(pair, items, final, kind)
        decided = [item for item in items if not item.within]
        if decided:
            refused, last = _refused(decided)
            values = self.evidence.values(pair, last)
            return {**refused, **_told_apart(pair, last), "values": values}
        never = why_never(pair, self.nodes, self.users, self.settings)
        explanation = never.explanation
        return _result(
            NEVER,
            reason=explanation.words,
            change=explanation.change,
            tries=explanation.tries,
            label=explanation.label,
            confidence=never.confidence,
        )


def _fused(pair: Pair, items: tuple[Consideration, ...], final: str, kind: str) -> dict[str, Any]:
    joined = next((item for item in items if item.outcome == FUSED), None)
    if joined is None:
        # Put together outside of the fusion rounds, or each with a third.
        words = f"fused (through the group {final})"
        special = {"ForeachKernelSchedulerNode": "foreach kernel", "GroupedSchedulerNode": "group"}
        return _result(FUSED, kind=special.get(kind, ""), reason=words)
    direct = {joined.first, joined.second} == {pair.first, pair.second}
    words = f"fused in round {joined.round}"
    if not direct:
        words = f"fused (through the group {_through(pair, joined)}) in round {joined.round}"
    score = members(joined.score).get("memory_score")
    return _result(
        FUSED,
        kind=joined.kind,
        score=float(score) if isinstance(score, (int, float)) else None,
        reason=words,
    )


def _through(pair: Pair, joined: Consideration) -> str:
    """The group by way of which two nodes came together."""
    names = [
        name for name in (joined.first, joined.second) if name not in (pair.first, pair.second)
    ]
    return " with ".join(names)


def _refused(items: list[Consideration]) -> tuple[dict[str, Any], Consideration]:
    """The last refusal decides: later rounds ask again about what is left."""
    last = next((item for item in reversed(items) if item.outcome == REFUSED), items[-1])
    if last.outcome != REFUSED or items[-1].round > last.round:
        last = items[-1]
        words = "torch found it possible and did not do it; why is not known."
        return _result(
            REFUSED, kind=last.kind, reason=words, label="possible, not done", confidence="unknown"
        ), last
    explanation = last.explanation
    result = _result(
        REFUSED,
        kind=last.kind or next((item.kind for item in reversed(items) if item.kind), ""),
        reason=explanation.words or last.torch or "torch refused without giving a reason.",
        torch=last.torch,
        change=explanation.change,
        tries=explanation.tries,
        label=explanation.label or last.torch or "no reason given",
        confidence=last.confidence,
    )
    return result, last


def _told_apart(pair: Pair, last: Consideration) -> dict[str, Any]:
    """'no shared data' of two that read the same buffer: other parts of it, or another order."""
    certain = pair.relation == SHARED and all(moved.certain for moved in pair.moved)
    if not certain or not last.torch.startswith("no shared data"):
        return {}
    if not pair.bytes:
        return {
            "label": "different parts of a buffer",
            "reason": "They read different parts of the same buffer: they have no data in common.",
            "change": "Nothing to change: fused, they would read as much as now.",
            "tries": (),
        }
    return {
        "label": "no shared data: another order",
        "reason": "They read the same data, but each walks through it in another order, or with "
        "another number of steps; torch counts as shared only what is read in step.",
    }


def _result(outcome: str, **known: Any) -> dict[str, Any]:
    words = dict.fromkeys(("kind", "reason", "torch", "change", "label"), "")
    empty = {**words, "score": None, "tries": (), "values": (), "confidence": "proven"}
    return {"outcome": outcome, **empty, **known}


# --- for the page ---------------------------------------------------------------------------------


def ledger_rows(recording: Recording, *, bandwidth: float | None = None) -> list[dict[str, Any]]:
    """The ledger as plain data; `bandwidth` in GB/s overrides what is known of the device."""
    return rows_of(recording, ledger(recording), bandwidth=bandwidth)


def rows_of(
    recording: Recording, rows: Iterable[LedgerRow], *, bandwidth: float | None = None
) -> list[dict[str, Any]]:
    """Rows as plain data."""
    rows = tuple(rows)
    speeds = {
        device: bandwidth_for(recording, device, given=bandwidth)
        for device in {row.device for row in rows}
    }
    return [_plain(row, speeds[row.device]) for row in rows]


def _plain(row: LedgerRow, speed: Bandwidth | None) -> dict[str, Any]:
    return {
        "graph": row.graph,
        "first": row.first,
        "second": row.second,
        "first_operations": list(row.first_operations),
        "second_operations": list(row.second_operations),
        "relation": row.relation,
        "outcome": row.outcome,
        "kind": row.kind,
        "score": row.score,
        "bytes": row.bytes,
        "at_most": not row.certain,
        "microseconds": None if speed is None else speed.microseconds(row.bytes),
        "reason": row.reason,
        "values": list(row.values),
        "condition": row.label,
        "torch": row.torch,
        "confidence": row.confidence,
        "rounds": list(row.rounds),
        "what_to_change": row.change,
        "buffers": [moved.buffer for moved in row.moved],
        "groups": list(row.groups),
        "kernels": list(row.kernels),
    }
