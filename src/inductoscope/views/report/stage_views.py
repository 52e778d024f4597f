"""Views of one stage, one kernel, one operation or one source line: `show --stage` and the like."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from itertools import chain
from typing import Any

from inductoscope.analysis.bounds.accesses import PointBudget
from inductoscope.analysis.bounds.kernels import JudgedGraph
from inductoscope.analysis.fusion.decisions import Consideration, decisions_of
from inductoscope.errors import UsageError
from inductoscope.kernels.assembly import kernel_assembly
from inductoscope.model.entities import Compile, InductorGraph, NativeCompile, Recording
from inductoscope.model.fx import FxGraph, FxNode, describe_value, read_graph
from inductoscope.model.join import captured_graph
from inductoscope.model.kernels import compile_of_kernel
from inductoscope.model.operation_trace import (
    Selector,
    by_operation,
    by_source,
    is_dead_code,
    trace,
    what_removed,
)
from inductoscope.model.schedule import ScheduledNode, read_schedule
from inductoscope.packages.package import package_of_wrapper, recorded_package
from inductoscope.recording.events import Kernel, PassChange
from inductoscope.recording.values import texts
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import arrows
from inductoscope.torch_facts.stages import SHOWN
from inductoscope.views.explain import one_line
from inductoscope.views.report.alike import alike
from inductoscope.views.report.bounds import facts_of_nodes
from inductoscope.views.report.operation import (
    ir_text,
    native_view,
    operation_view,
    print_operation,
)
from inductoscope.views.report.package import facts_of_inputs, facts_of_package
from inductoscope.views.report.sections import Section, sections_view
from inductoscope.views.report.terminal import Printer
from inductoscope.wording import count_of


def dynamo(recording: Recording, compile_: Compile) -> Iterator[Section]:
    """Yield the graphs that Dynamo captured, with their source lines."""
    graphs = [graph for graph in compile_.graphs if graph.stage == stages.DYNAMO]
    for graph in graphs:
        yield Section(
            f"{compile_.id} dynamo: {compile_.function}",
            {"source": compile_.place, "guards": compile_.guard_count},
            graph_text(read_graph(recording, graph.payload)),
        )
    if not graphs:
        yield Section(
            f"{compile_.id}: {compile_.function}",
            {"source": compile_.place, "outcome": compile_.outcome, "reason": compile_.reason},
            "Dynamo captured no graph from this frame",
        )


def aot(recording: Recording, compile_: Compile) -> Iterator[Section]:
    """Yield the decompositions, and the joint, forward, backward and inference graphs."""
    if compile_.decompositions:
        yield Section(
            f"{compile_.id} decompositions", {"times_applied": dict(compile_.decompositions)}
        )
    for graph in compile_.graphs:
        if graph.stage.startswith("aot-"):
            yield Section(
                f"{compile_.id} {graph.stage}",
                text=graph_text(read_graph(recording, graph.payload)),
            )


def passes(recording: Recording, compile_: Compile) -> Iterator[Section]:
    """Yield the passes that changed a graph, each with its diff."""
    for change in compile_.passes:
        yield Section(
            f"{change.graph or compile_.id} {change.stage}: {change.name}",
            {"seconds": change.seconds, "inside": list(change.inside)},
            _difference(recording, change),
        )
    for graph in compile_.graphs:
        if graph.stage == "post-grad":
            yield Section(
                f"{graph.graph} after the post-grad passes",
                text=graph_text(read_graph(recording, graph.payload)),
            )


def graph_text(graph: FxGraph | None) -> str:
    """Format a graph, with each source line above the nodes it became."""
    if graph is None:
        return "(the graph is missing from the recording)"
    lines: list[str] = []
    place = ""
    for node in graph.nodes:
        here = f"# {node.place}  {node.place.code}" if node.place else ""
        if here and here != place:
            lines.append(here)
            place = here
        lines.append("  " + node_text(node))
    return "\n".join(lines)


def node_text(node: FxNode) -> str:
    value = describe_value(node.value)
    if node.op == "placeholder":
        return f"%{node.name}: {value}" if value else f"%{node.name}"
    if node.op == "output":
        return f"return {node.args.removeprefix('(').removesuffix(')').removesuffix(',')}"
    return f"{node}" + (f"  # {value}" if value else "")


def node_texts(graph: FxGraph) -> list[str]:
    return [node_text(node) for node in graph.nodes]


def _difference(recording: Recording, change: PassChange) -> str:
    before, after = (read_graph(recording, digest) for digest in (change.before, change.after))
    if before is None or after is None:
        return "(one of the two graphs is missing from the recording)"
    old, new = node_texts(before), node_texts(after)
    lines = difflib.unified_diff(old, new, "before", "after", lineterm="", n=1)
    return "\n".join(lines) or "(only details that are not printed changed)"


# --- Views of what Dynamo decided about frames: breaks, guards, recompiles, caches, errors --------


def breaks(recording: Recording, compile_: Compile) -> Iterator[Section]:
    """Yield the graph breaks, with torch's own explanation."""
    for item in compile_.breaks:
        yield Section(
            f"{compile_.id} graph break in {compile_.function}",
            {"source": item.source, "code": item.code, "stack": arrows(item.stack)},
            item.reason,
        )
    for error in compile_.errors:
        if error.swallowed:
            yield Section(
                f"{compile_.id} {compile_.function} runs in eager",
                {"source": error.source or compile_.place, "exception": error.type},
                error.message,
            )


def guards(recording: Recording, compile_: Compile) -> Iterator[Section]:
    """Yield the guards of compiled frames and of package inputs."""
    found = recording.data(compile_.guards)
    if isinstance(found, list):
        yield Section(
            f"{compile_.id} {compile_.function}: {count_of(compile_.guard_count, 'guard')}",
            {"source": compile_.place},
            "\n".join(_guard_lines(found)),
        )
    package = recorded_package(recording, compile_)
    if package is not None:
        count = count_of(package.guards.count, "demand")
        inputs = count_of(len(package.guards.inputs), "input")
        yield Section(
            f"{compile_.id} {compile_.function}: {count} on {inputs}",
            {
                "source": compile_.place,
                **facts_of_inputs(package),
                "sizes": [f"{each.name} = {each.expression}" for each in package.guards.symbols],
                "checked": "only with AOTI_RUNTIME_CHECK_INPUTS=1",
            },
        )


def _guard_lines(items: list[object]) -> Iterator[str]:
    for item in items:
        if not isinstance(item, dict):
            continue
        place = f"   # {item['place']}" if item.get("place") else ""
        yield f"{item.get('kind', '?')}({item.get('source', '')}){place}"
        code = item.get("code")
        if isinstance(code, list):
            yield from (f"    {line}" for line in code)


def recompiles(recording: Recording, compile_: Compile) -> Iterator[Section]:
    """Yield frames that were recompiled, or should have been, with the guard that failed."""
    if compile_.recompile is not None:
        done = "was recompiled" if compile_.is_recompile else "was not recompiled"
        yield Section(
            f"{compile_.id} {compile_.function} {done}",
            {"source": compile_.place, "limit_reached": compile_.recompile.limit},
            "\n".join(compile_.recompile.reasons),
        )


def cache(recording: Recording, compile_: Compile) -> Iterator[Section]:
    """Yield the cache lookups in torch."""
    for lookup in compile_.caches:
        facts = {"key": lookup.key, "reason": lookup.reason}
        if lookup.outcome == "hit":
            facts["next"] = "inductoscope run --fresh recompiles everything, in a private cache"
        yield Section(f"{compile_.id} {lookup.cache} cache: {lookup.outcome}", facts)


def errors(recording: Recording, compile_: Compile) -> Iterator[Section]:
    """Yield the exceptions that left the compiler, with the stage that raised them."""
    for error in compile_.errors:
        outcome = "swallowed, the frame runs in eager" if error.swallowed else "raised"
        yield Section(
            f"{compile_.id} {error.type} in stage {error.stage}: {outcome}",
            {
                "at": error.detail,
                "graph": error.graph,
                "source": error.source,
                "causes": list(error.cause),
                "raised_in": list(error.raised_in),
            },
            recording.payload(error.traceback) or error.message,
        )


# --------------------------------------------------------------------------------------------------
# Views of Inductor's own stages: IR, scheduler, fusion, loop bodies, kernels, native compile.


def ir(recording: Recording, graph: InductorGraph) -> Iterator[Section]:
    """Yield the IR that each FX node was lowered to."""
    for item in graph.lowered:
        nodes = item.ir if isinstance(item.ir, list) else [item.ir]
        yield Section(
            f"{graph.key} {item.node} = {item.target}",
            {
                "milliseconds": round(item.seconds * 1000, 2),
                "fell_back_to_eager": "yes" if item.fallback else "",
                "made": [f"{made.get('name')} ({made.get('class')})" for made in item.made],
            },
            "\n".join(ir_text(node) for node in nodes if isinstance(node, dict)),
        )


def scheduler(recording: Recording, graph: InductorGraph) -> Iterator[Section]:
    """Yield the nodes and buffers before fusion, then the final order."""
    for node in read_schedule(recording, graph.scheduled_before):
        yield _scheduled(graph, node)
    after = read_schedule(recording, graph.scheduled_after)
    if after:
        yield Section(
            f"{graph.key} order after fusion",
            text="\n".join(
                f"{number}. {node.kind} {' + '.join(leaf.name for leaf in node.leaves)}"
                for number, node in enumerate(after, start=1)
            ),
        )


def _scheduled(graph: InductorGraph, node: ScheduledNode) -> Section:
    return Section(
        f"{graph.key} {node.name}: {node.kind}({node.ir})",
        {
            "loops": "" if node.loops == "NoneType" else node.loops,
            "kernel": node.kernel,
            "device": node.device,
            "group": node.group,
            "sizes": [f"({', '.join(size)})" for size in node.sizes],
            "reads": list(node.reads),
            "writes": list(node.writes),
            "unmet": list(node.unmet),
            "buffers": [
                f"{b.name} {b.dtype.removeprefix('torch.')}[{', '.join(b.size)}] "
                f"stride [{', '.join(b.stride)}] of {b.origin or '?'} "
                f"used by {' '.join(b.users) or 'nobody'}"
                for b in node.buffers
            ],
            "origins": list(node.origins),
        },
    )


def fusion(recording: Recording, graph: InductorGraph) -> Iterator[Section]:
    """Yield fusion rounds, fusions, and refused pairs with the reason."""
    before = read_schedule(recording, graph.scheduled_before)
    nodes = {leaf.name: leaf for node in before for leaf in node.leaves}
    decisions = decisions_of(graph, nodes)
    for round_ in graph.rounds:
        found = [item for item in decisions if item.round == round_.round]
        fused = [_decision_line(item) for item in found if item.outcome == "fused"]
        others = [_decision_line(item) for item in found if item.outcome != "fused"]
        yield Section(
            f"{graph.key} round {round_.round}: {round_.before} nodes became {round_.after}",
            {"milliseconds": round(round_.seconds * 1000, 2), "pairs_considered": len(others)},
            "\n".join([*fused, *others]).strip(),
        )


def _decision_line(item: Consideration) -> str:
    kind = item.kind
    if item.outcome == "fused" and item.score and "memory_score" in item.score:
        kind += f", {item.score['memory_score']} bytes saved"
    about = f"{item.outcome:8} {item.first} + {item.second}" + (f" ({kind})" if kind else "")
    if item.outcome != "refused":
        return about
    words = item.torch or item.reason or "torch gives no reason"
    return f"{about}: {words}"


# Seconds for the proofs about all loop bodies; `inductoscope bounds` takes its time.
_BOUNDS_SECONDS, _BOUNDS_POINTS = 10.0, 200_000


def loop_body(recording: Recording) -> Iterator[Section]:
    """Yield the loop bodies before fusion and, if fusion changed them, after."""
    until = time.monotonic() + _BOUNDS_SECONDS
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            budget = PointBudget(_BOUNDS_POINTS, until)
            judged = JudgedGraph(recording, compile_, graph, budget)
            yield from _loop_bodies(recording, graph, facts_of_nodes(judged))


def _loop_bodies(
    recording: Recording, graph: InductorGraph, facts: Mapping[str, dict[str, Any]]
) -> Iterator[Section]:
    before = _bodies(recording, graph.scheduled_before)
    after = _bodies(recording, graph.scheduled_after)
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, ""), after.get(name, "")
        # The last form is the one that is compiled, and that was judged.
        known = facts.get(name, {})
        if old == new:
            yield Section(f"{graph.key} {name}", known, recording.payload(old))
            continue
        if old:
            first = {} if new else known
            yield Section(f"{graph.key} {name} before fusion", first, recording.payload(old))
        if new:
            yield Section(f"{graph.key} {name} after fusion", known, recording.payload(new))


def _bodies(recording: Recording, digest: str) -> dict[str, str]:
    nodes = read_schedule(recording, digest)
    return {leaf.name: leaf.body for node in nodes for leaf in node.leaves if leaf.body}


def kernel(recording: Recording, graph: InductorGraph) -> Iterator[Section]:
    """Yield the generated kernels and library calls in full."""
    for item in graph.kernels:
        yield kernel_section(recording, graph, item)


def kernel_section(recording: Recording, graph: InductorGraph, item: Kernel) -> Section:
    natives = compile_of_kernel(recording, item)
    return Section(
        f"{graph.key} {item.name} ({item.language})",
        {
            "operations": list(item.origins),
            "scheduler_nodes": list(item.nodes),
            "reads": list(item.reads),
            "writes": list(item.writes),
            "compiled": [
                f"{native.tool} {_duration(native)} {native.config} {native.output}".strip()
                for native in natives
            ],
            "forms": list(dict.fromkeys(form for native in natives for form in native.forms)),
        },
        recording.payload(item.payload),
    )


def kernel_form_sections(
    recording: Recording, graph: InductorGraph, item: Kernel, form: str
) -> Iterator[Section]:
    """Yield one form of a Triton kernel for each compiled configuration."""
    for native in compile_of_kernel(recording, item):
        if form in native.forms:
            yield Section(
                f"{graph.key} {item.name}: {form}",
                {"config": native.config, "output": native.output},
                recording.payload(str(native.forms[form])) or "(missing from the recording)",
            )


def assembly_section(recording: Recording, graph: InductorGraph, item: Kernel) -> Section:
    """Recompile a C++ kernel; return its assembly and the source lines that it implements."""
    made = kernel_assembly(recording, item)
    return Section(
        f"{graph.key} {item.name}: asm",
        {
            "compiler": made.compiler,
            "flags": list(made.flags),
            "left_out": list(made.left_out),
            "notes": list(made.notes),
        },
        made.numbered,
    )


def _duration(item: NativeCompile) -> str:
    return "not finished" if item.seconds is None else f"{item.seconds:.2f} s"


def memory(recording: Recording, graph: InductorGraph) -> Iterator[Section]:
    """Yield the node that each buffer comes from, and the reuse of memory."""
    buffers = recording.data(graph.buffers)
    lines = [
        f"{name}: {entry.get('origin') or ' + '.join(texts(entry.get('origins'))) or '?'}"
        for name, entry in (buffers.items() if isinstance(buffers, dict) else ())
        if isinstance(entry, dict)
    ]
    lines += [f"{reuse.new} takes over {reuse.old} ({reuse.how})" for reuse in graph.reuses]
    if lines:
        yield Section(f"{graph.key} buffers", text="\n".join(lines))


def wrapper(recording: Recording, graph: InductorGraph) -> Iterator[Section]:
    """Yield the generated wrapper that calls the kernels."""
    if graph.wrapper:
        origin = "from the cache" if graph.cached else graph.wrapper_path
        text = recording.payload(graph.wrapper)
        facts = facts_of_package(package_of_wrapper(text))
        yield Section(f"{graph.key} wrapper", {"file": origin, **facts}, text)


def native(recording: Recording) -> Iterator[Section]:
    """Yield all native compiles by g++ and Triton: command, seconds, exit code, messages."""
    for item in recording.natives:
        facts = {**native_view(item), "passes": dict(item.passes)}
        facts.pop("seconds")
        yield Section(
            f"{item.tool} {item.kernel or item.source}: {_duration(item)}",
            facts,
            recording.payload(item.messages),
        )


def autotune(recording: Recording, graph: InductorGraph) -> Iterator[Section]:
    """Yield the autotuning choices of each operation, their times and the one that torch took."""
    for search in graph.autotunes:
        lines = []
        for choice in search.choices:
            mark = "*" if choice.name == search.taken else " "
            lines.append(f"{mark} {choice.state:16} {choice.name} {choice.description}".rstrip())
            if choice.error:
                lines.append(f"    {choice.error.splitlines()[0]}")
        choices = count_of(len(search.choices), "choice")
        yield Section(
            f"{graph.key} autotune {search.operation}: {choices}",
            {
                "winner": search.winner,
                "taken_without_being_timed": "" if search.winner else search.taken,
            },
            "\n".join(lines),
        )


# --- What was selected of a recording: a stage, a kernel, an operation or a source line -----------

View = dict[str, Any]
Build = Callable[[Recording], Iterator[Section]]


def _of_each(field: str, build: Callable[[Recording, Any], Iterator[Section]]) -> Build:
    """Turn a view of one compile or graph into a view of all in this field of a recording."""

    @wraps(build)
    def view(recording: Recording) -> Iterator[Section]:
        return chain.from_iterable(build(recording, one) for one in getattr(recording, field))

    return view


STAGE_VIEWS: dict[str, Build] = {
    stages.DYNAMO: _of_each("compiles", dynamo),
    "breaks": _of_each("compiles", breaks),
    "guards": _of_each("compiles", guards),
    "recompiles": _of_each("compiles", recompiles),
    stages.AOT: _of_each("compiles", aot),
    "passes": _of_each("compiles", passes),
    "ir": _of_each("graphs", ir),
    stages.SCHEDULER: _of_each("graphs", scheduler),
    "fusion": _of_each("graphs", fusion),
    stages.LOOP_BODY: loop_body,
    "kernel": _of_each("graphs", kernel),
    "memory": _of_each("graphs", memory),
    stages.WRAPPER: _of_each("graphs", wrapper),
    "native": native,
    stages.AUTOTUNE: _of_each("graphs", autotune),
    "cache": _of_each("compiles", cache),
    "errors": _of_each("compiles", errors),
}
assert tuple(STAGE_VIEWS) == SHOWN


# --- one stage ------------------------------------------------------------------------------------


def stage_view(recording: Recording, stage: str) -> View:
    sections = list(STAGE_VIEWS[stage](recording))
    return {
        "explanation": one_line(stage),
        **sections_view(stage, sections, empty=_why_empty(recording, stage)),
    }


def _why_empty(recording: Recording, stage: str) -> str:
    if not recording.compiles:
        return "Nothing was compiled in this recording."
    if any(graph.cached for graph in recording.graphs) and stage not in (
        "breaks",
        "recompiles",
        "errors",
        stages.AUTOTUNE,
    ):
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
    every = [(graph, kernel) for graph in recording.graphs for kernel in graph.kernels]
    found = [pair for pair in every if pair[1].name == name] or [
        pair for pair in every if name in pair[1].name
    ]
    if not found:
        known = ", ".join(dict.fromkeys(kernel.name for _, kernel in every))
        raise UsageError(f"There is no kernel {name}. There are: {known or 'none'}.")
    if form in ("", "asm"):
        build = assembly_section if form else kernel_section
        return sections_view("kernel", [build(recording, *pair) for pair in found], empty="")
    sections = [
        section for pair in found for section in kernel_form_sections(recording, *pair, form)
    ]
    empty = f"No {form} of {name} is in the recording: only Triton kernels compiled in it have one."
    return sections_view("kernel", sections, empty=empty)


# --- one operation, or one line -------------------------------------------------------------------


def operations_view(recording: Recording, operation: str, source: str) -> View:
    """Return the traces of an operation, or of a source line, through all stages."""
    wanted = operation or source
    select = by_operation(wanted) if operation else by_source(wanted)
    found = list(trace(recording, select))
    if not found:
        raise UsageError(_not_found(recording, wanted, select))
    operations = [operation_view(item) for item in found]
    return {"selected": wanted, "operations": operations, "alike": alike(operations)}


def _not_found(recording: Recording, wanted: str, select: Selector) -> str:
    """Explain why a selection is empty: removed after Dynamo, or never captured by it."""
    names: dict[str, None] = {}
    for compile_ in recording.compiles:
        graph = captured_graph(recording, compile_)
        calls = graph.calls if graph else ()
        chosen = next((node for node in calls if select(node)), None)
        if graph is not None and chosen is not None:
            return _went_no_further(recording, compile_, wanted, graph, chosen)
        names.update(dict.fromkeys(node.operation for node in calls))
    if not any(graph.lowered for graph in recording.graphs):
        return f"{wanted} cannot be followed: {_why_empty(recording, 'ir')}"
    return (
        f"Nothing in the compiled graphs matches {wanted}. "
        f"Operations that Dynamo took: {', '.join(names) or 'none'}."
    )


def _went_no_further(
    recording: Recording, compile_: Compile, wanted: str, graph: FxGraph, node: FxNode
) -> str:
    """Explain that Dynamo captured an operation, but no compiled node originates from it."""
    place = f" ({node.place})" if node.place else ""
    taken = f"{wanted} is in the graph that Dynamo took in compile {compile_.id}{place}"
    if any(compiled.lowered for compiled in compile_.inductor):
        by = what_removed(recording, compile_, node) or "a later stage"
        why = "replaced it, or computed its value"
        if is_dead_code(graph, node):
            why = "removed it as dead code: no output depends on it"
        see = ". See 'inductoscope show --stage passes'" if by.endswith("passes") else ""
        return f"{taken}, but nothing in the compiled graph comes from it: {by} {why}{see}."
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
    """Print each operation; identical ones once."""
    for numbers in view["alike"]:
        first, *others = (view["operations"][number] for number in numbers)
        print_operation(printer, first, [other["aten"]["name"] for other in others])
