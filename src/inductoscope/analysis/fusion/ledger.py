"""The fusion ledger: every pair of scheduler nodes that share data, and its outcome."""

from __future__ import annotations

from collections import Counter, defaultdict
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
from inductoscope.analysis.fusion.judging import judge_fused, judge_never, judge_refused
from inductoscope.analysis.fusion.never import unfusable, why_never
from inductoscope.analysis.fusion.pairs import SHARED, Pair, related_pairs
from inductoscope.analysis.fusion.row import (
    FUSED,
    NEVER,
    REFUSED,
    Judgement,
    LedgerRow,
    Outcome,
)
from inductoscope.analysis.fusion.sizes import bytes_of
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import final_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.recording.values import filled, members, texts


def ledger(recording: Recording, *, bandwidth: float | None = None) -> tuple[LedgerRow, ...]:
    """Every pair of every graph, in the order of the schedule.

    `bandwidth` in GB/s overrides the device's published one.
    """
    return tuple(
        row
        for compile_ in recording.compiles
        for graph in compile_.inductor
        for row in graph_ledger(recording, compile_, graph, bandwidth=bandwidth)
    )


def graph_ledger(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    *,
    bandwidth: float | None = None,
) -> Iterator[LedgerRow]:
    """Every pair of one graph."""
    nodes = _nodes(recording, graph)
    if not nodes:
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
        bandwidths={
            device: bandwidth_for(recording, device, given=bandwidth)
            for device in {node.device for node in nodes.values()}
        },
    )
    position = {name: number for number, name in enumerate(nodes)}
    for key in sorted(pairs, key=lambda key: (position[key[0]], position[key[1]])):
        yield scene.row(pairs[key], tuple(decisions.get(key, ())))


def count_outcomes(recording: Recording) -> Counter[Outcome]:
    """How many pairs the ledger has of each outcome, without why: that takes far longer."""
    found: Counter[Outcome] = Counter()
    for graph in recording.graphs:
        nodes = _nodes(recording, graph)
        pairs = related_pairs(nodes.values(), {}) if nodes else {}
        decisions = considered(graph, nodes, pairs) if pairs else {}
        finals = _final_groups(recording, graph, nodes)
        found.update(_outcome(pairs[key], decisions.get(key, ()), finals) for key in pairs)
    return found


def _nodes(recording: Recording, graph: InductorGraph) -> dict[str, ScheduledNode]:
    """The scheduler's nodes by name; none if it did not come to fusion."""
    before = read_schedule(recording, graph.scheduled_before) if graph.rounds else ()
    return {leaf.name: leaf for node in before for leaf in node.leaves}


# The final group of each node: its name and its kind.
Finals = Mapping[str, tuple[str, str]]


def _outcome(pair: Pair, items: Iterable[Consideration], finals: Finals) -> Outcome:
    if finals[pair.first][0] == finals[pair.second][0]:
        return FUSED
    return REFUSED if any(not item.within for item in items) else NEVER


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
    """The final group of each node: its name and its kind."""
    groups = Groups(nodes.values(), graph.fusions)
    found = {name: (name, node.kind) for name, node in nodes.items()}
    # If the end of the schedule is missing, the fusions show what was done so far.
    for fusion in graph.fusions:
        for leaf in groups.leaves(fusion.result):
            found[leaf] = (fusion.result, "FusedSchedulerNode")
    for group in read_schedule(recording, graph.scheduled_after):
        for part in group.leaves:
            found[part.name] = (group.name, group.kind)
    return found


def _users(nodes: Mapping[str, ScheduledNode]) -> dict[str, dict[str, int]]:
    """Fusable nodes that use each buffer, numbered in order."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for node in nodes.values():
        if unfusable(node) is None:
            for name in dict.fromkeys([*node.reads, *node.writes]):
                found[name].setdefault(node.name, len(found[name]))
    return found


@dataclass(frozen=True)
class _Scene:
    """What is known about one graph."""

    graph: InductorGraph
    nodes: Mapping[str, ScheduledNode]
    finals: Finals
    users: Mapping[str, Mapping[str, int]]
    settings: Mapping[str, Any]
    evidence: Evidence
    kernels: Mapping[str, str]
    # By device; None if unknown.
    bandwidths: Mapping[str, Bandwidth | None]

    def row(self, pair: Pair, items: tuple[Consideration, ...]) -> LedgerRow:
        """The pair's line in the ledger."""
        first, second = self.nodes[pair.first], self.nodes[pair.second]
        if pair.relation == SHARED and self.finals[pair.first][0] != self.finals[pair.second][0]:
            pair = replace(pair, moved=self.evidence.in_common(pair))
        speed, cost = self.bandwidths[first.device], pair.bytes
        return filled(
            LedgerRow,
            graph=self.graph.key,
            first=pair.first,
            second=pair.second,
            first_operations=first.origins,
            second_operations=second.origins,
            relation=pair.relation,
            bytes=cost,
            at_most=not pair.certain,
            microseconds=None if speed is None else speed.microseconds(cost),
            rounds=tuple(dict.fromkeys(item.round for item in items)),
            buffers=tuple(moved.buffer for moved in pair.moved),
            groups=(self.finals[pair.first][0], self.finals[pair.second][0]),
            kernels=(self.kernels.get(pair.first, ""), self.kernels.get(pair.second, "")),
            device=first.device,
            moved=pair.moved,
            considered=items,
            **vars(self._judgement(pair, items)),
        )

    def _judgement(self, pair: Pair, items: tuple[Consideration, ...]) -> Judgement:
        outcome = _outcome(pair, items, self.finals)
        if outcome == FUSED:
            return judge_fused(pair, items, *self.finals[pair.first])
        if outcome == REFUSED:
            decided = [item for item in items if not item.within]
            return judge_refused(pair, decided, self.evidence)
        return judge_never(why_never(pair, self.nodes, self.users, self.settings))
