"""Compares the decisions of ranks: odd ones out, splits, ranks behind, and deadlocks.

Ranks wait for each other forever if, in one process group that both belong to, both come to the
same turn with different collectives. A graph alone shows that only where both compiled it for the
same call: the same function, again for the same reason. Everything else is a difference and no
more. A rank may compile once more for a last short batch, a stage of a pipeline has its own graph,
and behind a graph break the rest of the collectives is in another graph.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from inductoscope.analysis.ranks.decisions import (
    DEADLY,
    KINDS,
    Decision,
    RankLog,
    RankProgress,
    Weight,
    merged_order,
)

NOT_COMPILED = "only some ranks compiled it; what the others did instead is not known"
OTHER_CALL = (
    "it is not known that they compiled it for the same function and inputs, so that these graphs "
    "need not meet"
)
OTHER_GROUPS = "they send to different process groups"
UNKNOWN_GROUP = "which process group it goes to is not known"
REST_ELSEWHERE = "one sends more than the other, which may send the rest from another graph"
ALL_ENDED = "every rank came to its end, and no call of theirs is known to differ"
# Graphs that are numbered by their turn, so that a cache hit on one rank shifts the numbers.
_NUMBERED = ("post-grad graph", "schedule")


class _Stand(NamedTuple):
    """The collectives of a rank's graph, and the fields that identify the call behind it."""

    # The collectives; None if the rank has no such graph.
    sent: tuple[tuple[str, str], ...] | None
    function: str
    reason: str
    lookups: tuple[str, ...]


class RankWaits:
    """Explains for two sides why a mutual wait (deadlock) is not proven."""

    def __init__(self, logs: Sequence[RankLog]) -> None:
        self._taken = {log.rank: {(d.kind, d.key): d for d in log.decisions} for log in logs}
        self.all_ended = all(log.progress is RankProgress.ENDED for log in logs)
        # False if the calls themselves are conclusive, so that graphs need not be compared.
        self.graphs_tell = True

    def why_unproven(
        self, key: tuple[str, str], ranks: Collection[int], others: Collection[int]
    ) -> str:
        """Return why a deadlock of two ranks, one per side, is unproven; empty if it is proven."""
        if key[0] == "collective":
            calls = (self._taken[rank].get(key) for rank in (*ranks, *others))
            return "" if any(call.among for call in calls if call) else UNKNOWN_GROUP
        if not self.graphs_tell:
            return ALL_ENDED
        reasons = {
            _why_waiting_is_unproven(key[1], one, other)
            for one in self._stands(key, ranks)
            for other in self._stands(key, others)
        }
        # The reason closest to a proof counts.
        return next((reason for reason in _CLOSEST_FIRST if reason in reasons), NOT_COMPILED)

    def _stands(self, key: tuple[str, str], ranks: Iterable[int]) -> set[_Stand]:
        """Return the distinct stands of these ranks; most ranks have the same."""
        return {_stand(self._taken[rank], key) for rank in ranks}


_CLOSEST_FIRST = ("", REST_ELSEWHERE, OTHER_GROUPS, UNKNOWN_GROUP, OTHER_CALL, NOT_COMPILED)


def _stand(taken: dict[tuple[str, str], Decision], key: tuple[str, str]) -> _Stand:
    decision = taken.get(key)
    if decision is None:
        return _Stand(None, "", "", ())
    compile_id = decision.compile
    function, reason = (taken.get((kind, compile_id)) for kind in ("compile", "guard"))
    lookups: tuple[str, ...] = ()
    if any(word in key[1] for word in _NUMBERED):
        lookups = tuple(
            d.value for d in taken.values() if d.kind == "cache" and d.compile == compile_id
        )
    return _Stand(
        tuple(zip(decision.groups, decision.orders, strict=False)),
        function.value if function else "",
        reason.value if reason else "",
        lookups,
    )


def _why_waiting_is_unproven(key: str, one: _Stand, other: _Stand) -> str:
    if one.sent is None or other.sent is None:
        return NOT_COMPILED
    is_recompile = not key.partition(" ")[0].endswith("/0")
    is_known = one.function and (one.reason or not is_recompile)
    if one[1:] != other[1:] or not is_known:
        return OTHER_CALL
    mine, theirs = dict(one.sent), dict(other.sent)
    if not mine or not theirs:
        # There is no collective at all, or the log does not name its group.
        return UNKNOWN_GROUP if mine == theirs else REST_ELSEWHERE
    shared = mine.keys() & theirs.keys()
    if not shared:
        return OTHER_GROUPS
    return "" if any(_clash(mine[name], theirs[name]) for name in shared) else REST_ELSEWHERE


def _clash(one: str, other: str) -> bool:
    """Check whether two orders differ at a position that both have."""
    return any(a != b for a, b in zip(one.split(), other.split(), strict=False))


# --------------------------------------------------------------------------------------------------
# Compares the decisions of all ranks: who leaves the majority first, and with which decision.
#
# A decision is compared between the ranks that have come that far. Where more than half of them
# agree, the others are the odd ones out from there on; what differs later follows from it. Where no
# value has a majority, nobody is accused.

_Key = tuple[str, str]
# A weight, and whether a deadlock is proven.
_Grave = tuple[Weight, bool]
# The most pairs of values to compare; enough even if every rank has its own value.
_MOST_PAIRS = 2_000
# A rank that has made a later decision has skipped this one.
NONE = "none"


@dataclass(frozen=True)
class RankSide:
    ranks: tuple[int, ...]
    # None if the ranks made no such decision.
    decision: Decision | None

    @property
    def text(self) -> str:
        return self.decision.text if self.decision else NONE


@dataclass(frozen=True)
class RankDifference:
    kind: str
    key: str
    # The largest side first: the majority, where there is one.
    sides: tuple[RankSide, ...]
    # The reason why a deadlock of two sides is unproven; empty if it is proven.
    unproven: str

    @property
    def weight(self) -> Weight:
        return KINDS[self.kind].weight

    @property
    def is_deadly(self) -> bool:
        """Whether ranks of one process group call different collectives."""
        return self.weight in DEADLY and not self.unproven


@dataclass(frozen=True)
class OddRanks(RankDifference):
    """The ranks that leave the majority with the same decision."""

    # Decisions after this one in which these ranks differ as well, by kind.
    later: tuple[tuple[str, int], ...] = ()
    # Whether most ranks have not reached this decision yet, nor any later one.
    others_may_follow: bool = False

    @property
    def majority(self) -> RankSide:
        return self.sides[0]

    @property
    def odd(self) -> RankSide:
        return self.sides[1]

    @property
    def is_deadly(self) -> bool:
        return super().is_deadly and not self.others_may_follow


@dataclass(frozen=True)
class RankSplit(RankDifference):
    """A decision in which no value has a majority."""

    @property
    def is_by_rank(self) -> bool:
        """Whether every rank has its own value, as with a number derived from the rank."""
        return len(self.sides) > 2 and all(len(side.ranks) == 1 for side in self.sides)


@dataclass(frozen=True)
class BehindRanks:
    """The ranks that have not come as far as the majority."""

    ranks: tuple[int, ...]
    # The first decision that these ranks have not made.
    kind: str
    decision: str
    inside_a_compile: bool


@dataclass(frozen=True)
class RankComparison:
    ranks: int
    decisions: int
    odd: tuple[OddRanks, ...] = ()
    splits: tuple[RankSplit, ...] = ()
    behind: tuple[BehindRanks, ...] = ()

    @property
    def differences(self) -> tuple[RankDifference, ...]:
        return (*self.odd, *self.splits)


@dataclass
class _Position:
    key: _Key
    values: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    taken: dict[str, Decision] = field(default_factory=dict)
    behind: list[int] = field(default_factory=list)

    @property
    def voters(self) -> int:
        return sum(map(len, self.values.values()))

    def majority(self) -> str | None:
        value, ranks = max(self.values.items(), key=lambda item: len(item[1]))
        return value if 2 * len(ranks) > self.voters else None

    def side(self, value: str) -> RankSide:
        return RankSide(tuple(sorted(self.values[value])), self.taken.get(value))


def compare_ranks(
    logs: Sequence[RankLog], ignored: Collection[str] = (), *, ends_tell: bool = True
) -> RankComparison:
    """Compare ranks read from the same form of log, except in the `ignored` kinds of decisions.

    `ends_tell`: ranks that finished made all their calls, so all differences in calls are known.
    """
    order = merged_order([[(d.kind, d.key) for d in log.decisions] for log in logs])
    positions = [p for p in _positions(logs, order) if p.voters > 1 and p.key[0] not in ignored]
    waits = RankWaits(logs)
    calls = [position for position in positions if position.key[0] == "collective"]
    # Two ranks that differ in a call will wait for each other.
    waits.graphs_tell = not (ends_tell and waits.all_ended) or any(
        len(call.values) > 1 and not _why_unproven(call, call.values, waits) for call in calls
    )
    return RankComparison(
        ranks=len(logs),
        decisions=len(positions),
        odd=tuple(_odd(positions, waits)),
        splits=tuple(_splits(positions, waits)),
        behind=tuple(_behind(positions, {log.rank: log for log in logs})),
    )


# --- who has what ---------------------------------------------------------------------------------


def _positions(logs: Sequence[RankLog], order: list[_Key]) -> list[_Position]:
    place = {key: number for number, key in enumerate(order)}
    positions = [_Position(key) for key in order]
    groups = _groups(logs)
    everybody = {log.rank for log in logs}
    # The records of a compile depend on cache hits, backward graphs above all.
    decisions = (decision for log in logs for decision in log.decisions)
    hits = {d.compile for d in decisions if d.kind == "cache" and d.value == "hit"}
    for log in logs:
        taken = {(d.kind, d.key): d for d in log.decisions}
        last = max((place[key] for key in taken), default=-1)
        for number, position in enumerate(positions):
            decision = taken.get(position.key)
            if decision is not None:
                position.values[decision.value].append(log.rank)
                position.taken.setdefault(decision.value, decision)
            elif log.rank in groups.get(position.key, everybody):
                _take_absence(position, log, number > last, hits)
    return positions


def _groups(logs: Sequence[RankLog]) -> dict[_Key, set[int]]:
    """Return the ranks that make a decision, for each decision that not all ranks make."""
    found: dict[_Key, set[int]] = {}
    for log in logs:
        for decision in log.decisions:
            if decision.among:
                found.setdefault((decision.kind, decision.key), set()).update(decision.among)
    return found


def _take_absence(position: _Position, log: RankLog, is_last: bool, hits: set[str]) -> None:
    """Note a rank without this decision: it skipped it, has not reached it, or is unknown."""
    kind, key = position.key
    if KINDS[kind].skipped_on_hit and key.partition(" ")[0] in hits:
        return
    # A rank that failed may just not have reached the missing call.
    went_on = not is_last and kind != "collective"
    if went_on or log.progress is RankProgress.ENDED:
        position.values[""].append(log.rank)
        return
    position.behind.append(log.rank)
    if log.progress is RankProgress.AT_REST:
        position.values[""].append(log.rank)


def _why_unproven(position: _Position, values: Collection[str], waits: RankWaits) -> str:
    """Explain why it is unproven that ranks with two of these values deadlock; empty if proven."""
    if KINDS[position.key[0]].weight not in DEADLY:
        return ""
    pairs = [(position.values[a], position.values[b]) for a, b in combinations(values, 2)]
    found = [waits.why_unproven(position.key, *pair) for pair in pairs[:_MOST_PAIRS]]
    return "" if "" in found else found[0]


# --- the odd ones out -----------------------------------------------------------------------------


def _odd(positions: list[_Position], waits: RankWaits) -> Iterator[OddRanks]:
    """Yield for each rank the first decision of each weight with which it leaves the majority.

    A decision that leads to a deadlock is reported even after a harmless difference.
    """
    first: dict[tuple[int, _Grave], tuple[int, str]] = {}
    later: dict[tuple[int, _Grave], Counter[str]] = defaultdict(Counter)
    unproven: dict[tuple[int, str], str] = {}
    for number, position in enumerate(positions):
        kind, majority = position.key[0], position.majority()
        for rank, value in _minority(position):
            if (number, value) not in unproven:
                assert majority is not None
                unproven[number, value] = _why_unproven(position, (value, majority), waits)
            grave = KINDS[kind].weight, not unproven[number, value]
            cause = next((one for one in _causes(*grave) if (rank, one) in first), None)
            if cause is not None:
                later[rank, cause][kind] += 1
            else:
                first[rank, grave] = (number, value)
    together: dict[tuple[int, str], list[int]] = defaultdict(list)
    for (rank, _), place in first.items():
        together[place].append(rank)
    for (number, value), ranks in sorted(together.items(), key=lambda item: item[0][0]):
        position, why_not = positions[number], unproven[number, value]
        grave = KINDS[position.key[0]].weight, not why_not
        follows: Counter[str] = Counter()
        for rank in ranks:
            follows |= later[rank, grave]
        majority = position.majority()
        assert majority is not None
        most = position.side(majority)
        odd = RankSide(tuple(sorted(ranks)), position.taken.get(value))
        yield OddRanks(
            *position.key,
            sides=(most, odd),
            unproven=why_not,
            later=tuple(sorted(follows.items())),
            others_may_follow=not majority and set(most.ranks) <= set(position.behind),
        )


def _causes(weight: Weight, proven: bool) -> Iterator[_Grave]:
    """Yield weights of earlier decisions that can explain a difference of this weight."""
    yield weight, True
    if not proven:
        yield weight, False
    if weight is Weight.COST:
        yield Weight.PROGRAM, True


def _minority(position: _Position) -> Iterator[tuple[int, str]]:
    """Yield the ranks whose value differs from the majority's and that are not just behind."""
    majority = position.majority()
    if majority is None:
        return
    behind = set(position.behind)
    for value, ranks in position.values.items():
        if value != majority:
            yield from ((rank, value) for rank in ranks if value or rank not in behind)


# --- no majority ----------------------------------------------------------------------------------


def _splits(positions: list[_Position], waits: RankWaits) -> Iterator[RankSplit]:
    """Yield the first decision of each weight without a majority, and the first proven deadlock."""
    seen: set[_Grave] = set()
    for position in positions:
        kind, key = position.key
        weight = KINDS[kind].weight
        if len(position.values) < 2 or position.majority() is not None:
            continue
        unproven = _why_unproven(position, position.values, waits)
        if not seen.isdisjoint(_causes(weight, not unproven)):
            continue
        if set(position.values.get("", ())) & set(position.behind):
            continue  # Half of them have not come to it.
        sides = sorted((position.side(v) for v in position.values), key=lambda s: -len(s.ranks))
        split = RankSplit(kind, key, tuple(sides), unproven)
        if kind == "cache key" or (weight is Weight.COST and split.is_by_rank):
            continue  # The number of the device is part of them.
        seen.add((weight, not unproven))
        yield split


# --- not as far -----------------------------------------------------------------------------------


def _behind(positions: list[_Position], logs: dict[int, RankLog]) -> Iterator[BehindRanks]:
    first: dict[int, _Key] = {}
    for position in positions:
        there = sum(len(ranks) for value, ranks in position.values.items() if value)
        for rank in position.behind:
            if 2 * there > len(logs):
                first.setdefault(rank, position.key)
    together: dict[tuple[_Key, bool], list[int]] = defaultdict(list)
    for rank, key in first.items():
        together[key, logs[rank].progress is RankProgress.BUSY].append(rank)
    for (key, busy), ranks in together.items():
        yield BehindRanks(tuple(sorted(ranks)), *key, inside_a_compile=busy)
