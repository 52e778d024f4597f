"""What the page shows: an index that is there at once, and chunks that are made when asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from functools import cached_property
from typing import Any

from inductoscope.analysis.fusion.ledger import ledger
from inductoscope.analysis.rules import diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.as_json import as_json
from inductoscope.model.entities import Compile, InductorGraph, Kernel, NativeCompile, Recording
from inductoscope.model.join import GraphJoin
from inductoscope.model.native import NativeIndex
from inductoscope.model.target import left_out, recording_target, target_note, target_notes
from inductoscope.model.timeline import Timeline, timeline
from inductoscope.recording.values import texts
from inductoscope.version import __version__
from inductoscope.views.explain import STAGES, stage_summary
from inductoscope.views.page import graph_chunks, run_chunks
from inductoscope.views.page.stored_verdict import verdict_view
from inductoscope.views.report.summary import torch_version

View = dict[str, Any]
Chunk = Callable[[], Any]


class Contents:
    """The page as data; each part is made when it is asked for."""

    def __init__(self, recording: Recording, *, live: bool = False, assembly: int = 0) -> None:
        """`assembly`: of how many C++ kernels machine code is made; a live page makes it late."""
        self._recording, self._live, self._assembly = recording, live, assembly
        self._natives = NativeIndex(recording)
        self._graphs = _graphs(recording)

    @cached_property
    def index(self) -> View:
        """What is there at once."""
        recording, natives = self._recording, self._natives
        return {
            **_heading(recording, live=self._live),
            "findings": [_finding(finding) for finding in diagnose(recording)],
            "verdict": verdict_view(recording),
            "notes": _notes(recording),
            "stages": _stages(recording),
            "compiles": _compiles(recording),
            "graphs": [
                _graph(number, recording, compile_, graph)
                for number, (compile_, graph) in enumerate(self._graphs)
            ],
            "kernels": {
                "columns": _KERNEL_COLUMNS,
                "rows": [
                    _kernel(number, recording, kernel, natives.of(kernel))
                    for number, (_, graph) in enumerate(self._graphs)
                    for kernel in graph.kernels
                ],
            },
            "ledger": {"chunk": "ledger", **_outcomes(self._ledger)},
            "autotune": _autotune(recording),
            "timeline": {"chunk": "timeline", "spans": len(self._timeline.spans)},
        }

    @cached_property
    def chunks(self) -> dict[str, Chunk]:
        """What is shown on demand, by name. The largest come first."""
        found: dict[str, Chunk] = {}
        for number, (compile_, graph) in enumerate(self._graphs):
            join = GraphJoin(self._recording, compile_, graph)
            found.update(_chunks_of_graph(number, join, self._natives, self._assembled))
        for number, compile_ in enumerate(self._recording.compiles):
            if compile_.guards:
                found[f"guards-{number}"] = _guards(self._recording, compile_)
        found["autotune"] = lambda: run_chunks.autotune(self._recording)
        return {**found, **self.chunks_of_index}

    @cached_property
    def chunks_of_index(self) -> dict[str, Chunk]:
        """Chunks that the index needs too, so that making both costs no more than one."""
        numbers = _numbers(self._recording)
        return {
            "ledger": lambda: self._ledger,
            "timeline": lambda: run_chunks.timeline_view(self._timeline, numbers),
        }

    @property
    def compiles(self) -> bool:
        """Whether chunks take compilers, and so seconds."""
        return len(self._assembled) > 1

    @cached_property
    def _assembled(self) -> frozenset[Kernel]:
        every = [k for _, graph in self._graphs for k in graph.kernels if k.language == "C++"]
        return frozenset(every if self._live else every[: self._assembly])

    @cached_property
    def _ledger(self) -> list[View]:
        return [as_json(row) for row in ledger(self._recording)]

    @cached_property
    def _timeline(self) -> Timeline:
        return timeline(self._recording)


def _graphs(recording: Recording) -> list[tuple[Compile, InductorGraph]]:
    return [(compile_, graph) for compile_ in recording.compiles for graph in compile_.inductor]


def _numbers(recording: Recording) -> dict[tuple[str, str], int]:
    """The number of each graph, by its process and key."""
    return {(c.process, g.key): number for number, (c, g) in enumerate(_graphs(recording))}


# --- the head -------------------------------------------------------------------------------------


def _heading(recording: Recording, *, live: bool) -> View:
    command = " ".join(texts(recording.manifest.get("command")))
    target = recording_target(recording)
    return {
        "schema": 1,
        "inductoscope": __version__,
        "title": _title(recording),
        "recording": recording.path,
        "live": live,
        "finished": recording.ending is not None or not live,
        "target": None if not target else {"name": target, "note": target_note(recording)},
        "program": {
            "command": command,
            "torch": torch_version(recording),
            "python": next((p.python for p in recording.processes if p.python), ""),
            "started": _started(recording),
            "seconds": recording.ending.seconds if recording.ending else None,
            "ending": _ending(recording),
        },
    }


def _title(recording: Recording) -> str:
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


def _ending(recording: Recording) -> str:
    ending = recording.ending
    if recording.manifest.get("recompiled_from"):
        return "recorded graphs, compiled once more"
    if ending is None:
        return "no end was recorded"
    return f"died of signal {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"


def _finding(finding: Finding) -> View:
    return {
        "rule": finding.rule,
        "title": finding.title,
        "severity": _severity(finding),
        "confidence": finding.confidence,
        "text": "\n".join(finding.evidence),
        "place": finding.source,
        "what_to_do": finding.advice,
    }


# Problems that cost time and leave the result right.
_SLOW = ("graph_breaks", "recompiles")


def _severity(finding: Finding) -> str:
    if not finding.is_problem:
        return "note"
    return "warning" if finding.rule in _SLOW else "error"


def _notes(recording: Recording) -> list[str]:
    """What is missing, and why."""
    notes = [f"{where}: {what}" for where, what in recording.damage[:20]]
    for process in recording.processes:
        notes += [f"View off: {view}" for view in process.views_off]
        notes += [f"A hook failed: {error}" for error in process.hook_errors]
        if process.stopped:
            notes.append(f"Process {process.pid} stopped recording: {process.stopped}")
    notes += [f"Compile {name} was left out: {why}" for name, why in left_out(recording)]
    notes += [f"Compile {name}: {text}" for name, text in target_notes(recording)]
    cached = [graph.key for graph in recording.graphs if graph.cached]
    if cached:
        notes.append(
            f"{', '.join(cached[:8])} came from a cache: the stages before the kernels did not "
            "run. 'inductoscope run --fresh' recompiles everything, in a private cache."
        )
    if recording.unknown_events:
        kinds = ", ".join(recording.unknown_events)
        notes.append(f"Events of a newer version were passed over: {kinds}.")
    return list(dict.fromkeys(notes))


def _stages(recording: Recording) -> list[View]:
    seconds: dict[str, float] = {}
    for compile_ in recording.compiles:
        for stage, spent in compile_.stage_seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    known = [stage.name for stage in STAGES if stage.name in seconds]
    return [
        {"name": name, "seconds": round(seconds[name], 4), "explanation": stage_summary(name)}
        for name in dict.fromkeys([*known, *seconds])
    ]


# --- compiles, graphs and kernels -----------------------------------------------------------------


def _compiles(recording: Recording) -> list[View]:
    found, number = [], 0
    for position, compile_ in enumerate(recording.compiles):
        graphs = list(range(number, number + len(compile_.inductor)))
        number += len(graphs)
        found.append(_compile(position, compile_, graphs))
    return found


def _compile(position: int, compile_: Compile, graphs: list[int]) -> View:
    recompile = compile_.recompile
    return {
        "id": compile_.id,
        "process": compile_.process,
        "function": f"rest of {compile_.resumed}" if compile_.resumed else compile_.function,
        "place": compile_.place,
        "outcome": compile_.outcome,
        "reason": compile_.reason,
        "seconds": compile_.seconds,
        "stages": dict(compile_.stage_seconds),
        "graphs": graphs,
        "breaks": [{"reason": item.reason, "source": item.source} for item in compile_.breaks],
        "recompile": recompile and {"reasons": list(recompile.reasons), "limit": recompile.limit},
        "guard_count": compile_.guard_count,
        "guards": f"guards-{position}" if compile_.guards else "",
        "caches": [vars(lookup) for lookup in compile_.caches],
        "errors": [
            {
                "stage": error.stage,
                "type": error.type,
                "message": error.message,
                "source": error.source,
                "detail": error.detail,
                "traceback": error.traceback,
            }
            for error in compile_.errors
        ],
    }


def _graph(number: int, recording: Recording, compile_: Compile, graph: InductorGraph) -> View:
    return {
        "key": graph.key,
        "compile": next(n for n, item in enumerate(recording.compiles) if item is compile_),
        "phase": graph.phase,
        "cached": graph.cached,
        "finished": graph.finished,
        "seconds": {stage: round(spent, 4) for stage, spent in graph.seconds.items()},
        "operations": len(graph.lowered),
        "kernels": len(graph.kernels),
        "fusions": len(graph.fusions),
        "chunk": f"graph-{number}",
        "passes": f"passes-{number}",
        "schedule": f"schedule-{number}",
    }


_KERNEL_COLUMNS = [
    "name",
    "language",
    "graph",
    "operations",
    "lines",
    "seconds",
    "registers",
    "spills",
    "shared",
]


def _kernel(
    number: int, recording: Recording, kernel: Kernel, natives: tuple[NativeCompile, ...]
) -> list[Any]:
    seconds = [native.seconds for native in natives if native.seconds is not None]
    return [
        kernel.name,
        kernel.language,
        number,
        ", ".join(kernel.origins),
        recording.payload(kernel.digest).count("\n"),
        round(sum(seconds), 3) if seconds else None,
        _most(native.registers for native in natives),
        _most(native.spills for native in natives),
        _most(native.shared for native in natives),
    ]


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _chunks_of_graph(
    number: int, join: GraphJoin, natives: NativeIndex, assembled: Container[Kernel]
) -> dict[str, Chunk]:
    forms = graph_chunks.forms_of(number, join.graph, natives, assembled)
    found: dict[str, Chunk] = {
        f"graph-{number}": lambda: graph_chunks.linked(join, natives, forms),
        f"passes-{number}": lambda: graph_chunks.passes(join),
        f"schedule-{number}": lambda: graph_chunks.schedule(join),
    }
    for form in forms:
        found[form.chunk] = graph_chunks.form_chunk(join.recording, form)
    return found


def _guards(recording: Recording, compile_: Compile) -> Chunk:
    return lambda: run_chunks.guards(recording, compile_)


def _outcomes(rows: list[View]) -> View:
    names = {"fused": "fused", "refused": "refused", "never": "never tried"}
    return {key: sum(row["outcome"] == name for row in rows) for key, name in names.items()}


def _autotune(recording: Recording) -> View:
    searches = [search for graph in recording.graphs for search in graph.autotunes]
    choices = sum(len(search.choices) for search in searches)
    return {"chunk": "autotune", "searches": len(searches), "choices": choices}
