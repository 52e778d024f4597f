"""FX passes before, on and after the joint graph: each pass that changed the graph.

torch runs its passes under `GraphTransformObserver`, which is watched here. Changes between two
observed passes are recorded too, under a name that says so. Changes are detected by comparing
references, which costs next to nothing; the graph is printed only if it changed.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from inductoscope.inside.graphs import store_graph
from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    Watching,
    current_compile_id,
    enter_stage,
    fail_stage,
    leave_stage,
    watch,
)
from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import GraphState, PassChange, PassesTimed
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Replacement, Wrap

BETWEEN = "(between named passes)"

_SUBSYSTEMS = {
    "pre_grad_passes": stages.PRE_GRAD_PASS,
    "joint_graph_passes": stages.JOINT_PASS,
    "post_grad_passes": stages.POST_GRAD_PASS,
}

# The parts of a graph, by reference: equal lists mean an unchanged graph.
Fingerprint = list[tuple[Any, Any, Any, Any]]


@dataclass
class _Known:
    fingerprint: Fingerprint
    digest: str


@dataclass
class _Running:
    before: Fingerprint
    frame: Any
    started: float
    inner_seconds: float = 0.0


@dataclass
class _Spent:
    """The time of all runs of one pass in its group so far."""

    seconds: float = 0.0
    own_seconds: float = 0.0
    runs: int = 0


class _State(threading.local):
    def __init__(self) -> None:
        self.known: dict[int, _Known] = {}
        self.running: list[tuple[Any, _Running | None]] = []
        self.spent: dict[str, _Spent] = {}


_state = _State()


def _graph_of(module: Any) -> Any:
    return getattr(module, "graph", module)


def _fingerprint(graph: Any) -> Fingerprint:
    return [(node, node.target, node.args, node.kwargs) for node in graph.nodes]


def _same(one: Fingerprint, other: Fingerprint) -> bool:
    # Compared by identity: comparing arguments by value could add guards on symbolic sizes.
    return len(one) == len(other) and all(
        a[0] is b[0] and a[1] is b[1] and a[2] is b[2] and a[3] is b[3]
        for a, b in zip(one, other, strict=True)
    )


def _digest_before(graph: Any, stage: str, fingerprint: Fingerprint) -> str:
    """Return the digest of the graph's printed state before a pass."""
    known = _state.known.get(id(graph))
    if known is not None and _same(known.fingerprint, fingerprint):
        return known.digest
    digest = store_graph(graph, code=False)
    if known is not None and digest != known.digest:
        _emit(stage, BETWEEN, known.digest, digest)
    _state.known[id(graph)] = _Known(fingerprint, digest)
    return digest


def _emit(
    stage: str,
    name: str,
    before: str,
    after: str,
    seconds: float = 0.0,
    inside: tuple[str, ...] = (),
) -> None:
    SCOPE.emit(
        PassChange(
            stage=stage,
            name=name,
            before=before,
            after=after,
            seconds=round(seconds, 6),
            compile=current_compile_id(),
            graph=SCOPE.graph,
            inside=inside,
        )
    )


# --- one pass -------------------------------------------------------------------------------------


def _enter_pass(args: Arguments, kwargs: Keywords) -> None:
    observer = args[0]
    _state.running.append((observer, None))
    graph = _graph_of(observer.gm)
    fingerprint = _fingerprint(graph)
    stage = _stage_of(observer)
    frame = SCOPE.enter_part(stage, str(observer.passname))
    _state.running[-1] = (observer, _Running(fingerprint, frame, time.perf_counter()))
    _digest_before(graph, stage, fingerprint)


def _stage_of(observer: Any) -> str:
    return _SUBSYSTEMS.get(str(observer.subsystem), SCOPE.stage)


def _exit_pass(args: Arguments, kwargs: Keywords) -> None:
    """End a pass as its observer exits, normally or with an exception in args[2]."""
    observer = args[0]
    while _state.running:
        entered, running = _state.running.pop()
        if entered is observer:
            break
    else:
        return
    if running is None:
        return
    error = args[2] if len(args) > 2 else None
    failed = isinstance(error, BaseException)
    if isinstance(error, BaseException):
        SCOPE.note_failure(error, running.frame)
    seconds = time.perf_counter() - running.started
    SCOPE.leave(running.frame, failed=failed)
    _add_up(str(observer.passname), running, seconds)
    _record_change(observer, running, seconds)


def _add_up(name: str, running: _Running, seconds: float) -> None:
    spent = _state.spent.setdefault(name, _Spent())
    spent.seconds += seconds
    spent.own_seconds += seconds - running.inner_seconds
    spent.runs += 1
    around = next((outer for _, outer in reversed(_state.running) if outer is not None), None)
    if around is not None:
        around.inner_seconds += seconds


def _record_change(observer: Any, running: _Running, seconds: float) -> None:
    graph = _graph_of(observer.gm)
    now = _fingerprint(graph)
    if _same(running.before, now):
        return
    known = _state.known.get(id(graph))
    if known is None:
        return
    if _same(known.fingerprint, now):
        return  # A nested pass made the change, and was recorded.
    digest = store_graph(graph, code=False)
    if digest != known.digest:
        outer = [str(entered.passname) for entered, _ in _state.running]
        _emit(
            running.frame.stage,
            str(observer.passname),
            known.digest,
            digest,
            seconds,
            inside=tuple(outer),
        )
    _state.known[id(graph)] = _Known(now, digest)


# --- the three groups of passes -------------------------------------------------------------------


def _group(stage: str) -> Replacement:
    """Watch a function that runs all passes of one group over its first argument."""

    def observer(args: Arguments, kwargs: Keywords) -> Watching:
        if SCOPE.stage == stage:
            try:
                yield  # A subgraph belongs to the same group.
            except BaseException:
                _state.known.clear()
            return
        _state.known.clear()
        _state.spent.clear()
        frame = enter_stage(stage)
        graph = _graph_of(args[0])
        SCOPE.guard(_digest_before, graph, stage, _fingerprint(graph))
        try:
            result = yield
        except BaseException as error:
            SCOPE.guard(_record_seconds, stage)
            _state.known.clear()
            fail_stage(frame, error)
            raise
        SCOPE.guard(_record_result, stage, graph, _graph_of(args[0] if result is None else result))
        SCOPE.guard(_record_seconds, stage)
        _state.known.clear()
        leave_stage(frame)

    return watch(observer)


def _record_seconds(stage: str) -> None:
    """Record the time of each pass, whether it changed anything or not."""
    spent, _state.spent = _state.spent, {}
    if spent:
        SCOPE.emit(
            PassesTimed(
                stage=stage,
                compile=current_compile_id(),
                graph=SCOPE.graph,
                passes=tuple(
                    {
                        "name": name,
                        "seconds": round(each.seconds, 6),
                        "own": round(each.own_seconds, 6),
                        "runs": each.runs,
                    }
                    for name, each in spent.items()
                ),
            )
        )


def _record_result(stage: str, before: Any, after: Any) -> None:
    """Record the resulting graph, and any change after the last named pass."""
    known = _state.known.get(id(after)) or _state.known.get(id(before))
    if known is not None and not _same(known.fingerprint, _fingerprint(after)):
        digest = store_graph(after, code=False)
        if digest != known.digest:
            _emit(stage, BETWEEN, known.digest, digest)
    SCOPE.emit(
        GraphState(
            stage=stage.removesuffix("-pass"),
            compile=current_compile_id(),
            graph=SCOPE.graph,
            payload=store_graph(after),
        )
    )


HOOKS = (
    Hook(
        stage="passes",
        records="FX passes that changed the graph",
        wraps=(
            Wrap(hooked.ENTER, watch(_enter_pass)),
            Wrap(hooked.EXIT, watch(_exit_pass)),
        ),
    ),
    Hook(
        stage="passes",
        records="the graph after the pre-grad, joint and post-grad passes",
        wraps=(
            Wrap(hooked.RUN_PRE_GRAD_PASSES, _group(stages.PRE_GRAD_PASS)),
            Wrap(hooked.RECURSIVE_JOINT_GRAPH_PASSES, _group(stages.JOINT_PASS)),
            Wrap(hooked.RECURSIVE_POST_GRAD_PASSES, _group(stages.POST_GRAD_PASS)),
        ),
    ),
)
