"""What was selected of a recording: a stage, a kernel, an operation or a source line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from inductoscope.errors import UsageError
from inductoscope.model.entities import Compile, Recording
from inductoscope.model.fx import FxNode
from inductoscope.model.join import captured_graph
from inductoscope.model.trace import Selector, by_operation, by_source, trace
from inductoscope.views.explain import one_line
from inductoscope.views.report import frame_stages, graph_stages, inductor_stages
from inductoscope.views.report.alike import alike
from inductoscope.views.report.operation import operation_view, print_operation
from inductoscope.views.report.sections import Section, sections_view
from inductoscope.views.report.terminal import Printer
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.stages import SHOWN

View = dict[str, Any]
Build = Callable[[Recording, Iterable[Compile]], Iterator[Section]]

STAGE_VIEWS: dict[str, Build] = {
    stages.DYNAMO: graph_stages.dynamo,
    "breaks": frame_stages.breaks,
    "guards": frame_stages.guards,
    "recompiles": frame_stages.recompiles,
    stages.AOT: graph_stages.aot,
    "passes": graph_stages.passes,
    "ir": inductor_stages.ir,
    stages.SCHEDULER: inductor_stages.scheduler,
    "fusion": inductor_stages.fusion,
    stages.LOOP_BODY: inductor_stages.loop_body,
    "kernel": inductor_stages.kernel,
    "memory": inductor_stages.memory,
    stages.WRAPPER: inductor_stages.wrapper,
    "native": inductor_stages.native,
    stages.AUTOTUNE: inductor_stages.autotune,
    "cache": frame_stages.cache,
    "errors": frame_stages.errors,
}
assert tuple(STAGE_VIEWS) == SHOWN


# --- one stage ------------------------------------------------------------------------------------


def stage_view(recording: Recording, stage: str) -> View:
    """One stage in full."""
    sections = list(STAGE_VIEWS[stage](recording, recording.compiles))
    return {
        "explanation": one_line(stage),
        **sections_view(stage, sections, empty=_why_empty(recording, stage)),
    }


def _why_empty(recording: Recording, stage: str) -> str:
    if not recording.compiles:
        return "Nothing was compiled in this recording."
    hits = any(c.outcome == "hit" for compile_ in recording.compiles for c in compile_.caches)
    if hits and stage not in ("breaks", "recompiles", "errors", stages.AUTOTUNE):
        return (
            f"Stage {stage} did not run: the graphs came from a cache. "
            "'inductoscope run --fresh SCRIPT' recompiles everything, in a private cache."
        )
    off = [view for process in recording.processes for view in process.views_off]
    if off:
        return f"Nothing was recorded for {stage}. Disabled views: {'; '.join(off)}."
    return f"Nothing happened in stage {stage}."


# --- one kernel -----------------------------------------------------------------------------------


def kernel_view(recording: Recording, name: str, form: str) -> View:
    """The kernels of a name: their sections, or one form of them."""
    every = [(graph, kernel) for graph in recording.graphs for kernel in graph.kernels]
    found = [pair for pair in every if pair[1].name == name] or [
        pair for pair in every if name in pair[1].name
    ]
    if not found:
        known = ", ".join(dict.fromkeys(kernel.name for _, kernel in every))
        raise UsageError(f"There is no kernel {name}. There are: {known or 'none'}.")
    if not form:
        sections = [inductor_stages.kernel_section(recording, *pair) for pair in found]
        return sections_view("kernel", sections, empty="")
    if form == "asm":
        sections = [inductor_stages.assembly_section(recording, *pair) for pair in found]
        return sections_view("kernel", sections, empty="")
    sections = [
        section
        for pair in found
        for section in inductor_stages.kernel_form_sections(recording, *pair, form)
    ]
    empty = f"No {form} of {name} is in the recording: only Triton kernels compiled in it have one."
    return sections_view("kernel", sections, empty=empty)


# --- one operation, or one line -------------------------------------------------------------------


def operations_view(recording: Recording, operation: str, source: str) -> View:
    """An operation, or what is on a source line, through all stages."""
    wanted = operation or source
    select = by_operation(wanted) if operation else by_source(wanted)
    found = list(trace(recording, select))
    if not found:
        raise UsageError(_not_found(recording, wanted, select))
    operations = [operation_view(item) for item in found]
    return {"selected": wanted, "operations": operations, "alike": alike(operations)}


def _not_found(recording: Recording, wanted: str, select: Selector) -> str:
    """Why nothing of it can be shown: it went no further, or Dynamo never took it."""
    names: dict[str, None] = {}
    for compile_ in recording.compiles:
        graph = captured_graph(recording, compile_)
        calls = graph.calls if graph else ()
        chosen = next((node for node in calls if select(node)), None)
        if chosen is not None:
            return _went_no_further(recording, compile_, wanted, chosen)
        names.update(dict.fromkeys(node.operation for node in calls))
    if not any(graph.lowered for graph in recording.graphs):
        return f"{wanted} cannot be followed: {_why_empty(recording, 'ir')}"
    return (
        f"Nothing in the compiled graphs matches {wanted}. "
        f"Operations that Dynamo took: {', '.join(names) or 'none'}."
    )


def _went_no_further(recording: Recording, compile_: Compile, wanted: str, node: FxNode) -> str:
    """Dynamo took an operation, and nothing that was compiled goes back to it."""
    place = f" ({node.place})" if node.place else ""
    taken = f"{wanted} is in the graph that Dynamo took in compile {compile_.id}{place}"
    if any(graph.lowered for graph in compile_.inductor):
        return (
            f"{taken}, but nothing in the compiled graph comes from it: it was removed on the way, "
            "or replaced by a value known in advance. See 'inductoscope show --stage passes'."
        )
    error = next((error for error in compile_.errors if not error.swallowed), None)
    if error is not None:
        return (
            f"{taken}, but that compile failed in stage {error.stage}, so there is nothing to "
            "follow. See 'inductoscope show --stage errors'."
        )
    if compile_.reason:
        return f"{taken}, but that graph was not compiled: {compile_.reason}."
    return f"{wanted} cannot be followed: {_why_empty(recording, 'ir')}"


def print_operations(printer: Printer, view: View) -> None:
    """Each operation, those that are alike once."""
    for numbers in view["alike"]:
        first, *others = (view["operations"][number] for number in numbers)
        print_operation(printer, first, [other["aten"]["name"] for other in others])
