"""Fusion: every pair that was considered, in every round, and the decision on it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from inductoscope.inside.observe import Arguments, Keywords, Watching, in_part, watch
from inductoscope.inside.scope import BROKEN, SCOPE
from inductoscope.recording.events import Fusion, FusionPair, FusionRound
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.fusion_reasons import FUSION_SETTINGS
from inductoscope.torch_facts.torch_names import Hook, Replacement, Wrap

# torch runs eleven rounds at most. An endless loop must not fill the disk: after this many rounds,
# pairs are no longer recorded, and rounds only when their number doubles.
_MOST_ROUNDS = 64


@dataclass
class _Question:
    """A pair that the scheduler is considering, and the facts about it so far."""

    first: str
    second: str
    reasons: list[str] = field(default_factory=list)
    # Bytes that the two nodes share, by torch's count.
    shared: int | None = None
    # The facts that a backend checked before it refused without a reason.
    decided: dict[str, Any] | None = None

    def is_about(self, first: str, second: str) -> bool:
        return {self.first, self.second} == {first, second}


class _Ledger(threading.local):
    """The state of the fusion loop of the graph being scheduled on this thread."""

    def __init__(self) -> None:
        self.graph = ""
        self.round = 0
        # A round first collects all candidates, then tries them, the best one first.
        self.trying = False
        # A stack, innermost last: decisions on some pairs query those on their parts.
        self.asked: list[_Question] = []
        self.scores: dict[tuple[str, str], dict[str, Any]] = {}

    def begin_round(self) -> None:
        if self.graph != SCOPE.graph:
            self.graph, self.round = SCOPE.graph, 0
        self.round += 1
        self.trying = False
        self.scores.clear()

    def question(self, first: str, second: str) -> _Question | None:
        return next((q for q in reversed(self.asked) if q.is_about(first, second)), None)


_ledger = _Ledger()


# --- rounds ---------------------------------------------------------------------------------------


def _fuse_once(args: Arguments, kwargs: Keywords) -> Watching:
    nodes = args[1] if len(args) > 1 else kwargs["nodes"]
    count, started = len(nodes), time.perf_counter()
    _ledger.begin_round()
    result = yield from in_part(stages.SCHEDULER, f"fusion round {_ledger.round}")
    _ledger.trying = False
    if _ledger.round > _MOST_ROUNDS and _ledger.round & (_ledger.round - 1):
        return
    found = SCOPE.guard(_settings, result) if _ledger.round == 1 else {}
    SCOPE.emit(
        FusionRound(
            graph=SCOPE.graph,
            round=_ledger.round,
            before=count,
            after=len(result),
            seconds=round(time.perf_counter() - started, 6),
            settings={} if found is BROKEN else found,
        )
    )


def _settings(nodes: Any) -> dict[str, Any]:
    from torch._inductor import config

    found: dict[str, Any] = {"devices": _device_names(nodes)}
    for name in FUSION_SETTINGS:
        part, _, last = name.rpartition(".")
        value = getattr(getattr(config, part, None) if part else config, last, None)
        if isinstance(value, (bool, int, float)):
            found[name] = value
    return found


def _device_names(nodes: Any) -> dict[str, str]:
    """Return the models of the GPUs in use, which determine memory bandwidth."""
    import torch

    devices = {device for node in nodes if (device := node.get_device()) is not None}
    return {
        str(device): str(torch.cuda.get_device_name(device))
        for device in devices
        if device.type == "cuda"
    }


def _found_candidates(args: Arguments, kwargs: Keywords) -> Watching:
    yield
    _ledger.trying = True


# --- pairs ----------------------------------------------------------------------------------------


def _can_fuse(args: Arguments, kwargs: Keywords) -> Watching:
    _, first, second = args[:3]
    question = _Question(first.get_name(), second.get_name())
    _ledger.asked.append(question)
    try:
        result = yield
    finally:
        _ledger.asked.pop()
    # Two nodes that have been fused while the pair was queued are the same node.
    if first is not second:
        _emit_pair(
            question.first,
            question.second,
            type=_kind(first, second),
            possible=bool(result),
            shared=question.shared,
            reasons=() if result else tuple(question.reasons),
            decided={} if result or question.reasons else question.decided or {},
        )


def _refused(args: Arguments, kwargs: Keywords) -> Watching:
    yield
    why, reason, *values = args
    text = reason % tuple(values) if values else reason
    question = _ledger.question(why.name1, why.name2)
    if question is not None:
        question.reasons.append(text)
        return
    # Refused outside of can_fuse (for a cycle or lack of benefit), or part of a group.
    _emit_pair(why.name1, why.name2, reasons=(text,))


def _emit_pair(first: str, second: str, *, possible: bool = False, **facts: Any) -> None:
    if _ledger.round > _MOST_ROUNDS:
        return
    outer = _ledger.asked[-1] if _ledger.asked else None
    SCOPE.emit(
        FusionPair(
            graph=SCOPE.graph,
            round=_ledger.round,
            step="attempt" if _ledger.trying else "",
            first=first,
            second=second,
            within=(outer.first, outer.second) if outer else (),
            possible=possible,
            **facts,
        )
    )


def _speed_judged(args: Arguments, kwargs: Keywords) -> Watching:
    """Record pairs that are not fused at once: slower, or awaiting a benchmark."""
    result = yield
    waits = callable(result) or callable(getattr(result, "callable_fn", None))
    if waits or not getattr(result, "should_fuse", result):
        gate = "benchmark" if waits else "speedup_by_fusion"
        _emit_pair(args[1].get_name(), args[2].get_name(), decided={"gate": gate})


def _fuse(args: Arguments, kwargs: Keywords) -> Watching:
    # Determined before fusing, which may change the two nodes.
    names = args[1].get_name(), args[2].get_name()
    kind = _kind(args[1], args[2])
    result = yield
    score = _ledger.scores.get(names) or _ledger.scores.get((names[1], names[0])) or {}
    SCOPE.emit(
        Fusion(
            graph=SCOPE.graph,
            round=_ledger.round,
            first=names[0],
            second=names[1],
            result=result.get_name(),
            type=kind,
            score=score,
            bytes_saved=score.get("memory_score"),
        )
    )


def _kind(first: Any, second: Any) -> str:
    if first.is_template():
        return "template epilogue"
    if second.is_template():
        return "template prologue"
    depends = bool(first.get_operation_names() & second.ancestors)
    direction = "vertical" if depends else "horizontal"
    if first.is_reduction() or second.is_reduction():
        return f"{direction} reduction"
    return direction


# --- decisions for which torch gives no reason ----------------------------------------------------


def _shared_data(args: Arguments, kwargs: Keywords) -> Watching:
    yield
    # Methods and functions alike end with the scheduler, two nodes and the shared bytes.
    _, first, second, shared = args[-4:]
    question = _ledger.question(first.get_name(), second.get_name())
    if question is not None and isinstance(shared, int):
        question.shared = shared


def _judged_by(gate: str) -> Replacement:
    def observer(args: Arguments, kwargs: Keywords) -> Watching:
        if (yield):
            return
        nodes = args[1:3]
        question = _ledger.question(nodes[0].get_name(), nodes[1].get_name())
        if question is not None:
            question.decided = {
                "gate": gate,
                "sizes": [str(node.group[1]) if hasattr(node, "group") else "" for node in nodes],
                "members": [len(node.get_nodes()) for node in nodes],
                "reduction": [bool(node.is_reduction()) for node in nodes],
                "template": [bool(node.is_template()) for node in nodes],
                "class": [type(node).__name__ for node in nodes],
            }

    return watch(observer)


# --- scores ---------------------------------------------------------------------------------------


def _scored(args: Arguments, kwargs: Keywords) -> Watching:
    result = yield
    _, first, second = args[-3:]
    parts = vars(result) if hasattr(result, "__dict__") else {"score": str(result)}
    _ledger.scores[first.get_name(), second.get_name()] = {
        name: value if isinstance(value, (int, float)) else str(value)
        for name, value in parts.items()
    }


HOOKS = (
    Hook(
        stage="fusion",
        records="fusion rounds",
        wraps=(
            Wrap(hooked.FUSE_NODES_ONCE, watch(_fuse_once)),
            Wrap(hooked.GET_POSSIBLE_FUSIONS, watch(_found_candidates)),
        ),
    ),
    Hook(
        stage="fusion",
        records="pairs considered for fusion: fused, or refused with torch's reason",
        wraps=(
            Wrap(hooked.SCHEDULER_CAN_FUSE, watch(_can_fuse)),
            Wrap(hooked.WHY_NO_FUSE_CALL, watch(_refused)),
            Wrap(hooked.FUSE_TWO_NODES, watch(_fuse)),
            Wrap(hooked.SPEEDUP_BY_FUSION, watch(_speed_judged)),
        ),
    ),
    Hook(
        stage="fusion",
        records="scores of possible fusions, and what decided where torch gives no reason",
        wraps=(
            Wrap(hooked.SCORE_FUSION, watch(_scored)),
            Wrap(hooked.INDUCTOR_CHOICES_CAN_FUSE, watch(_shared_data)),
            *(Wrap(name, _judged_by(name.attribute)) for name in hooked.CPP_CAN_FUSE.values()),
        ),
    ),
)
