"""AOTAutograd: the joint graph, its two halves, and the decompositions applied on the way."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from inductoscope.inside.graphs import store_graph
from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    current_compile_id,
    fail_part,
    stage,
    watch,
)
from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import Decomposed, GraphState
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Replacement, Wrap


class _Trace(threading.local):
    """Decompositions applied by the trace under way on this thread."""

    def __init__(self) -> None:
        self.applied: Counter[str] = Counter()


_trace = _Trace()


def _trace_start(args: Arguments, kwargs: Keywords) -> None:
    _trace.applied.clear()


def _traced(graph: str) -> Replacement:
    """Watch a function that traces the user's graph; its first result is the new graph."""

    def after(frame: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        _emit_graph(graph, result[0] if isinstance(result, tuple) else result)
        if _trace.applied:
            counts = dict(_trace.applied)
            SCOPE.emit(Decomposed(compile=current_compile_id(), counts=counts))

    return stage(stages.AOT, before=_trace_start, after=after)


def _handed_over(graph: str) -> Replacement:
    """Watch a function whose first argument is a graph to compile."""
    return watch(before=lambda args, kwargs: _emit_graph(graph, args[0]))


def _emit_graph(name: str, module: Any) -> None:
    SCOPE.emit(GraphState(stage=name, compile=current_compile_id(), payload=store_graph(module)))


GRAPHS = Hook(
    stage=stages.AOT,
    records="joint, forward and backward graphs of AOTAutograd",
    wraps=(
        Wrap(hooked.AOT_DISPATCH_AUTOGRAD_GRAPH, _traced("aot-joint")),
        Wrap(hooked.AOT_DISPATCH_BASE_GRAPH, _traced("aot-inference")),
        Wrap(hooked.AOT_STAGE2B_FW_COMPILE, _handed_over("aot-forward")),
        Wrap(hooked.AOT_STAGE2B_BW_COMPILE, _handed_over("aot-backward")),
    ),
)


def _decomposition_start(args: Arguments, kwargs: Keywords) -> Any:
    operation = str(args[1])
    return SCOPE.enter_part(stages.DECOMPOSITION, operation), operation


def _decomposed(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    """Count an applied decomposition; operations without one return NotImplemented."""
    frame, operation = token
    SCOPE.leave(frame)
    if result is not NotImplemented:
        _trace.applied[operation] += 1


DECOMPOSITIONS = Hook(
    stage=stages.AOT,
    records="decompositions applied",
    wraps=(
        Wrap(
            hooked.MAYBE_HANDLE_DECOMP,
            watch(before=_decomposition_start, after=_decomposed, failed=fail_part),
        ),
    ),
)
