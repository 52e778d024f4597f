"""Fusion: every pair that was considered, in every round, and what became of it."""

from __future__ import annotations

import threading
import time
from typing import Any

from inductoscope.capture.names import Hook, TorchName, Wrap
from inductoscope.capture.observe import Arguments, Keywords, watch
from inductoscope.capture.scope import SCOPE

_SCHEDULER = "torch._inductor.scheduler"


# torch runs eleven rounds at most. A loop that never ends must not fill the disk: from here on
# pairs are no longer recorded, and rounds only when their number doubles.
_MOST_ROUNDS = 64


class _Ledger(threading.local):
    """The state of the fusion loop of the graph being scheduled on this thread."""

    def __init__(self) -> None:
        self.graph: str | None = None
        self.round = 0
        # Pairs being asked about, innermost last, with the reasons that torch has given so far.
        self.asked: list[tuple[str, str, list[str]]] = []
        self.scores: dict[tuple[str, str], dict[str, Any]] = {}

    def begin_round(self) -> None:
        if self.graph != SCOPE.graph:
            self.graph, self.round = SCOPE.graph, 0
        self.round += 1
        self.scores.clear()


_ledger = _Ledger()


# --- rounds ---------------------------------------------------------------------------------------


def _round_start(args: Arguments, kwargs: Keywords) -> Any:
    nodes = args[1] if len(args) > 1 else kwargs["nodes"]
    _ledger.begin_round()
    return (
        SCOPE.enter_part("scheduler", f"fusion round {_ledger.round}"),
        len(nodes),
        time.perf_counter(),
    )


def _round_end(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    frame, count, started = token
    SCOPE.leave(frame)
    if _ledger.round > _MOST_ROUNDS and _ledger.round & (_ledger.round - 1):
        return
    SCOPE.emit(
        "fusion-round",
        graph=SCOPE.graph,
        round=_ledger.round,
        before=count,
        after=len(result),
        seconds=round(time.perf_counter() - started, 6),
    )


def _round_failed(token: Any, error: BaseException) -> None:
    SCOPE.note_failure(error, token[0])
    SCOPE.leave(token[0], failed=True)


ROUNDS = Hook(
    stage="fusion",
    records="fusion rounds",
    wraps=(
        Wrap(
            TorchName(_SCHEDULER, "Scheduler.fuse_nodes_once"),
            watch(before=_round_start, after=_round_end, failed=_round_failed),
        ),
    ),
)


# --- pairs ----------------------------------------------------------------------------------------


def _asked(args: Arguments, kwargs: Keywords) -> list[str]:
    reasons: list[str] = []
    _ledger.asked.append((args[1].get_name(), args[2].get_name(), reasons))
    return reasons


def _answered(reasons: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    _ledger.asked.pop()
    if _ledger.round > _MOST_ROUNDS:
        return
    _, first, second = args[:3]
    SCOPE.emit(
        "fusion-pair",
        graph=SCOPE.graph,
        round=_ledger.round,
        first=first.get_name(),
        second=second.get_name(),
        type=_kind(first, second),
        possible=bool(result),
        reasons=None if result else reasons,
    )


def _asking_failed(reasons: Any, error: BaseException) -> None:
    _ledger.asked.pop()


def _refused(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    why, reason, *values = args
    text = reason % tuple(values) if values else reason
    for first, second, reasons in reversed(_ledger.asked):
        if {first, second} == {why.name1, why.name2}:
            reasons.append(text)
            return
    if _ledger.round > _MOST_ROUNDS:
        return
    # Refused outside of can_fuse (it would make a cycle, or not pay off), or part of a group.
    SCOPE.emit(
        "fusion-pair",
        graph=SCOPE.graph,
        round=_ledger.round,
        first=why.name1,
        second=why.name2,
        possible=False,
        reasons=[text],
    )


def _fused(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    names = (token[0], token[1])
    score = _ledger.scores.get(names) or _ledger.scores.get((names[1], names[0])) or {}
    SCOPE.emit(
        "fused",
        graph=SCOPE.graph,
        round=_ledger.round,
        first=names[0],
        second=names[1],
        result=result.get_name(),
        type=token[2],
        score=score or None,
        bytes_saved=score.get("memory_score"),
    )


def _fusing(args: Arguments, kwargs: Keywords) -> tuple[str, str, str]:
    # Asked before, because fusing may change what the two nodes are.
    _, first, second = args[:3]
    return first.get_name(), second.get_name(), _kind(first, second)


def _kind(first: Any, second: Any) -> str:
    """Which sort of fusion a pair is."""
    if first.is_template():
        return "template epilogue"
    if second.is_template():
        return "template prologue"
    depends = bool(first.get_operation_names() & second.ancestors)
    direction = "vertical" if depends else "horizontal"
    if first.is_reduction() or second.is_reduction():
        return f"{direction} reduction"
    return direction


PAIRS = Hook(
    stage="fusion",
    records="pairs considered for fusion: fused, or refused with torch's reason",
    wraps=(
        Wrap(
            TorchName(_SCHEDULER, "Scheduler.can_fuse"),
            watch(before=_asked, after=_answered, failed=_asking_failed),
        ),
        Wrap(TorchName(_SCHEDULER, "WhyNoFuse.__call__"), watch(after=_refused)),
        Wrap(
            TorchName(_SCHEDULER, "Scheduler.fuse_two_nodes"), watch(before=_fusing, after=_fused)
        ),
    ),
)


# --- scores ---------------------------------------------------------------------------------------


def _scored(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    _, first, second = args[-3:]
    parts = vars(result) if hasattr(result, "__dict__") else {"score": str(result)}
    _ledger.scores[first.get_name(), second.get_name()] = {
        name: value if isinstance(value, (int, float)) else str(value)
        for name, value in parts.items()
    }


SCORES = Hook(
    stage="fusion",
    records="scores of possible fusions",
    wraps=(
        Wrap(
            TorchName("torch._inductor.choices", "InductorChoices.score_fusion"),
            watch(after=_scored),
        ),
    ),
)
