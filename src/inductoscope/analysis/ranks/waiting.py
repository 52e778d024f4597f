"""Whether ranks that differ in their collectives will wait for each other forever.

They will if, in one process group that both belong to, both come to the same turn with different
collectives. A graph alone shows that only where both compiled it for the same call: the same
function, again for the same reason. Everything else is a difference and no more. A rank may compile
once more for a last short batch, a stage of a pipeline has its own graph, and behind a graph break
the rest of the collectives is in another graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from inductoscope.analysis.ranks.decisions import Decision, RankLog, RankProgress

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
    """What a rank sends, and what tells whether another rank's graph is for the same call."""

    # None if it has no such graph.
    sent: tuple[tuple[str, str], ...] | None
    function: str
    reason: str
    lookups: tuple[str, ...]


class RankWaits:
    """Says of two sides why it is not proven that they will wait for each other."""

    def __init__(self, logs: Sequence[RankLog]) -> None:
        self._taken = {log.rank: {(d.kind, d.key): d for d in log.decisions} for log in logs}
        self.all_ended = all(log.progress is RankProgress.ENDED for log in logs)
        # False where what was called tells enough, so that no graph needs to be looked at.
        self.graphs_tell = True

    def why_unproven(
        self, key: tuple[str, str], ranks: Collection[int], others: Collection[int]
    ) -> str:
        """Empty if two ranks, one of each side, will wait for each other."""
        if key[0] == "collective":
            calls = (self._taken[rank].get(key) for rank in (*ranks, *others))
            return "" if any(call.among for call in calls if call) else UNKNOWN_GROUP
        if not self.graphs_tell:
            return ALL_ENDED
        reasons = {
            _why_unproven(key[1], one, other)
            for one in self._stands(key, ranks)
            for other in self._stands(key, others)
        }
        # Of several reasons, the one that comes closest.
        return next((reason for reason in _CLOSEST_FIRST if reason in reasons), NOT_COMPILED)

    def _stands(self, key: tuple[str, str], ranks: Iterable[int]) -> set[_Stand]:
        """Most ranks have the same."""
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


def _why_unproven(key: str, one: _Stand, other: _Stand) -> str:
    if one.sent is None or other.sent is None:
        return NOT_COMPILED
    is_recompile = not key.partition(" ")[0].endswith("/0")
    is_known = one.function and (one.reason or not is_recompile)
    if one[1:] != other[1:] or not is_known:
        return OTHER_CALL
    mine, theirs = dict(one.sent), dict(other.sent)
    if not mine or not theirs:
        # No collective at all, or one whose group a log does not tell.
        return UNKNOWN_GROUP if mine == theirs else REST_ELSEWHERE
    shared = mine.keys() & theirs.keys()
    if not shared:
        return OTHER_GROUPS
    return "" if any(_clash(mine[name], theirs[name]) for name in shared) else REST_ELSEWHERE


def _clash(one: str, other: str) -> bool:
    """Whether two orders differ at a turn that both have."""
    return any(a != b for a, b in zip(one.split(), other.split(), strict=False))
