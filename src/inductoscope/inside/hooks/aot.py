"""AOTAutograd: the joint graph, its two halves, and the decompositions applied on the way."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from inductoscope.inside.graphs import store_graph
from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    Watching,
    current_compile_id,
    in_part,
    in_stage,
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


def _traced(graph: str) -> Replacement:
    """Watch a function that traces the user's graph; its first result is the new graph."""

    def observer(args: Arguments, kwargs: Keywords) -> Watching:
        _trace.applied.clear()
        result = yield from in_stage(stages.AOT)
        _emit_graph(graph, result[0] if isinstance(result, tuple) else result)
        if _trace.applied:
            counts = dict(_trace.applied)
            SCOPE.emit(Decomposed(compile=current_compile_id(), counts=counts))

    return watch(observer)


def _handed_over(graph: str) -> Replacement:
    """Watch a function whose first argument is a graph to compile."""
    return watch(lambda args, kwargs: _emit_graph(graph, args[0]))


def _emit_graph(name: str, module: Any) -> None:
    SCOPE.emit(GraphState(stage=name, compile=current_compile_id(), payload=store_graph(module)))


def _decompose(args: Arguments, kwargs: Keywords) -> Watching:
    """Count an applied decomposition; operations without one return NotImplemented."""
    operation = str(args[1])
    result = yield from in_part(stages.DECOMPOSITION, operation)
    if result is not NotImplemented:
        _trace.applied[operation] += 1


HOOKS = (
    Hook(
        stage=stages.AOT,
        records="joint, forward and backward graphs of AOTAutograd",
        wraps=(
            Wrap(hooked.AOT_DISPATCH_AUTOGRAD_GRAPH, _traced("aot-joint")),
            Wrap(hooked.AOT_DISPATCH_BASE_GRAPH, _traced("aot-inference")),
            Wrap(hooked.AOT_STAGE2B_FW_COMPILE, _handed_over("aot-forward")),
            Wrap(hooked.AOT_STAGE2B_BW_COMPILE, _handed_over("aot-backward")),
        ),
    ),
    Hook(
        stage=stages.AOT,
        records="decompositions applied",
        wraps=(Wrap(hooked.MAYBE_HANDLE_DECOMP, watch(_decompose)),),
    ),
)
