"""Compares the decisions of all ranks: who leaves the majority first, and with which decision.

A decision is compared between the ranks that have come that far. Where more than half of them
agree, the others are the odd ones out from there on; what differs later follows from it. Where no
value has a majority, nobody is accused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from inductoscope.analysis.ranks.decision_order import merged_order
from inductoscope.analysis.ranks.decisions import (
    KINDS,
    Decision,
    RankLog,
    RankProgress,
    Weight,
)

_Key = tuple[str, str]
# A rank that has taken a later decision has left this one out.
NONE = "none"


@dataclass(frozen=True)
class Side:
    """The ranks that decided the same, and what."""

    ranks: tuple[int, ...]
    # None where they took no such decision.
    decision: Decision | None

    @property
    def text(self) -> str:
        """What they decided, for people."""
        return self.decision.text if self.decision else NONE


@dataclass(frozen=True)
class OddRanks:
    """Ranks that leave the majority with the same decision."""

    kind: str
    key: str
    odd: Side
    majority: Side
    # Decisions after this one in which these ranks differ as well, by kind.
    later: tuple[tuple[str, int], ...] = ()
    # Most ranks have not decided it so far, and took no later decision either.
    others_may_follow: bool = False

    @property
    def weight(self) -> Weight:
        """What it can lead to."""
        return KINDS[self.kind].weight


@dataclass(frozen=True)
class RankSplit:
    """A decision in which no value has a majority."""

    kind: str
    key: str
    sides: tuple[Side, ...]

    @property
    def weight(self) -> Weight:
        """What it can lead to."""
        return KINDS[self.kind].weight

    @property
    def is_by_rank(self) -> bool:
        """Whether every rank has a value of its own, as with a number that is made of the rank."""
        return len(self.sides) > 2 and all(len(side.ranks) == 1 for side in self.sides)


@dataclass(frozen=True)
class BehindRanks:
    """Ranks that have not come as far as most have."""

    ranks: tuple[int, ...]
    # The first decision that they have not taken.
    kind: str
    key: str
    inside_a_compile: bool


@dataclass(frozen=True)
class RankComparison:
    """Who differs, and where."""

    ranks: int
    decisions: int
    odd: tuple[OddRanks, ...] = ()
    splits: tuple[RankSplit, ...] = ()
    behind: tuple[BehindRanks, ...] = ()


@dataclass
class _Position:
    """One decision, and what each rank has for it."""

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

    def side(self, value: str) -> Side:
        return Side(tuple(sorted(self.values[value])), self.taken.get(value))


def compare_ranks(logs: Sequence[RankLog], ignored: Collection[str] = ()) -> RankComparison:
    """Compare ranks that were read from the same form of log; not these kinds of decisions."""
    order = merged_order([[(d.kind, d.key) for d in log.decisions] for log in logs])
    positions = [p for p in _positions(logs, order) if p.voters > 1 and p.key[0] not in ignored]
    return RankComparison(
        ranks=len(logs),
        decisions=len(positions),
        odd=tuple(_odd(positions)),
        splits=tuple(_splits(positions)),
        behind=tuple(_behind(positions, {log.rank: log for log in logs})),
    )


# --- who has what ---------------------------------------------------------------------------------


def _positions(logs: Sequence[RankLog], order: list[_Key]) -> list[_Position]:
    place = {key: number for number, key in enumerate(order)}
    positions = [_Position(key) for key in order]
    groups = _groups(logs)
    everybody = {log.rank for log in logs}
    # What a compile writes depends on whether it is in the cache, backward graphs above all.
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
    """The ranks that a decision is for, where it is not for all of them."""
    found: dict[_Key, set[int]] = {}
    for log in logs:
        for decision in log.decisions:
            if decision.among:
                found.setdefault((decision.kind, decision.key), set()).update(decision.among)
    return found


def _take_absence(position: _Position, log: RankLog, is_last: bool, hits: set[str]) -> None:
    """A rank has no such decision: it left it out, has not come to it, or nothing is known."""
    kind, key = position.key
    if KINDS[kind].skipped_on_hit and key.partition(" ")[0] in hits:
        return
    if not is_last or log.progress is RankProgress.ENDED:
        position.values[""].append(log.rank)
        return
    position.behind.append(log.rank)
    if log.progress is RankProgress.AT_REST:
        position.values[""].append(log.rank)


# --- the odd ones out -----------------------------------------------------------------------------


def _odd(positions: list[_Position]) -> Iterator[OddRanks]:
    """For each rank the first decision of each weight with which it leaves the majority."""
    first: dict[tuple[int, Weight], _Position] = {}
    place: dict[int, int] = {}
    later: dict[tuple[int, Weight], Counter[str]] = defaultdict(Counter)
    for number, position in enumerate(positions):
        weight = KINDS[position.key[0]].weight
        for rank in _minority(position):
            is_consequence = weight is Weight.COST and (rank, Weight.PROGRAM) in first
            if (rank, weight) in first or is_consequence:
                cause = weight if (rank, weight) in first else Weight.PROGRAM
                later[rank, cause][position.key[0]] += 1
            else:
                first[rank, weight] = position
                place[id(position)] = number
    together: dict[tuple[int, str], list[int]] = defaultdict(list)
    by_id = {id(position): position for position in first.values()}
    for (rank, _), position in first.items():
        value = next(v for v, ranks in position.values.items() if rank in ranks)
        together[id(position), value].append(rank)
    for (number, value), ranks in sorted(together.items(), key=lambda item: place[item[0][0]]):
        position = by_id[number]
        yield _odd_ranks(position, value, ranks, later)


def _odd_ranks(
    position: _Position,
    value: str,
    ranks: list[int],
    later: dict[tuple[int, Weight], Counter[str]],
) -> OddRanks:
    majority = position.majority()
    assert majority is not None
    kind, key = position.key
    follows: Counter[str] = Counter()
    for rank in ranks:
        follows |= later[rank, KINDS[kind].weight]
    odd, most = Side(tuple(sorted(ranks)), position.taken.get(value)), position.side(majority)
    may_follow = not majority and set(most.ranks) <= set(position.behind)
    return OddRanks(kind, key, odd, most, tuple(sorted(follows.items())), may_follow)


def _minority(position: _Position) -> Iterator[int]:
    """The ranks that have another value than the majority, and are not merely behind."""
    if len(position.values) < 2:
        return
    majority = position.majority()
    if majority is None:
        return
    behind = set(position.behind)
    for value, ranks in position.values.items():
        if value != majority:
            yield from (rank for rank in ranks if value or rank not in behind)


# --- no majority ----------------------------------------------------------------------------------


def _splits(positions: list[_Position]) -> Iterator[RankSplit]:
    """The first decision of each weight without a majority."""
    seen: set[Weight] = set()
    for position in positions:
        kind, key = position.key
        weight = KINDS[kind].weight
        if weight in seen or len(position.values) < 2 or position.majority() is not None:
            continue
        if weight is Weight.COST and Weight.PROGRAM in seen:
            continue
        if set(position.values.get("", ())) & set(position.behind):
            continue  # Half of them have not come to it.
        sides = sorted((position.side(v) for v in position.values), key=lambda s: -len(s.ranks))
        split = RankSplit(kind, key, tuple(sides))
        if kind == "cache key" or (weight is Weight.COST and split.is_by_rank):
            continue  # The number of the device is part of them.
        seen.add(weight)
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
