"""Inductor's entry point: takes one graph and returns compiled code."""

from __future__ import annotations

import re
from typing import Any

from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    OverheardLogger,
    Watching,
    current_compile_id,
    enter_stage,
    until_left,
    watch,
)
from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import (
    CudaGraphsSkipped,
    GraphFromCache,
    InductorEnd,
    InductorStart,
    WrapperLoaded,
)
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

# The first line of a wrapper names the graph that it was generated from.
_PHASE_IN_WRAPPER = re.compile(r"^# AOT ID: \['\d+_(forward|backward|inference)'\]", re.MULTILINE)


# Wrappers generated in this process and not used yet; other wrappers come from a cache.
written_wrappers: set[str] = set()


def _compile(args: Arguments, kwargs: Keywords) -> Watching:
    options = args[4] if len(args) > 4 else kwargs["graph_kwargs"]
    compile_id = current_compile_id()
    graph = SCOPE.new_graph(compile_id, _phase(options))
    SCOPE.emit(
        InductorStart(
            compile=compile_id,
            graph=graph,
            phase=_phase(options),
            cpp_wrapper=bool(options.get("cpp_wrapper", False)),
        )
    )
    yield from until_left(enter_stage(stages.INDUCTOR, graph=graph))
    SCOPE.emit(InductorEnd(graph=graph, compile=current_compile_id()))


def _phase(options: dict[str, Any]) -> str:
    if options.get("is_backward"):
        return "backward"
    return "inference" if options.get("is_inference") else "forward"


def _ready(args: Arguments, kwargs: Keywords) -> None:
    """Record compiled code before its first use, freshly compiled or from a cache.

    On a cache hit nothing is lowered or generated, but torch has kept the wrapper's text.
    """
    source = getattr(args[0], "source_code", None)
    options = args[3] if len(args) > 3 else kwargs.get("graph_kwargs") or {}
    if not source:
        return
    digest = SCOPE.text(source)
    if digest in written_wrappers:
        written_wrappers.discard(digest)
        return
    compile_id, phase = current_compile_id(), phase_of_wrapper(source) or _phase(options)
    graph = SCOPE.new_graph(compile_id, phase)
    SCOPE.emit(GraphFromCache(compile=compile_id, graph=graph, phase=phase, payload=digest))
    path = _file_of(getattr(args[0], "current_callable", None))
    if path:
        SCOPE.emit(WrapperLoaded(graph=graph, path=path))


def phase_of_wrapper(source: str) -> str:
    """Return a wrapper's phase: forward, backward or inference; empty if unknown."""
    named = _PHASE_IN_WRAPPER.search(source)
    return named[1] if named else ""


def _file_of(function: Any) -> str:
    """Return the file of a function or method; empty if there is none."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return str(getattr(code, "co_filename", ""))


# --- CUDA graphs: reasons for skipping them where they were requested -----------------------------

_LONGEST = 2000
# A warning of the same logger about frequent re-recording, which is not a skip.
_NO_SKIP = "CUDAGraph supports dynamic shapes"


def _say(message: Any, args: tuple[Any, ...]) -> None:
    text = str(message) % args if args else str(message)
    if text.startswith(_NO_SKIP):
        return
    SCOPE.emit(
        CudaGraphsSkipped(compile=current_compile_id(), graph=SCOPE.graph, reason=text[:_LONGEST])
    )


HOOKS = (
    Hook(
        stage=stages.INDUCTOR,
        records="graphs that Inductor compiled",
        wraps=(Wrap(hooked.CODEGEN_AND_COMPILE, watch(_compile)),),
    ),
    Hook(
        stage=stages.INDUCTOR,
        records="graphs that came from a cache",
        wraps=(Wrap(hooked.POST_COMPILE, watch(_ready)),),
    ),
    Hook(
        stage=stages.RUNTIME,
        records="why graphs run without the CUDA graphs that were asked for",
        wraps=(
            Wrap(hooked.CUDAGRAPHS_LOG, lambda logger: OverheardLogger(logger, ("warning",), _say)),
        ),
    ),
)
