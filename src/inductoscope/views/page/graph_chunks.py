"""Chunks of one graph: linked panes, native forms of kernels, passes, the schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inductoscope.analysis.fusion.sizes import buffer_bytes
from inductoscope.errors import InductoscopeError
from inductoscope.model.counts import calls_by_name, generated
from inductoscope.model.entities import InductorGraph, Kernel, NativeCompile, Recording
from inductoscope.model.fx import FxGraph
from inductoscope.model.join import GraphJoin
from inductoscope.model.native import NativeIndex
from inductoscope.model.native_lines import source_links
from inductoscope.model.schedule import ScheduledNode
from inductoscope.recording.values import filled
from inductoscope.views.page.chunk_contract import (
    FormHead,
    FormText,
    LineNumber,
    LinkedPanes,
    PaneKernel,
    Pass,
    Passes,
    Schedule,
    ScheduleEdge,
    ScheduleGroup,
    ScheduleNode,
)
from inductoscope.views.page.panes import LinkedGraph
from inductoscope.views.page.source_contract import GraphSources
from inductoscope.views.page.sources import chunk_of, sources
from inductoscope.views.page.stage_panes import StagePanes, kernel_id
from inductoscope.views.report.graph_stages import node_texts
from inductoscope.vocabulary.flows import AOT_INDUCTOR

# Forms in the order in which a kernel is compiled, with the language for highlighting.
_FORMS = {
    "ttir": "ir",
    "ttgir": "ir",
    "llir": "ir",
    "ptx": "ptx",
    "sass": "asm",
    "amdgcn": "asm",
    "asm": "asm",
}


@dataclass(frozen=True)
class Form:
    """One native form of a kernel, for one configuration."""

    kernel: Kernel
    name: str
    config: str
    digest: str
    chunk: str


def forms_of(
    number: int, graph: InductorGraph, natives: NativeIndex, assembled: Container[Kernel]
) -> list[Form]:
    """All native forms of a graph's kernels; assembly only for those in `assembled`."""
    found: list[Form] = []
    for kernel in generated(graph):
        if kernel in assembled:
            found.append(Form(kernel, "asm", "", "", f"form-{number}-{len(found)}"))
        for native in natives.of(kernel):
            for name in _FORMS:
                digest = str(native.forms.get(name, ""))
                if digest:
                    chunk = f"form-{number}-{len(found)}"
                    found.append(Form(kernel, name, native.config, digest, chunk))
    return found


def form_chunk(recording: Recording, form: Form) -> Callable[[], FormText]:
    """A function that makes the chunk of a form."""

    def make() -> FormText:
        text, lines = _assembled(recording, form) if form.name == "asm" else _read(recording, form)
        # The pane begins each kernel with a line that names it.
        links = {str(line + 1): tuple(map(LineNumber, found)) for line, found in lines.items()}
        return FormText(text=text, language=_FORMS[form.name], links=links)

    return make


def _read(recording: Recording, form: Form) -> tuple[str, Mapping[int, Sequence[int]]]:
    text = recording.payload(form.digest)
    return text, source_links(form.name, text)


def _assembled(recording: Recording, form: Form) -> tuple[str, Mapping[int, Sequence[int]]]:
    from inductoscope.kernels.assembly import kernel_assembly

    try:
        made = kernel_assembly(recording, form.kernel)
    except InductoscopeError as error:
        return f"# {error}", {}
    return made.text, made.links


def linked(join: GraphJoin, natives: NativeIndex, forms: list[Form]) -> LinkedPanes:
    """The linked panes of a graph."""
    graph = LinkedGraph(join)
    return LinkedPanes(
        panes=graph.views(_missing(join)),
        operations=graph.operations(),
        kernels=_kernels(join, graph.kernels, natives, forms),
    )


def unlinked(join: GraphJoin, natives: NativeIndex, forms: list[Form]) -> GraphSources:
    """The same for a browser to link."""
    stages = StagePanes(join)
    kernels = _kernels(join, stages.kernels, natives, forms)
    return sources(join, stages, kernels, _missing(join))


def _kernels(
    join: GraphJoin,
    shown: list[tuple[Kernel, int, int]],
    natives: NativeIndex,
    forms: list[Form],
) -> tuple[PaneKernel, ...]:
    calls = calls_by_name(join.graph)
    launches = {found.kernel: dict(found.milliseconds) for found in join.recording.launch_configs}
    by_kernel: dict[str, list[Form]] = {}
    for form in forms:
        by_kernel.setdefault(form.kernel.name, []).append(form)
    return tuple(
        PaneKernel(
            id=kernel_id(kernel),
            name=kernel.name,
            first_line=first,
            last_line=last,
            forms=tuple(
                _form_head(form, launches.get(kernel.name, {}))
                for form in by_kernel.get(kernel.name, ())
            ),
            forms_missing=_no_forms(kernel),
            facts=_facts(natives.of(kernel), calls[kernel.name]),
        )
        for kernel, first, last in shown
    )


def _form_head(form: Form, timed: Mapping[str, float]) -> FormHead:
    """Of several launch configurations the fastest runs; one alone has nothing to win against."""
    return FormHead(
        name=form.name,
        config=form.config,
        chunk=form.chunk,
        milliseconds=timed.get(form.config),
        ran=bool(timed) and timed.get(form.config) == min(timed.values()),
    )


def _missing(join: GraphJoin) -> dict[str, str]:
    """Why a pane is empty."""
    if join.graph.cached:
        why = (
            "This graph came from a cache, so this stage did not run. "
            "'inductoscope run --fresh' recompiles everything, in a private cache."
        )
        names = ("post-grad", "ir", "scheduler", "fused", "loop-body", "kernel")
        return dict.fromkeys(names, why)
    if not join.graph.finished:
        why = "The compile failed earlier, or ended before this was recorded."
        return dict.fromkeys(("ir", "scheduler", "fused", "loop-body", "kernel"), why)
    exported = "AOTInductor compiles an exported program: Dynamo has taken no frame for it."
    return {
        "python": "The program's lines for these operations are unknown.",
        **({"dynamo": exported} if join.compile.flow == AOT_INDUCTOR else {}),
        "loop-body": "No loops: only library calls or templates.",
        "kernel": "No kernel was generated.",
    }


def _no_forms(kernel: Kernel) -> str:
    if kernel.language == "extern":
        return "A library call: there is no generated code."
    if kernel.language == "C++":
        return (
            "Assembly takes seconds per kernel, so it is only made on request: "
            "'inductoscope report --assembly N', 'inductoscope serve', or "
            "'inductoscope show --kernel NAME --form asm'."
        )
    return "Not compiled in this recording: from a cache, or Triton is not installed."


def _facts(natives: Iterable[NativeCompile], calls: int) -> dict[str, float]:
    found = list(natives)
    names = ("registers", "spills", "shared", "seconds")
    values = {name: [getattr(native, name) for native in found] for name in names}
    known = {name: [v for v in items if v is not None] for name, items in values.items()}
    return {"calls": calls, **{name: max(items) for name, items in known.items() if items}}


# --- passes ---------------------------------------------------------------------------------------


def passes(join: GraphJoin) -> Passes:
    """Passes that changed this graph, or the joint graph that it is part of."""
    places, found = _passes(join)
    texts = tuple(_graph_text(join.read(digest)) for digest in places)
    return Passes(texts=texts, graphs=(), passes=found)


def unread_passes(join: GraphJoin) -> Passes:
    """The same with graphs that a browser is to read."""
    places, found = _passes(join)
    return Passes(texts=(), graphs=tuple(map(chunk_of, places)), passes=found)


def changed_graphs(join: GraphJoin) -> dict[str, int]:
    """The digests of the graphs before and after these passes, and their places."""
    return _passes(join)[0]


def _passes(join: GraphJoin) -> tuple[dict[str, int], tuple[Pass, ...]]:
    places: dict[str, int] = {}
    found = [
        Pass(
            stage=change.stage,
            name=change.name,
            seconds=change.seconds,
            before=places.setdefault(change.before, len(places)),
            after=places.setdefault(change.after, len(places)),
        )
        for change in join.compile.passes
        if not change.graph or change.graph == join.graph.key
    ]
    return places, tuple(found)


def _graph_text(graph: FxGraph | None) -> str:
    if graph is None:
        return "(the graph is missing from the recording)"
    return "\n".join(node_texts(graph))


# --- the schedule ---------------------------------------------------------------------------------


def schedule(join: GraphJoin) -> Schedule:
    """Nodes, edges with their buffers, and groups."""
    leaves = [leaf for item in join.before for leaf in item.leaves]
    group_of = {leaf.name: item.name for item in join.after for leaf in item.leaves}
    kernel_of = {name: kernel_id(kernel) for kernel in join.graph.kernels for name in kernel.nodes}
    nodes = [_node(leaf, join.computed.get(leaf.name, ()), group_of, kernel_of) for leaf in leaves]
    return Schedule(
        nodes=tuple(_told_apart(nodes, leaves)),
        edges=tuple(_edges(leaves, group_of)),
        groups=tuple(
            ScheduleGroup(
                id=item.name,
                kind=item.kind,
                members=tuple(leaf.name for leaf in item.leaves),
                kernel=next((kernel_of.get(leaf.name, "") for leaf in item.leaves), ""),
            )
            for item in join.after
        ),
    )


def _node(
    leaf: ScheduledNode,
    computed: tuple[str, ...],
    groups: Mapping[str, str],
    kernels: Mapping[str, str],
) -> ScheduleNode:
    sizes = [buffer_bytes(buffer) for buffer in leaf.buffers]
    return filled(
        ScheduleNode,
        id=leaf.name,
        kind=leaf.kind,
        label=", ".join(computed) or leaf.kernel or leaf.kind,
        operations=computed or leaf.origins,
        group=groups.get(leaf.name, ""),
        kernel=kernels.get(leaf.name, ""),
        bytes=sum(size for size in sizes if size is not None) or None,
    )


def _told_apart(nodes: list[ScheduleNode], leaves: list[ScheduledNode]) -> Iterator[ScheduleNode]:
    """Nodes that compute the same operations are labelled with what they write, too."""
    counts = Counter(node.label for node in nodes)
    for node, leaf in zip(nodes, leaves, strict=True):
        written = ", ".join(buffer.name for buffer in leaf.buffers)
        shared = counts[node.label] > 1 and written
        yield replace(node, label=f"{node.label} → {written}") if shared else node


def _edges(leaves: list[ScheduledNode], groups: Mapping[str, str]) -> Iterator[ScheduleEdge]:
    made_by = {buffer.name: leaf.name for leaf in leaves for buffer in leaf.buffers}
    sizes = {buffer.name: buffer_bytes(buffer) for leaf in leaves for buffer in leaf.buffers}
    for leaf in leaves:
        for name in leaf.reads:
            maker = made_by.get(name)
            if maker is not None and maker != leaf.name:
                yield filled(
                    ScheduleEdge,
                    writer=maker,
                    reader=leaf.name,
                    buffer=name,
                    bytes=sizes.get(name),
                    inside=groups.get(maker) == groups.get(leaf.name),
                )
