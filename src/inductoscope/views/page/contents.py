"""The contents of the page: an index that loads at once, and chunks built on demand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from inductoscope.analysis.fusion.ledger import FUSED, NEVER, REFUSED, LedgerRow, Outcome, merged
from inductoscope.analysis.rules import diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, InductorGraph, Recording, TimedChoice
from inductoscope.model.join import GraphJoin, compiled_graphs
from inductoscope.model.kernels import NativeIndex, generated
from inductoscope.model.stored_recordings import running_streams
from inductoscope.model.target import left_out, recording_target, target_note, target_notes
from inductoscope.model.timeline import Timeline, timeline
from inductoscope.packages.package import count_guards, recorded_package
from inductoscope.recording.events import Kernel
from inductoscope.recording.values import texts
from inductoscope.torch_facts.frames import arrows
from inductoscope.torch_facts.package_wrappers import WrapperText
from inductoscope.torch_facts.stages import AOT_INDUCTOR
from inductoscope.version import __version__
from inductoscope.views.explain import STAGES, stage_summary
from inductoscope.views.page import graph_chunks
from inductoscope.views.page.contract import (
    AutotuneHead,
    BufferRow,
    GraphSources,
    Guards,
    Index,
    KernelRow,
    LedgerCause,
    LedgerHead,
    ModulesHead,
    NamedThing,
    PackageConstant,
    PackageContents,
    PackageInput,
    PackageSize,
    PageChoice,
    PageCompile,
    PageFailure,
    PageFinding,
    PageGraph,
    PageLane,
    PageProgram,
    PageSpan,
    PageTable,
    PageTarget,
    PageTimeline,
    Search,
    Severity,
    SharedTable,
    StageTime,
    TimelineHead,
)
from inductoscope.views.page.graph_chunks import buffer_rows, chunk_of, graph_digests, recorded
from inductoscope.views.page.graph_tables import (
    GraphSummary,
    costliest,
    kernel_rows,
    module_tree,
    summarise,
)
from inductoscope.views.page.measurements import StoredMeasurements, StoredProfile
from inductoscope.views.page.stored_verdict import verdict_view
from inductoscope.views.report.summary import torch_version

Chunk = Callable[[], Any]


class Contents:
    """The page as data, each part of which is built on demand."""

    def __init__(
        self,
        recording: Recording,
        *,
        live: bool = False,
        assembly: int = 0,
    ) -> None:
        """`assembly` is the number of C++ kernels to show as assembly; a live page has it on
        demand.
        """
        self._recording, self._live, self._assembly = recording, live, assembly
        self._goes_on = recording.ending is None and goes_on(recording, live=live)
        self._natives = NativeIndex(recording)
        self._graphs = list(compiled_graphs(recording))
        # Only the latest graph's join is cached: all joins together would take gigabytes.
        self._latest: tuple[int, GraphJoin] | None = None
        self._summaries: dict[int, GraphSummary] = {}

    @property
    def graphs(self) -> range:
        return range(len(self._graphs))

    def summary(self, number: int) -> GraphSummary:
        if number not in self._summaries:
            self._summaries[number] = summarise(number, self._join(number))
        return self._summaries[number]

    def keep_summary(self, number: int, summary: GraphSummary) -> None:
        """Store a graph's summary made by another process together with the graph's chunks."""
        self._summaries[number] = summary

    def _join(self, number: int) -> GraphJoin:
        latest = self._latest
        if latest is None or latest[0] != number:
            self._latest = latest = number, GraphJoin(self._recording, *self._graphs[number])
        return latest[1]

    @property
    def _every_summary(self) -> list[GraphSummary]:
        return [self.summary(number) for number in self.graphs]

    @cached_property
    def findings(self) -> tuple[PageFinding, ...]:
        return tuple(finding_view(finding) for finding in diagnose(self._recording))

    def find_out(self) -> None:
        """Precompute the findings and the timeline, which need no graph summaries."""
        self.findings, self.timeline  # noqa: B018

    @cached_property
    def index(self) -> Index:
        """The index of the page, which is loaded at once."""
        recording = self._recording
        target = recording_target(recording)
        positions = {id(compile_): at for at, compile_ in enumerate(recording.compiles)}
        return Index(
            schema=1,
            inductoscope=__version__,
            title=title(recording),
            recording=recording.path,
            live=self._live,
            finished=not (self._live and self._goes_on),
            target=PageTarget(target, target_note(recording)) if target else None,
            program=program(recording, goes_on=self._goes_on),
            findings=self.findings,
            verdict=verdict_view(recording),
            notes=notes(recording),
            stages=stages(recording),
            compiles=_compiles(recording),
            graphs=tuple(
                _graph(number, positions[id(compile_)], graph)
                for number, (compile_, graph) in enumerate(self._graphs)
            ),
            kernels=PageTable.of(
                KernelRow,
                kernel_rows(recording.graphs, self._every_summary, self._natives),
            ),
            ledger=_ledger_head(self._every_summary),
            autotune=_autotune(recording),
            timeline=TimelineHead("timeline", len(self.timeline.spans)),
            names="names" if self._graphs else "",
            modules=ModulesHead(chunk="modules" if self._graphs else ""),
            profile=self._profile.head,
            memory=self._measured.heads.get("memory"),
            advice=self._measured.heads.get("advice"),
            costs=self._measured.heads.get("costs"),
        )

    @cached_property
    def chunks(self) -> dict[str, Chunk]:
        """The chunks by name, the largest first."""
        found: dict[str, Chunk] = {}
        for chunks in self.chunks_by_graph:
            found.update(chunks)
        for number, compile_ in enumerate(self._recording.compiles):
            if compile_.guards:
                found[f"guards-{number}"] = partial(guards, self._recording, compile_)
            held = _package_of(self._recording, compile_)
            if held is not None:
                found[f"package-{number}"] = partial(package, held)
        found["autotune"] = lambda: autotune(self._recording)
        if self._profile.head is not None:
            found["profile"] = lambda: self._profile.chunk
        return {**found, **self._measured.chunks, **self.chunks_of_index}

    @cached_property
    def chunks_by_graph(self) -> list[dict[str, Chunk]]:
        """The chunks of each graph. A chunk that several graphs share is listed with the first."""
        found: list[dict[str, Chunk]] = []
        shared: set[str] = set()
        for number in self.graphs:
            chunks = self._chunks_of_graph(number)
            found.append({name: make for name, make in chunks.items() if name not in shared})
            shared.update(chunks)
        return found

    def _chunks_of_graph(self, number: int) -> dict[str, Chunk]:
        forms = self._forms(number)
        found: dict[str, Chunk] = {
            f"sources-{number}": lambda: self._sources(number, forms),
            f"passes-{number}": lambda: graph_chunks.passes(self._join(number)),
            **_recorded_graphs(GraphJoin(self._recording, *self._graphs[number])),
        }
        found[f"schedule-{number}"] = lambda: graph_chunks.schedule(self._join(number))
        found[f"buffers-{number}"] = lambda: PageTable.of(
            BufferRow, buffer_rows(self._join(number))
        )
        for form in forms:
            found[form.chunk] = graph_chunks.form_chunk(self._recording, form)
        return found

    def _sources(self, number: int, forms: list[graph_chunks.Form]) -> GraphSources:
        # Now, while the join of this graph is there.
        self.summary(number)
        return graph_chunks.sources(self._join(number), self._natives, forms)

    @cached_property
    def chunks_of_index(self) -> dict[str, Chunk]:
        """The chunks with data that the index needs too, which therefore cost no extra."""
        numbers = _numbers(self._recording)
        of_graphs: dict[str, Chunk] = {
            "names": lambda: PageTable.of(
                NamedThing, (named for each in self._every_summary for named in each.named)
            ),
            "modules": lambda: module_tree(
                self._graphs, self._every_summary, self._profile.seconds
            ),
        }
        return {
            **(of_graphs if self._graphs else {}),
            "ledger": lambda: SharedTable.joined(
                LedgerRow, [each.ledger for each in self._every_summary]
            ),
            "timeline": lambda: timeline_view(self.timeline, numbers),
        }

    @cached_property
    def slow_chunks(self) -> list[str]:
        """The names of the chunks that run a compiler, which takes seconds."""
        if not self._assembled:
            return []
        of_graphs = (self._forms(number) for number in self.graphs)
        return [form.chunk for forms in of_graphs for form in forms if form.name == "asm"]

    def _forms(self, number: int) -> list[graph_chunks.Form]:
        graph = self._graphs[number][1]
        return graph_chunks.forms_of(number, graph, self._natives, self._assembled)

    @cached_property
    def _assembled(self) -> frozenset[Kernel]:
        if self._live:
            every = [k for _, graph in self._graphs for k in generated(graph)]
            return frozenset(k for k in every if k.language == "C++")
        return frozenset(
            costliest(map(self._join, self.graphs), self._assembly) if self._assembly else ()
        )

    @cached_property
    def _profile(self) -> StoredProfile:
        return StoredProfile(self._recording, [graph for _, graph in self._graphs])

    @cached_property
    def _measured(self) -> StoredMeasurements:
        return StoredMeasurements(Path(self._recording.path))

    @cached_property
    def timeline(self) -> Timeline:
        return timeline(self._recording)


def _numbers(recording: Recording) -> dict[tuple[str, str], int]:
    return {(c.process, g.key): number for number, (c, g) in enumerate(compiled_graphs(recording))}


# --- compiles, graphs and kernels -----------------------------------------------------------------


def _compiles(recording: Recording) -> tuple[PageCompile, ...]:
    found, number = [], 0
    for position, compile_ in enumerate(recording.compiles):
        graphs = tuple(range(number, number + len(compile_.inductor)))
        number += len(graphs)
        found.append(_compile(recording, position, graphs))
    return tuple(found)


def _compile(recording: Recording, position: int, graphs: tuple[int, ...]) -> PageCompile:
    compile_ = recording.compiles[position]
    return PageCompile.showing(
        compile_,
        function=f"rest of {compile_.resumed}" if compile_.resumed else compile_.function,
        stages=compile_.stage_seconds,
        graphs=graphs,
        guard_count=count_guards(recording, compile_),
        guards=f"guards-{position}" if compile_.guards else "",
        package=f"package-{position}" if _package_of(recording, compile_) else "",
        errors=tuple(
            PageFailure.showing(error, traceback=recording.payload(error.traceback))
            for error in compile_.errors
        ),
    )


def _graph(number: int, position: int, graph: InductorGraph) -> PageGraph:
    return PageGraph.showing(
        graph,
        compile=position,
        seconds={stage: round(spent, 4) for stage, spent in graph.seconds.items()},
        operations=len(graph.lowered),
        kernels=len(generated(graph)),
        fusions=len(graph.fusions),
        chunk=f"sources-{number}",
        passes=f"passes-{number}",
        schedule=f"schedule-{number}",
        buffers=f"buffers-{number}",
    )


def _recorded_graphs(join: GraphJoin) -> dict[str, Chunk]:
    digests = {*graph_digests(join).values(), *graph_chunks.changed_graphs(join)}
    return {
        chunk_of(digest): partial(recorded, join.recording, digest) for digest in sorted(digests)
    }


def _package_of(recording: Recording, compile_: Compile) -> WrapperText | None:
    """Return the package of an AOTInductor compile; None if there is none, or it is damaged."""
    return recorded_package(recording, compile_) if compile_.flow == AOT_INDUCTOR else None


def _ledger_head(summaries: Sequence[GraphSummary]) -> LedgerHead:
    counts = sum((each.outcomes for each in summaries), Counter[Outcome]())
    causes = merged(condition for each in summaries for condition in each.conditions)
    return LedgerHead(
        chunk="ledger",
        causes=tuple(map(LedgerCause.showing, causes)),
        fused=counts[FUSED],
        refused=counts[REFUSED],
        never=counts[NEVER],
    )


def _autotune(recording: Recording) -> AutotuneHead:
    searches = [search for graph in recording.graphs for search in graph.autotunes]
    choices = sum(len(search.choices) for search in searches)
    return AutotuneHead("autotune", len(searches), choices)


# --------------------------------------------------------------------------------------------------
# What the first view says of the run: the program, findings, what is missing, seconds by stage.


def goes_on(recording: Recording, *, live: bool) -> bool:
    """Check whether the program still runs; where that cannot be seen, a live page assumes it."""
    running = running_streams(Path(recording.path))
    return bool(running) if running is not None and recording.processes else live


def program(recording: Recording, *, goes_on: bool) -> PageProgram:
    return PageProgram(
        command=" ".join(texts(recording.manifest.get("command"))),
        torch=torch_version(recording),
        python=next((p.python for p in recording.processes if p.python), ""),
        started=_started(recording),
        seconds=recording.ending.seconds if recording.ending else None,
        ending=_ending(recording, goes_on=goes_on),
    )


def title(recording: Recording) -> str:
    """Return the page's title: the script's file name, else the last word of the command."""
    words = texts(recording.manifest.get("command"))
    scripts = [word for word in words if word.endswith(".py")]
    return (scripts or list(words[-1:]) or ["recording"])[0].rpartition("/")[2]


def _started(recording: Recording) -> str:
    created = recording.manifest.get("created")
    if not isinstance(created, (int, float)):
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
    except (OverflowError, ValueError, OSError):
        return ""


def _ending(recording: Recording, *, goes_on: bool) -> str:
    ending = recording.ending
    if recording.manifest.get("recompiled_from"):
        return "recompiled from recorded graphs"
    if ending is None:
        return "none so far" if goes_on else "the recording has no end"
    return f"killed by signal {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"


# Problems that cost time but keep the result correct.
_SLOW = ("graph_breaks", "recompiles")


def finding_view(finding: Finding) -> PageFinding:
    problem: Severity = "warning" if finding.rule in _SLOW else "error"
    # The source line and the path to it come first, then the evidence.
    stack = arrows(finding.stack) if len(finding.stack) > 1 else ""
    return PageFinding.showing(
        finding,
        severity=problem if finding.is_problem else "note",
        text="\n".join([*filter(None, (finding.code, stack)), *finding.evidence]),
        place=finding.source,
        what_to_do=finding.advice,
    )


_MOST_DAMAGE = 20


def notes(recording: Recording) -> tuple[str, ...]:
    """Return notes on missing data of the recording, with the reasons."""
    notes = [f"{where}: {what}" for where, what in recording.damage[:_MOST_DAMAGE]]
    if len(recording.damage) > _MOST_DAMAGE:
        notes.append(f"{len(recording.damage) - _MOST_DAMAGE} more places are damaged.")
    for process in recording.processes:
        notes += [f"View off: {view}" for view in process.views_off]
        notes += [f"A hook failed: {error}" for error in process.hook_errors]
        if process.stopped:
            notes.append(f"Process {process.pid} stopped recording: {process.stopped}")
    notes += [f"Compile {name} was skipped: {why}" for name, why in left_out(recording)]
    notes += [f"Compile {name}: {text}" for name, text in target_notes(recording)]
    cached = [graph.key for graph in recording.graphs if graph.cached]
    if cached:
        notes.append(
            f"{', '.join(cached[:8])} came from a cache: the stages before the kernels did not "
            "run. 'inductoscope run --fresh' recompiles everything, in a private cache."
        )
    cut_off = [graph.key for graph in recording.graphs if not graph.finished]
    if cut_off and recording.ending is not None:
        notes.append(
            f"{', '.join(cut_off[:8])}: the compile did not get to its end, so there is nothing of "
            "the stages that would have come next."
        )
    if recording.unknown_events:
        kinds = ", ".join(recording.unknown_events)
        notes.append(f"Skipped events of a newer version: {kinds}.")
    return tuple(dict.fromkeys(notes))


def stages(recording: Recording) -> tuple[StageTime, ...]:
    seconds: dict[str, float] = {}
    for compile_ in recording.compiles:
        for stage, spent in compile_.stage_seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    known = [stage.name for stage in STAGES if stage.name in seconds]
    return tuple(
        StageTime(name, round(seconds[name], 4), stage_summary(name))
        for name in dict.fromkeys([*known, *seconds])
    )


# --- Chunks of the whole run: autotuning, guards, packages, the timeline --------------------------


def autotune(recording: Recording) -> tuple[Search, ...]:
    return tuple(
        Search.showing(search, graph=graph.key, choices=tuple(map(_choice, search.choices)))
        for graph in recording.graphs
        for search in graph.autotunes
    )


def _choice(choice: TimedChoice) -> PageChoice:
    is_timed = choice.milliseconds is not None and not choice.failed
    return PageChoice.showing(choice, state="timed" if is_timed else choice.state)


def guards(recording: Recording, compile_: Compile) -> Guards:
    rows = recording.data(compile_.guards)
    lines = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            code = row.get("code")
            text = "; ".join(map(str, code)) if isinstance(code, list) else str(code or "")
            head = " ".join(str(row.get(name) or "") for name in ("kind", "source")).strip()
            lines.append(f"{head}: {text}" if text else head)
    return Guards("\n".join(lines))


def package(found: WrapperText) -> PackageContents:
    """Return inputs, size symbols and constants of a package, largest constants first."""
    return PackageContents(
        inputs=tuple(
            PackageInput.showing(guard, sizes=guard.size_texts, strides=guard.stride_texts)
            for guard in found.guards.inputs
        ),
        sizes=tuple(map(PackageSize.showing, found.guards.symbols)),
        constants=tuple(
            PackageConstant.showing(
                constant,
                shape=f"[{', '.join(map(str, constant.shape))}]",
                written_by=", ".join(constant.written_by),
            )
            for constant in sorted(found.constants, key=lambda constant: -constant.bytes)
        ),
    )


def timeline_view(found: Timeline, numbers: Mapping[tuple[str, str], int]) -> PageTimeline:
    return PageTimeline(
        lanes=tuple(map(PageLane.showing, found.lanes)),
        spans=tuple(
            PageSpan.showing(
                span,
                start=round(span.start, 6),
                seconds=round(span.seconds, 6),
                label=span.label if span.finished else f"{span.label} (not finished)",
                graph=numbers.get((found.lanes[span.lane].process, span.graph)),
            )
            for span in found.spans
        ),
    )
