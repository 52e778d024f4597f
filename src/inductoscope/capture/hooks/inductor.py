"""Inductor's own boundary: one graph goes in, compiled code comes out."""

from __future__ import annotations

import threading
from typing import Any

from inductoscope.capture.graphs import store_graph
from inductoscope.capture.names import Hook, TorchName, Wrap
from inductoscope.capture.observe import (
    Arguments,
    Keywords,
    current_compile_id,
    enter_stage,
    fail_stage,
    leave_stage,
    watch,
)
from inductoscope.capture.scope import SCOPE

_COMPILE_FX = "torch._inductor.compile_fx"


class _Compiled(threading.local):
    """How many graphs this thread has compiled: tells a cache hit from a compile."""

    count = 0


_compiled = _Compiled()


def _compile_start(args: Arguments, kwargs: Keywords) -> Any:
    module, options = args[1], args[4] if len(args) > 4 else kwargs["graph_kwargs"]
    _compiled.count += 1
    compile_id = current_compile_id()
    graph = SCOPE.new_graph(compile_id, _phase(options))
    SCOPE.emit(
        "inductor-start",
        compile=compile_id,
        graph=graph,
        phase=_phase(options),
        cpp_wrapper=bool(options.get("cpp_wrapper", False)),
        payload=store_graph(module),
    )
    return enter_stage("inductor", graph=graph)


def _phase(options: dict[str, Any]) -> str:
    if options.get("is_backward"):
        return "backward"
    return "inference" if options.get("is_inference") else "forward"


def _compile_end(frame: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    graph = SCOPE.graph
    leave_stage(frame)
    SCOPE.emit("inductor-end", graph=graph, compile=current_compile_id())


def _lookup_start(args: Arguments, kwargs: Keywords) -> int:
    return _compiled.count


def _lookup_end(before: int, result: Any, args: Arguments, kwargs: Keywords) -> None:
    """Nothing was compiled: a cache hit. torch kept the wrapper's text, so the scope does too."""
    source = getattr(result, "source_code", None)
    if source and before == _compiled.count:
        compile_id = current_compile_id()
        phase = _phase(kwargs)
        SCOPE.emit(
            "cached-graph",
            compile=compile_id,
            graph=SCOPE.new_graph(compile_id, phase),
            phase=phase,
            payload=SCOPE.text(source),
        )


GRAPHS = Hook(
    stage="inductor",
    records="graphs that Inductor compiled",
    wraps=(
        Wrap(
            TorchName(_COMPILE_FX, "_InProcessFxCompile.codegen_and_compile"),
            watch(before=_compile_start, after=_compile_end, failed=fail_stage),
        ),
        Wrap(
            TorchName(_COMPILE_FX, "_compile_fx_inner"),
            watch(before=_lookup_start, after=_lookup_end),
        ),
    ),
)
