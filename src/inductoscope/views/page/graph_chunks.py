"""The chunks of one graph: linked panes, native forms of kernels, passes, schedule."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inductoscope.errors import InductoscopeError
from inductoscope.model.entities import Compile, InductorGraph, NativeCompile, Recording
from inductoscope.model.join import (
    GraphJoin,
    captured_digest,
    final_graph,
    numbers_by_step,
    why_codeless,
)
from inductoscope.model.kernels import LIBRARY, NativeIndex, calls_by_name, generated, library_calls
from inductoscope.model.memory import Room, read_memory
from inductoscope.model.schedule import Buffer, ScheduledNode
from inductoscope.model.wrapper_lines import wrapper_lines
from inductoscope.recording.events import Kernel, Reuse
from inductoscope.recording.values import members, texts
from inductoscope.torch_facts.frames import library_folders
from inductoscope.torch_facts.index_expressions import bytes_of
from inductoscope.torch_facts.stages import AOT_INDUCTOR
from inductoscope.torch_facts.triton_kernels import source_links
from inductoscope.views.page.contract import (
    OF_NOTHING,
    BufferRow,
    FormHead,
    FormText,
    GraphSources,
    LineNumber,
    PaneKernel,
    Pass,
    Passes,
    RecordedPayload,
    Schedule,
    ScheduleEdge,
    ScheduleGroup,
    ScheduleNode,
    SourceCall,
    SourceKernel,
    SourceText,
)
from inductoscope.views.report.operation import ir_text, scheduled_view, scheduler_text

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
    kernel: Kernel
    name: str
    config: str
    digest: str
    chunk: str


def forms_of(
    number: int, graph: InductorGraph, natives: NativeIndex, assembled: Container[Kernel]
) -> list[Form]:
    """Return the native forms of a graph's kernels; assembly only for `assembled` ones."""
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
    """Describe a form; `ran` marks the fastest of several launch configurations."""
    return FormHead.showing(
        form,
        milliseconds=timed.get(form.config),
        ran=bool(timed) and timed.get(form.config) == min(timed.values()),
    )


def _missing(join: GraphJoin) -> dict[str, str]:
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
    """Return the passes that changed this graph, or the joint graph that it is part of."""
    places, found = _passes(join)
    return Passes(texts=(), graphs=tuple(map(chunk_of, places)), passes=found)


def changed_graphs(join: GraphJoin) -> dict[str, int]:
    return _passes(join)[0]


def _passes(join: GraphJoin) -> tuple[dict[str, int], tuple[Pass, ...]]:
    places: dict[str, int] = {}
    found = [
        Pass.showing(
            change,
            before=places.setdefault(change.before, len(places)),
            after=places.setdefault(change.after, len(places)),
        )
        for change in join.compile.passes
        if not change.graph or change.graph == join.graph.key
    ]
    return places, tuple(found)


# --- the schedule ---------------------------------------------------------------------------------


def schedule(join: GraphJoin) -> Schedule:
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
    sizes = [bytes_of(buffer.dtype, buffer.size) for buffer in leaf.buffers]
    return ScheduleNode(
        id=leaf.name,
        kind=leaf.kind,
        label=", ".join(computed) or leaf.kernel or leaf.kind,
        operations=computed or leaf.origins,
        group=groups.get(leaf.name, ""),
        kernel=kernels.get(leaf.name, ""),
        bytes=sum(size for size in sizes if size is not None) or None,
    )


def _told_apart(nodes: list[ScheduleNode], leaves: list[ScheduledNode]) -> Iterator[ScheduleNode]:
    """Append the written buffers to the labels of nodes that compute the same operations."""
    counts = Counter(node.label for node in nodes)
    for node, leaf in zip(nodes, leaves, strict=True):
        written = ", ".join(buffer.name for buffer in leaf.buffers)
        shared = counts[node.label] > 1 and written
        yield replace(node, label=f"{node.label} → {written}") if shared else node


def _edges(leaves: list[ScheduledNode], groups: Mapping[str, str]) -> Iterator[ScheduleEdge]:
    made_by = {buffer.name: leaf.name for leaf in leaves for buffer in leaf.buffers}
    buffers = [buffer for leaf in leaves for buffer in leaf.buffers]
    sizes = {buffer.name: bytes_of(buffer.dtype, buffer.size) for buffer in buffers}
    for leaf in leaves:
        for name in leaf.reads:
            maker = made_by.get(name)
            if maker is not None and maker != leaf.name:
                yield ScheduleEdge(
                    writer=maker,
                    reader=leaf.name,
                    buffer=name,
                    bytes=sizes.get(name),
                    inside=groups.get(maker) == groups.get(leaf.name),
                )


# --- What the browser needs to link the panes of one graph, collected without counting a line -----

StepNames = Mapping[str, tuple[str, ...]]


def graph_digests(join: GraphJoin) -> dict[str, str]:
    found = {
        "dynamo": captured_digest(join.compile),
        "aot": aot_digest(join.compile, join.graph.phase),
        "post-grad": final_graph(join.compile, join.graph),
    }
    return {pane: digest for pane, digest in found.items() if digest}


def chunk_of(digest: str) -> str:
    return f"fx-{digest}"


def recorded(recording: Recording, digest: str) -> RecordedPayload:
    """Return a payload unparsed; null if it is missing."""
    return RecordedPayload(recording.payload(digest) or "null")


def sources(join: GraphJoin, natives: NativeIndex, forms: list[Form]) -> GraphSources:
    stages = StagePanes(join)
    before = [leaf for item in join.before for leaf in item.leaves]
    return GraphSources(
        titles=TITLES,
        graphs={pane: chunk_of(digest) for pane, digest in graph_digests(join).items()},
        texts={name: _text(pane, stages.language(name)) for name, pane in stages.panes.items()},
        missing=_missing(join),
        wrapper_line=stages.wrapper.first_line,
        kernels=_kernels(join, stages.kernels, natives, forms),
        called=tuple(_called(join, stages)),
        calls=tuple(_calls(join, stages)),
        computed=join.computed,
        origins={leaf.name: leaf.origins for leaf in before},
        steps={leaf.name: _steps(join, leaf) for item in join.after for leaf in item.leaves},
        bodyless=tuple(leaf.name for leaf in before if not leaf.body),
        no_code=dict(_no_code(join)),
        library_files=library_folders(),
    )


def _text(pane: Pane, language: str) -> SourceText:
    return SourceText(
        language=language,
        text="\n".join(pane.lines),
        keys=tuple(str(keys[0]) if keys else OF_NOTHING for keys, _ in pane.blocks),
        counts=tuple(count for _, count in pane.blocks),
    )


def _called(join: GraphJoin, stages: StagePanes) -> Iterator[SourceKernel]:
    by_digest: dict[str, list[int]] = {}
    by_call: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place, (kernel, _, _) in enumerate(stages.kernels):
        by_digest.setdefault(kernel.payload, []).append(place)
        by_call.setdefault((kernel.name, kernel.nodes), []).append(place)
    for kernel in join.graph.kernels:
        yield SourceKernel(
            nodes=kernel.nodes,
            library=kernel.language == LIBRARY,
            texts=tuple(by_digest.get(kernel.payload, ())),
            own=tuple(by_call.get((kernel.name, kernel.nodes), ())),
            numbered=_numbered(join, kernel),
        )


def _numbered(join: GraphJoin, kernel: Kernel) -> dict[str, dict[str, tuple[int, ...]]]:
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    text = "" if kernel.numbered else join.text(kernel.payload)
    for (node, operation), numbers in numbers_by_step(kernel, text).items():
        found.setdefault(node, {})[operation] = tuple(numbers)
    return found


def _calls(join: GraphJoin, stages: StagePanes) -> Iterator[SourceCall]:
    places = {id(kernel): place for place, kernel in enumerate(join.graph.kernels)}
    for at, kernels in stages.wrapper.kernels.items():
        for kernel in kernels:
            yield SourceCall(LineNumber(at + 1), places[id(kernel)])


def _steps(join: GraphJoin, leaf: ScheduledNode) -> StepNames:
    """Return the loop body lines per operation; for old recordings, infer them."""
    if leaf.computes or not leaf.body or join.final is None:
        return leaf.computes
    nodes = filter(None, map(join.final.node, join.computed.get(leaf.name, ())))
    found = {node.name: join.steps(node, [leaf]).get(leaf.name, ()) for node in nodes}
    return {name: tuple(step.name for step in steps) for name, steps in found.items() if steps}


def _no_code(join: GraphJoin) -> Iterator[tuple[str, str]]:
    for node in join.final.calls if join.final else ():
        why = why_codeless(join, node)
        if why:
            yield node.name, why


def aot_digest(compile_: Compile, phase: str) -> str:
    """Return the digest of AOTAutograd's graph for the phase: forward, backward or inference."""
    for wanted in (f"aot-{phase}", "aot-inference", "aot-joint"):
        for item in reversed(compile_.graphs):
            if item.stage == wanted:
                return item.payload
    return ""


# --- The panes of one graph that hold no graph of torch.fx: IR, scheduler, loop bodies, kernels ---

# The panes in display order.
TITLES = {
    "python": "Python",
    "dynamo": "Dynamo graph",
    "aot": "AOT graph",
    "post-grad": "Post-grad graph",
    "ir": "Inductor IR",
    "scheduler": "Scheduler",
    "fused": "After fusion",
    "loop-body": "Loop bodies",
    "kernel": "Kernels",
    "wrapper": "Kernel calls",
}
_LANGUAGES = {
    "ir": "ir",
    "scheduler": "scheduler",
    "fused": "scheduler",
    "loop-body": "loop",
    "kernel": "cpp",
    "wrapper": "python",
}


@dataclass
class Pane:
    """The lines of a pane, in blocks that share the same keys.

    A key is an item with lines of its own: a node, a scheduler node, a line of the program.
    """

    lines: list[str] = field(default_factory=list)
    # The keys and the number of lines of each block.
    blocks: list[tuple[tuple[Hashable, ...], int]] = field(default_factory=list)

    def add(self, text: str, *keys: Hashable) -> None:
        """Append one or more lines of text that belong to `keys`."""
        self.add_lines(text.split("\n"), *keys)

    def add_lines(self, lines: list[str], *keys: Hashable) -> None:
        self.lines += lines
        self.blocks.append((keys, len(lines)))


class StagePanes:
    """The panes of one graph that do not show an FX graph."""

    def __init__(self, join: GraphJoin) -> None:
        self._join = join
        self.wrapper = wrapper_lines(join.recording.payload(join.graph.wrapper), join.graph.kernels)
        self.panes = {name: Pane() for name in _LANGUAGES}
        # The kernels with their first and last line in the pane; the first line names the kernel.
        self.kernels: list[tuple[Kernel, int, int]] = []
        self._fill_ir()
        self._fill_scheduler()
        self._fill_kernels()
        self._fill_wrapper()

    def _fill_ir(self) -> None:
        for item in self._join.graph.lowered:
            nodes = item.ir if isinstance(item.ir, list) else [item.ir]
            text = "\n".join(ir_text(node) for node in nodes if isinstance(node, dict))
            head = f"# {item.node} = {item.target}"
            if item.fallback:
                head += "  (falls back to the eager kernel)"
            self.panes["ir"].add(f"{head}\n{text}" if text else head, item.node)

    def _fill_scheduler(self) -> None:
        pane, fused, bodies = (self.panes[n] for n in ("scheduler", "fused", "loop-body"))
        for item in self._join.before:
            for leaf in item.leaves:
                pane.add(scheduler_text(scheduled_view(leaf)), leaf.name)
        for item in self._join.after:
            fused.add(f"{item.name}: {item.kind}")
            for leaf in item.leaves:
                fused.add("  " + scheduler_text(scheduled_view(leaf)), leaf.name)
                body = self._join.text(leaf.body)
                if body:
                    bodies.add(f"# {leaf.name}")
                    bodies.add(body, leaf.name)

    def _fill_kernels(self) -> None:
        pane = self.panes["kernel"]
        for kernel in (*generated(self._join.graph), *library_calls(self._join.graph)):
            first = len(pane.lines) + 1
            text = self._join.text(kernel.payload)
            head = f"{'//' if kernel.language == 'C++' else '#'} {kernel_id(kernel)}"
            pane.add_lines([head, *text.splitlines()])
            self.kernels.append((kernel, first, len(pane.lines)))

    def _fill_wrapper(self) -> None:
        """Fill the wrapper pane with the part that calls kernels; kernels have their own pane."""
        pane, calls = self.panes["wrapper"], self.wrapper
        for at, line in enumerate(calls.lines):
            pane.add(line, *dict.fromkeys(kernel.nodes for kernel in calls.kernels.get(at, ())))

    def language(self, name: str) -> str:
        """Return the language of a pane, which varies for kernels and their calls."""
        if name == "wrapper":
            return self.wrapper.language
        is_triton = any(kernel.language == "Triton" for kernel, _, _ in self.kernels)
        return "triton" if name == "kernel" and is_triton else _LANGUAGES[name]


def kernel_id(kernel: Kernel) -> str:
    """Return a name that is unique among a graph's kernels and library calls."""
    if kernel.language != LIBRARY or not kernel.writes:
        return kernel.name
    return f"{kernel.name} → {kernel.writes[0]}"


# --- The buffers of one graph: their writers, readers and memory reuse ----------------------------


def buffer_rows(join: GraphJoin) -> Iterator[BufferRow]:
    """Yield buffers in the order in which they are written, then inputs and constants."""
    leaves = [leaf for item in (join.after or join.before) for leaf in item.leaves]
    made = {buffer.name: (leaf, buffer) for leaf in leaves for buffer in leaf.buffers}
    rooms = read_memory(join.recording, join.compile, join.graph).rooms
    listed = members(join.recording.data(join.graph.buffers))
    kernels = {node: kernel_id(kernel) for kernel in join.graph.kernels for node in kernel.nodes}
    readers: dict[str, dict[str, None]] = defaultdict(dict)
    for leaf in leaves:
        for name in leaf.reads:
            readers[name][leaf.name] = None
    taken = _by_name((reuse.new, reuse.old, reuse) for reuse in join.graph.reuses)
    given = _by_name((reuse.old, reuse.new, reuse) for reuse in join.graph.reuses)
    for name in dict.fromkeys([*made, *listed, *rooms]):
        maker, buffer = made.get(name, (None, None))
        room, origins = rooms.get(name, Room()), members(listed.get(name))
        operation = str(origins.get("origin") or (buffer.origin if buffer else ""))
        is_made = name in made or name in listed
        yield BufferRow(
            name=name,
            kind="buffer" if is_made else "input" if room.is_input else "constant",
            dtype=buffer.dtype.removeprefix("torch.") if buffer else "",
            size=_listed(buffer.size if buffer else room.size),
            stride=_listed(buffer.stride if buffer else room.stride),
            bytes=_own_bytes(buffer) if is_made else _whole(room.bytes),
            operation=operation,
            led_here=tuple(o for o in texts(origins.get("origins")) if o != operation),
            node=maker.name if maker else "",
            kernel=kernels.get(maker.name, "") if maker else "",
            read_by=tuple(readers[name]),
            takes_over=taken.get(name, ""),
            given_to=given.get(name, ""),
            part_of=room.same_as or room.inside or ", ".join(buffer.mutates if buffer else ()),
        )


def _own_bytes(buffer: Buffer | None) -> int | None:
    if buffer is None or buffer.mutates:
        return None
    return bytes_of(buffer.dtype, buffer.size)


def _whole(size: str) -> int | None:
    return int(size) if size.isdecimal() and len(size) < 16 else None


def _by_name(found: Iterable[tuple[str, str, Reuse]]) -> dict[str, str]:
    """Describe reuse for each buffer: the other buffer, and how: `buf0 (in place)`."""
    ways: dict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for name, other, reuse in found:
        ways[name][other][reuse.how] = None
    return {
        name: ", ".join(f"{other} ({' and '.join(how)})" for other, how in others.items())
        for name, others in ways.items()
    }


def _listed(sizes: Iterable[str]) -> str:
    return f"[{', '.join(sizes)}]"
