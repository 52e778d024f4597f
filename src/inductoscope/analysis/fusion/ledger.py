"""The fusion ledger: a row per pair, its cost, and totals without double counting."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from inductoscope.analysis.fusion.decisions import (
    Consideration,
    Groups,
    considered,
    fusion_settings,
)
from inductoscope.analysis.fusion.pairs import SHARED, Moved, Pair, common_share, related_pairs
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import compiled_graphs, final_graph
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.model.target import recording_target
from inductoscope.recording.codec import NOT_IN_JSON
from inductoscope.recording.values import members, texts
from inductoscope.torch_facts.fusion_reasons import Explanation, Settings, read_loops
from inductoscope.torch_facts.gpu_targets import ARCHITECTURES
from inductoscope.torch_facts.index_expressions import bytes_of
from inductoscope.torch_facts.loop_bodies import PrintedBody, printed_body
from inductoscope.verdicts import Confidence

Item = TypeVar("Item")

Outcome = Literal["fused", "refused", "never tried"]
FUSED: Outcome = "fused"
REFUSED: Outcome = "refused"
NEVER: Outcome = "never tried"

_ARROWS = {"producer-consumer": "->", "shared input": "&"}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The outcome of a pair, and why."""

    outcome: Outcome
    kind: str = ""
    # torch's score of the fusion; None if it was not fused, or not recorded.
    score: float | None = None
    # The reason in plain words and in torch's, and the confidence in the plain words.
    reason: str = ""
    torch: str = ""
    confidence: Confidence = "proven"
    what_to_change: str = ""
    # The condition that decided, in two or three words.
    condition: str = ""
    # The values behind the decision: index expressions, loops, limits, nodes in between.
    values: tuple[str, ...] = ()
    tries: tuple[Settings, ...] = field(default=(), metadata=NOT_IN_JSON)


@dataclass(frozen=True, kw_only=True)
class LedgerRow(Judgement):
    """A pair of scheduler nodes and its outcome."""

    graph: str
    first: str
    second: str
    first_operations: tuple[str, ...]
    second_operations: tuple[str, ...]
    relation: str
    # Bytes that are moved again because the two are not one kernel, or saved because they are.
    bytes: int | None
    # Whether `bytes` is an upper bound.
    at_most: bool
    # The time to move them at the device's memory bandwidth; None if that is unknown.
    microseconds: float | None
    # The fusion rounds that considered the pair.
    rounds: tuple[int, ...]
    buffers: tuple[str, ...]
    # The final group of each node, and the kernels generated from both groups.
    groups: tuple[str, str]
    kernels: tuple[str, str]
    device: str = field(metadata=NOT_IN_JSON)
    moved: tuple[Moved, ...] = field(metadata=NOT_IN_JSON)
    considered: tuple[Consideration, ...] = field(metadata=NOT_IN_JSON)

    @property
    def label(self) -> str:
        """The pair in one line: 'op0 mul -> op1 sum_1'."""
        arrow = _ARROWS.get(self.relation, "|")
        first = _node_label(self.first, self.first_operations)
        return f"{first} {arrow} {_node_label(self.second, self.second_operations)}"


def _node_label(name: str, operations: Sequence[str]) -> str:
    """Return a node's name with its last operation, after which its result is named."""
    return f"{name} {operations[-1]}" if operations else name


# --- What a refusal costs: bytes as time on a device, from its published memory bandwidth ---------
#
# Never measured: `bytes / bandwidth` is the least time that moving the data can take.

ESTABLISHED = "bytes / bandwidth, not measured"


@dataclass(frozen=True)
class Bandwidth:
    """The memory bandwidth of a device in GB/s (10^9 bytes), and its source.

    The device is found by a pattern of its name.
    """

    pattern: str
    gigabytes: float
    source: str

    def microseconds(self, count: int | None) -> float | None:
        return None if count is None else round(count / (self.gigabytes * 1000), 3)


# The first match counts, so variants come before the plain name.
BANDWIDTHS: tuple[Bandwidth, ...] = (
    Bandwidth(r"\bB200\b", 8000, "NVIDIA HGX B200 data sheet"),
    Bandwidth(r"\bH200\b", 4800, "NVIDIA H200 data sheet"),
    Bandwidth(r"\bH100 NVL\b", 3900, "NVIDIA H100 data sheet (NVL)"),
    Bandwidth(r"\bH100 PCIe\b", 2000, "NVIDIA H100 data sheet (PCIe)"),
    Bandwidth(r"\bH100\b", 3350, "NVIDIA H100 data sheet (SXM)"),
    Bandwidth(r"\bA100.SXM4.40GB\b", 1555, "NVIDIA A100 data sheet (40 GB)"),
    Bandwidth(r"\bA100.*PCIe?\b", 1935, "NVIDIA A100 data sheet (80 GB PCIe)"),
    Bandwidth(r"\bA100\b", 2039, "NVIDIA A100 data sheet (80 GB SXM)"),
    Bandwidth(r"\bV100\b", 900, "NVIDIA V100 data sheet (SXM2)"),
    Bandwidth(r"\bL40S\b", 864, "NVIDIA L40S data sheet"),
    Bandwidth(r"\bL4\b", 300, "NVIDIA L4 data sheet"),
    Bandwidth(r"\bT4\b", 320, "NVIDIA T4 data sheet"),
    Bandwidth(r"\bA10G?\b", 600, "NVIDIA A10 data sheet"),
    Bandwidth(r"\bRTX 4090\b", 1008, "NVIDIA GeForce RTX 4090 specification"),
    Bandwidth(r"\bRTX 3090\b", 936, "NVIDIA GeForce RTX 3090 specification"),
    Bandwidth(r"\bMI300X\b", 5300, "AMD Instinct MI300X data sheet"),
    Bandwidth(r"\bMI2[15]0X?\b", 1638, "AMD Instinct MI250X data sheet, one die"),
)


def bandwidth_for(
    recording: Recording, device: str, *, given: float | None = None
) -> Bandwidth | None:
    """Return the bandwidth of a device in a recording; None if unknown."""
    if given is not None:
        return Bandwidth("", given, "given with --bandwidth")
    if device.startswith("cpu"):
        return None
    pretended = ARCHITECTURES.get(recording_target(recording))
    rounds = (round_ for graph in recording.graphs for round_ in graph.rounds)
    named = [members(round_.settings.get("devices")).get(device) for round_ in rounds]
    name = pretended.name if pretended else str(next(filter(None, reversed(named)), ""))
    return next((known for known in BANDWIDTHS if re.search(known.pattern, name)), None)


# --- nodes that torch does not fuse ---------------------------------------------------------------

_ATTEMPTS = "max_fusion_buffer_group_pairwise_attempts"
_DEFAULT_ATTEMPTS = 64
_AUTOTUNE = ({"max_autotune": True, "max_autotune_gemm_backends": "CPP,TRITON"},)
# Library functions that torch has templates for.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_int_mm", "bias_addmm")


def unfusable(node: ScheduledNode) -> Explanation | None:
    """Explain why a node cannot be fused with any other; None if it can."""
    if "Template" in node.ir:
        return None
    if node.kind == "NopKernelSchedulerNode":
        return Explanation(
            f"{node.name} is not a kernel: it only names memory that others write ({node.ir}).",
            "Nothing to change: it takes no time.",
            label="no kernel",
        )
    if node.kind != "ExternKernelSchedulerNode":
        return None
    if node.ir == "UserDefinedTritonKernel":
        return Explanation(
            f"{node.name} is a user-defined Triton kernel, which torch does not fuse into.",
            "Do it inside your kernel, or set epilogue_fusion_user_defined_triton_kernel.",
            ({"epilogue_fusion_user_defined_triton_kernel": True},),
            "user-defined Triton kernel",
        )
    if node.ir == "DeviceCopy":
        return Explanation(
            f"{node.name} copies data from one device to another.",
            "Keep the data on one device.",
            label="copy between devices",
        )
    function = node.kernel.rpartition(".")[2]
    words = f"{node.name} calls a library ({node.kernel or node.ir}), whose loops torch cannot "
    if function in _PRODUCTS or "_mm_plus_mm" in function:
        return Explanation(
            f"{words}extend.",
            "Set max_autotune: torch then also tries templates, which it can fuse into.",
            _AUTOTUNE,
            "library call",
        )
    return Explanation(
        f"{words}extend.",
        "torch can only fuse operations that it generates code for.",
        label="library call without template",
    )


def _explained(outcome: Outcome, why: Explanation, confidence: Confidence) -> Judgement:
    return Judgement(
        outcome=outcome,
        reason=why.words,
        what_to_change=why.change,
        tries=why.tries,
        condition=why.label,
        confidence=confidence,
    )


# --- one graph ------------------------------------------------------------------------------------

_OTHER_GROUPS = {"ForeachKernelSchedulerNode": "foreach kernel", "GroupedSchedulerNode": "group"}
_MOST_NAMED = 6


@dataclass(frozen=True)
class GraphSchedule:
    """A graph before and after fusion: judges pairs, with the values behind the decisions."""

    recording: Recording
    compile: Compile
    graph: InductorGraph
    given_bandwidth: float | None = None
    _reached: dict[tuple[str, bool], set[str]] = field(default_factory=dict, repr=False)

    @cached_property
    def nodes(self) -> dict[str, ScheduledNode]:
        """The scheduler's nodes by name; empty if the graph did not reach fusion."""
        graph = self.graph
        before = read_schedule(self.recording, graph.scheduled_before) if graph.rounds else ()
        return {leaf.name: leaf for node in before for leaf in node.leaves}

    @cached_property
    def finals(self) -> dict[str, tuple[str, str]]:
        """The final group of each node: its name and its kind."""
        groups = Groups(self.nodes.values(), self.graph.fusions)
        found = {name: (name, node.kind) for name, node in self.nodes.items()}
        # If the end of the schedule is missing, the fusions show what was done so far.
        for fusion in self.graph.fusions:
            for leaf in groups.leaves(fusion.result):
                found[leaf] = (fusion.result, "FusedSchedulerNode")
        for group in read_schedule(self.recording, self.graph.scheduled_after):
            for part in group.leaves:
                found[part.name] = (group.name, group.kind)
        return found

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        return fusion_settings(self.graph)

    @cached_property
    def _kernels(self) -> dict[str, str]:
        return {name: kernel.name for kernel in self.graph.kernels for name in kernel.nodes}

    @cached_property
    def _bandwidths(self) -> dict[str, Bandwidth | None]:
        devices = {node.device for node in self.nodes.values()}
        return {
            device: bandwidth_for(self.recording, device, given=self.given_bandwidth)
            for device in devices
        }

    def input_bytes(self) -> dict[str, int]:
        final = read_graph(self.recording, final_graph(self.compile, self.graph))
        found = {}
        for node in final.nodes if final else ():
            value = members(node.value) if node.op == "placeholder" else {}
            size = bytes_of(str(value.get("dtype", "")), texts(value.get("shape")))
            if value and size is not None:
                found[node.name] = size
        return found

    # --- rows -------------------------------------------------------------------------------------

    def row(self, pair: Pair, items: tuple[Consideration, ...]) -> LedgerRow:
        first, second = self.nodes[pair.first], self.nodes[pair.second]
        outcome = self.outcome(pair, items)
        if pair.relation == SHARED and outcome != FUSED:
            moved = tuple(self._read_by_both(pair, moved) for moved in pair.moved)
            pair = replace(pair, moved=moved)
        speed = self._bandwidths[first.device]
        return LedgerRow(
            graph=self.graph.key,
            first=pair.first,
            second=pair.second,
            first_operations=first.origins,
            second_operations=second.origins,
            relation=pair.relation,
            bytes=pair.bytes,
            at_most=not pair.certain,
            microseconds=None if speed is None else speed.microseconds(pair.bytes),
            rounds=tuple(dict.fromkeys(item.round for item in items)),
            buffers=tuple(moved.buffer for moved in pair.moved),
            groups=(self.finals[pair.first][0], self.finals[pair.second][0]),
            kernels=(self._kernels.get(pair.first, ""), self._kernels.get(pair.second, "")),
            device=first.device,
            moved=pair.moved,
            considered=items,
            **vars(self._judged(outcome, pair, items)),
        )

    def outcome(self, pair: Pair, items: Iterable[Consideration]) -> Outcome:
        """Return the pair's outcome: in one kernel, refused, or never considered on its own."""
        if self.finals[pair.first][0] == self.finals[pair.second][0]:
            return FUSED
        return REFUSED if any(not item.within for item in items) else NEVER

    def _judged(self, outcome: Outcome, pair: Pair, items: Sequence[Consideration]) -> Judgement:
        if outcome == FUSED:
            return self._fused(pair, items)
        if outcome == NEVER:
            return self._never_tried(pair)
        return self._refused(pair, [item for item in items if not item.within])

    def _fused(self, pair: Pair, items: Sequence[Consideration]) -> Judgement:
        joined = next((item for item in items if item.outcome == FUSED), None)
        final, kind = self.finals[pair.first]
        if joined is None:
            # Fused outside the fusion rounds, or each with a third node.
            words = f"fused (through the group {final})"
            return Judgement(outcome=FUSED, kind=_OTHER_GROUPS.get(kind, ""), reason=words)
        own = (pair.first, pair.second)
        groups = [name for name in (joined.first, joined.second) if name not in own]
        through = f" (through the group {' with '.join(groups)})" if groups else ""
        score = members(joined.score).get("memory_score")
        return Judgement(
            outcome=FUSED,
            kind=joined.kind,
            score=float(score) if isinstance(score, (int, float)) else None,
            reason=f"fused{through} in round {joined.round}",
        )

    def _refused(self, pair: Pair, items: Sequence[Consideration]) -> Judgement:
        """Judge by the last refusal, since later rounds try the remaining pairs again."""
        last = next((item for item in reversed(items) if item.outcome == REFUSED), items[-1])
        if last.outcome != REFUSED or items[-1].round > last.round:
            last = items[-1]
            judgement = Judgement(
                outcome=REFUSED,
                kind=last.kind,
                reason="torch found it possible but did not fuse; the reason is unknown.",
                condition="possible, not done",
                confidence="unknown",
            )
        else:
            judgement = _refusal(items, last)
        judgement = replace(judgement, values=tuple(dict.fromkeys(self._values(pair, last))))
        is_read_by_both = pair.relation == SHARED and pair.certain
        if is_read_by_both and last.torch.startswith("no shared data"):
            return replace(judgement, **(_OTHER_ORDER if pair.bytes else _OTHER_PARTS))
        return judgement

    def _never_tried(self, pair: Pair) -> Judgement:
        """Explain a pair that was never tried: torch pairs a node with the next 64 that share a
        buffer.
        """
        for name in (pair.first, pair.second):
            found = unfusable(self.nodes[name])
            if found is not None:
                return _explained(NEVER, found, "proven")
        limit, distance = self._settings.get(_ATTEMPTS, _DEFAULT_ATTEMPTS), self._distance(pair)
        if isinstance(limit, int) and distance is not None and distance > limit:
            words = (
                f"{distance - 1} other nodes that use the same buffer lie between them; torch "
                f"pairs a node only with the next {limit} ({_ATTEMPTS})."
            )
            tries = ({_ATTEMPTS: 4 * distance},)
            why = Explanation(words, f"Raise {_ATTEMPTS}.", tries, "too many users")
            return _explained(NEVER, why, "likely")
        words = "torch did not consider this pair; the recording does not show why."
        return _explained(NEVER, Explanation(words, label="not known"), "unknown")

    @cached_property
    def _users(self) -> dict[str, dict[str, int]]:
        """The fusable nodes that use each buffer, numbered in order."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for node in self.nodes.values():
            if unfusable(node) is None:
                for name in dict.fromkeys([*node.reads, *node.writes]):
                    found[name].setdefault(node.name, len(found[name]))
        return found

    def _distance(self, pair: Pair) -> int | None:
        """Return the least distance of the two nodes among the users of a shared buffer."""
        users = [self._users.get(moved.buffer, {}) for moved in pair.moved]
        both = [places for places in users if pair.first in places and pair.second in places]
        found = [abs(places[pair.first] - places[pair.second]) for places in both]
        return min(found, default=None)

    # --- values that decided ----------------------------------------------------------------------

    def _values(self, pair: Pair, last: Consideration) -> Iterator[str]:
        """Yield index expressions, loops, limits or nodes in between, by torch's reason."""
        text = last.torch
        if text.startswith(("no shared data", "memory deps", "score_fusion")):
            for moved in pair.moved:
                for name in (pair.first, pair.second):
                    if used := self._uses(name, moved.buffer):
                        yield f"{name} {used} over {{{self._body(name).ranges}}}"
        if text.startswith("score_fusion") and last.shared_bytes is not None:
            limit = self._settings.get("score_fusion_memory_threshold", "not recorded")
            yield f"shared {last.shared_bytes} bytes, score_fusion_memory_threshold {limit}"
        if text.startswith("exceeds max fusion"):
            finals = [final for final, _ in self.finals.values()]
            one, other = (finals.count(self.finals[n][0]) for n in (pair.first, pair.second))
            limit = self._settings.get("max_fusion_size", "not recorded")
            yield f"{one} + {other} operations at the end, max_fusion_size {limit}"
        if text.startswith(("intermediate nodes", "will create cycle")):
            yield from self._between(pair)
        if text.startswith(("numel", "nodes numel", "tiling", "invalid", "Nodes are too far")):
            for name in (pair.first, pair.second):
                group = self.nodes[name].group
                if group:
                    yield f"{name} loops over {read_loops(group) or group}"

    def _body(self, name: str) -> PrintedBody:
        return printed_body(self.recording.payload(self.nodes[name].body))

    def _uses(self, name: str, buffer: str) -> str:
        """Describe how a node uses a buffer in a few words; empty if it does not."""
        body = self._body(name)
        used = {verb: body.indices(buffer, loads=verb == "reads") for verb in ("reads", "writes")}
        found = (f"{verb} {buffer}[{', '.join(places)}]" for verb, places in used.items() if places)
        return " and ".join(found)

    def _read_by_both(self, pair: Pair, moved: Moved) -> Moved:
        """Narrow to the data that both nodes read, as far as index expressions show."""
        first, second = self._body(pair.first), self._body(pair.second)
        one, other = (body.indices(moved.buffer, loads=True) for body in (first, second))
        if moved.read_bytes is None or not one or not other:
            return moved
        share = common_share(one, first.ranges, other, second.ranges)
        if share is None:
            return moved
        return replace(moved, read_bytes=int(moved.read_bytes * share), certain=True)

    def _between(self, pair: Pair) -> Iterator[str]:
        start, end = self.finals[pair.first][0], self.finals[pair.second][0]
        middle = self._reach(start, forwards=True) & self._reach(end, forwards=False)
        names = [name for name, (final, _) in self.finals.items() if final in middle - {start, end}]
        if names:
            nodes = [self.nodes[name] for name in names[:_MOST_NAMED]]
            shown = ", ".join(n.name + "".join(f" ({o})" for o in n.origins[-1:]) for n in nodes)
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield f"between them: {shown}{more}"

    @cached_property
    def _edges(self) -> dict[tuple[str, bool], set[str]]:
        """The final groups that depend on a final group (forwards), and its dependencies."""
        writers = {b.name: node.name for node in self.nodes.values() for b in node.buffers}
        found: dict[tuple[str, bool], set[str]] = defaultdict(set)
        for name, node in self.nodes.items():
            for read in node.reads:
                if read in writers:
                    one, other = self.finals[writers[read]][0], self.finals[name][0]
                    found[one, True].add(other)
                    found[other, False].add(one)
        return found

    def _reach(self, start: str, *, forwards: bool) -> set[str]:
        """Return all final groups after or before one. A damaged graph may contain a cycle."""
        if (start, forwards) not in self._reached:
            found, waiting = set[str](), [start]
            while waiting:
                following = self._edges.get((waiting.pop(), forwards), set()) - found
                found |= following
                waiting += following
            self._reached[start, forwards] = found
        return self._reached[start, forwards]


def _refusal(items: Sequence[Consideration], last: Consideration) -> Judgement:
    why = last.explanation
    found = _explained(REFUSED, why, last.confidence)
    return replace(
        found,
        kind=last.kind or next((item.kind for item in reversed(items) if item.kind), ""),
        reason=why.words or last.torch or "torch refused without giving a reason.",
        torch=last.torch,
        condition=why.label or last.torch or "no reason given",
    )


_OTHER_PARTS: dict[str, Any] = {
    "condition": "different parts of a buffer",
    "reason": "They read different parts of the same buffer, so they share no data.",
    "what_to_change": "Nothing to change: fused, they would read just as much.",
    "tries": (),
}
_OTHER_ORDER: dict[str, Any] = {
    "condition": "no shared data: another order",
    "reason": "They read the same data, but in different orders or with a different number of "
    "steps. torch counts data as shared only if both read it in the same order.",
}


# --- the ledger -----------------------------------------------------------------------------------


def ledger(recording: Recording, *, bandwidth: float | None = None) -> tuple[LedgerRow, ...]:
    """Yield every pair of every graph, in the order of the schedule.

    `bandwidth` in GB/s overrides the device's published one.
    """
    return tuple(
        row
        for compile_, graph in compiled_graphs(recording)
        for row in graph_ledger(recording, compile_, graph, bandwidth=bandwidth)
    )


def graph_ledger(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    *,
    bandwidth: float | None = None,
) -> Iterator[LedgerRow]:
    schedule = GraphSchedule(recording, compile_, graph, bandwidth)
    nodes = schedule.nodes
    if not nodes:
        return
    pairs = related_pairs(nodes.values(), schedule.input_bytes())
    decisions = considered(graph, nodes, pairs)
    position = {name: number for number, name in enumerate(nodes)}
    for key in sorted(pairs, key=lambda key: (position[key[0]], position[key[1]])):
        yield schedule.row(pairs[key], tuple(decisions.get(key, ())))


def count_outcomes(recording: Recording) -> Counter[Outcome]:
    """Count the pairs of each outcome, without the reasons, which take far longer."""
    found: Counter[Outcome] = Counter()
    for compile_, graph in compiled_graphs(recording):
        schedule = GraphSchedule(recording, compile_, graph)
        pairs = related_pairs(schedule.nodes.values(), {})
        decisions = considered(graph, schedule.nodes, pairs) if pairs else {}
        found.update(schedule.outcome(pairs[key], decisions.get(key, ())) for key in pairs)
    return found


# --- Sums over the ledger that count nothing twice ------------------------------------------------
#
# Ten pairs may involve one buffer that one kernel reads: the read counts once, and so does the
# write of a buffer that nothing else needs.


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The rows between two kernels that one condition decided, represented by the costliest."""

    graph: str
    first: str
    second: str
    label: str
    pairs: int
    bytes: int | None
    at_most: bool
    device: str
    values: tuple[str, ...]
    row: LedgerRow = field(metadata=NOT_IN_JSON)
    rows: tuple[LedgerRow, ...] = field(metadata=NOT_IN_JSON)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Rows that the same condition decided, with the texts of the costliest."""

    number: int
    outcome: Outcome
    condition: str
    # Pairs of scheduler nodes, and pairs of kernels.
    pairs: int
    places: int
    bytes: int | None
    # Whether `bytes` is an upper bound.
    at_most: bool
    reason: str
    torch: str
    what_to_change: str
    tries: tuple[Settings, ...]
    losses: tuple[Loss, ...]


def bytes_moved(rows: Iterable[LedgerRow]) -> int | None:
    """Return the bytes saved if all these pairs were fused; None if all are unknown."""
    reads: dict[tuple[str, str, str], int] = {}
    writes: dict[tuple[str, str], int] = {}
    for row in rows:
        for moved in row.moved:
            if moved.read_bytes is not None:
                # A kernel reads a buffer once; if fused, all nodes but the first read it for free.
                reader = row.second if row.outcome == FUSED else row.groups[1]
                key = (row.graph, moved.buffer, reader)
                reads[key] = max(reads.get(key, 0), moved.read_bytes)
            if moved.written_bytes is not None:
                writes[row.graph, moved.buffer] = moved.written_bytes
    return sum(reads.values()) + sum(writes.values()) if reads else None


def is_bound(rows: Iterable[LedgerRow]) -> bool:
    """Check whether the bytes that these pairs move are an upper bound."""
    return any(row.at_most and row.bytes for row in rows)


def losses(rows: Iterable[LedgerRow]) -> list[Loss]:
    """Group rows by their two kernels, the costliest first."""
    found = _grouped(rows, lambda row: (row.graph, *row.groups, row.outcome, row.condition))
    return sorted(map(_loss, found), key=lambda loss: -(loss.bytes or 0))


def _loss(rows: Sequence[LedgerRow]) -> Loss:
    row = max(rows, key=lambda row: row.bytes or 0)
    return Loss(
        graph=row.graph,
        first=row.first,
        second=row.second,
        label=row.label,
        pairs=len(rows),
        bytes=bytes_moved(rows),
        at_most=is_bound(rows),
        device=row.device,
        values=row.values,
        row=row,
        rows=tuple(rows),
    )


def conditions(rows: Iterable[LedgerRow], outcome: Outcome) -> list[Condition]:
    """Group the rows of an outcome by the deciding condition, the costliest first."""
    chosen = [row for row in rows if row.outcome == outcome]
    found = _grouped(chosen, lambda row: (row.condition,))
    summed = sorted(
        ((bytes_moved(group), group) for group in found), key=lambda item: -(item[0] or 0)
    )
    return [_condition(number, *item) for number, item in enumerate(summed, start=1)]


def _condition(number: int, moved: int | None, rows: Sequence[LedgerRow]) -> Condition:
    lost = losses(rows)
    row = lost[0].row
    return Condition(
        number=number,
        outcome=row.outcome,
        condition=row.condition,
        pairs=len(rows),
        places=len(lost),
        bytes=moved,
        at_most=is_bound(rows),
        reason=row.reason,
        torch=row.torch,
        what_to_change=row.what_to_change,
        tries=row.tries,
        losses=tuple(lost),
    )


def merged(parts: Iterable[Condition]) -> list[Condition]:
    """Join the conditions of single graphs, which share no buffers, the costliest first."""
    found = [_joined(same) for same in _grouped(parts, lambda one: (one.outcome, one.condition))]
    return sorted(found, key=lambda condition: -(condition.bytes or 0))


def _joined(same: Sequence[Condition]) -> Condition:
    known = [one.bytes for one in same if one.bytes is not None]
    return replace(
        max(same, key=lambda one: one.losses[0].bytes or 0),
        pairs=sum(one.pairs for one in same),
        places=sum(one.places for one in same),
        bytes=sum(known) if known else None,
        at_most=any(one.at_most for one in same),
    )


def _grouped(rows: Iterable[Item], key: Callable[[Item], tuple[str, ...]]) -> list[list[Item]]:
    found: dict[tuple[str, ...], list[Item]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())
