"""The compile time of a program by stage, pass, node, line, compiler and cache.

The program is recorded twice: cold in a new private cache, then warm. Self time excludes nested
stages and passes, total time includes them. Compilers and workers run in parallel with the program,
so their seconds add up to more than the program waited for them.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.launch.environment import private_cache
from inductoscope.launch.program import run_recorded
from inductoscope.model.entities import Compile, Ending, InductorGraph, Recording
from inductoscope.model.fold import load
from inductoscope.model.join import GraphJoin
from inductoscope.model.kernels import NativeIndex
from inductoscope.model.process_position import OpenStages
from inductoscope.profiling.compile_growth import MeasuredGrowth
from inductoscope.recording.events import (
    CacheKeyMade,
    PassesTimed,
    ProcessStart,
    StageEnd,
    StageStart,
)
from inductoscope.recording.location import create_recording
from inductoscope.recording.reader import open_recording
from inductoscope.torch_facts import stages

# A row of the JSON of `profile --compile`.
Row = dict[str, Any]

# --- caches ---------------------------------------------------------------------------------------

# '[hash] name: text'; the name may hold that of a setting or an input in brackets.
_FIELD = re.compile(r"\[(?P<hash>\w+)\] (?P<name>[^:]+(?:\[[^\]]*\])?): ?(?P<text>.*)", re.DOTALL)
_MOST_SHOWN = 4
_LONGEST = 60


@dataclass(frozen=True)
class CacheKey:
    """A cache key computed in a run, and the fields that it was hashed from."""

    compile: str
    key: str
    fields: tuple[str, ...]


def _cache_uses(
    recording: Recording, keys: Sequence[CacheKey], stored: Sequence[CacheKey]
) -> Iterator[Row]:
    """Yield all cache look-ups of a run; for a miss, the difference from the nearest key.

    `keys` were computed in this run, `stored` in the previous one.
    """
    known = {key.key: key for key in keys}
    for compile_ in recording.compiles:
        for use in compile_.caches:
            why = use.reason
            if use.outcome == "miss" and use.key in known:
                why = _why(known[use.key], [k for k in keys if k.key != use.key], stored)
            yield {
                "cache": use.cache,
                "compile": compile_.id,
                "outcome": use.outcome,
                "key": use.key,
                "why": why,
            }


def _why(key: CacheKey, others: Sequence[CacheKey], stored: Sequence[CacheKey]) -> str:
    if any(other.key == key.key for other in stored):
        return "the run before made the same key: the entry was not stored, or did not fit"
    others = [*others, *stored]
    if not others:
        return "the cache was empty"
    nearest = min(others, key=lambda other: len(differing_fields(key, other)))
    fields = differing_fields(key, nearest)
    more = f" and {len(fields) - _MOST_SHOWN} more" if len(fields) > _MOST_SHOWN else ""
    shown = "; ".join(fields[:_MOST_SHOWN])
    return f"differs from the nearest, compile {nearest.compile}, in {shown}{more}"


def differing_fields(key: CacheKey, other: CacheKey) -> list[str]:
    """Return the fields whose hashes differ, or that only one key has, with their values."""
    own, theirs = ({m["name"]: m for m in map(_FIELD.match, k.fields) if m} for k in (key, other))
    found = []
    for name in dict.fromkeys([*own, *theirs]):
        mine, yours = own.get(name), theirs.get(name)
        if mine is None or yours is None:
            found.append(f"{name} (only {'here' if yours is None else 'there'})")
        elif mine["hash"] != yours["hash"]:
            found.append(f"{name}{_values(mine['text'], yours['text'])}")
    return found


def _values(mine: str, yours: str) -> str:
    """Return both values, from just before their first difference."""
    mine, yours = " ".join(mine.split()), " ".join(yours.split())
    if mine == yours:
        return ""
    at = next((n for n, (a, b) in enumerate(zip(mine, yours, strict=False)) if a != b), 0)
    begin = max(0, at - 15)
    end = begin + _LONGEST
    return f" ({yours[begin:end]} there, {mine[begin:end]} here)"


# --- the costs of a recorded run ------------------------------------------------------------------


def recorded_costs(recording: Recording, earlier: Recording | None = None) -> dict[str, Any]:
    """Break down the compile time of a recording, each part sorted from slowest to fastest.

    `earlier` is the run that filled the cache, if there was one.
    """
    events = _Events(recording)
    stored = _Events(earlier).keys if earlier is not None else []
    nodes = sorted(_nodes(recording), key=_seconds)
    return {
        "seconds": recording.ending.seconds if recording.ending is not None else 0.0,
        "compiles": [_compile(compile_) for compile_ in recording.compiles],
        "stages": events.in_order,
        "passes": sorted(events.passes.values(), key=lambda each: -each["own_seconds"]),
        "nodes": nodes,
        "lines": _lines(nodes),
        "rounds": sorted(_rounds(recording), key=_seconds),
        "natives": sorted(_natives(recording), key=_seconds),
        "caches": list(_cache_uses(recording, events.keys, stored)),
        "notes": list(_notes(recording)),
    }


def _seconds(row: Row) -> float:
    return -(row["seconds"] or 0.0)


def _compile(compile_: Compile) -> Row:
    graphs = compile_.inductor
    return {
        "compile": compile_.id,
        "process": compile_.process,
        "function": compile_.function,
        "place": compile_.place,
        "outcome": compile_.outcome,
        "seconds": compile_.seconds,
        "nodes": sum(len(graph.lowered) for graph in graphs),
        "from_cache": bool(graphs) and all(graph.cached for graph in graphs),
    }


class _Events:
    def __init__(self, recording: Recording) -> None:
        self._stages: dict[str, Row] = {}
        self.passes: dict[tuple[str, str], Row] = {}
        self.keys: list[CacheKey] = []
        # The open stages by stream.
        open_ = defaultdict[str, OpenStages](lambda: OpenStages(names_threads=True))
        for entry in open_recording(Path(recording.path)).entries():
            event = entry.event
            if isinstance(event, ProcessStart):
                open_[entry.stream] = OpenStages(names_threads=event.names_threads)
            elif isinstance(event, StageStart):
                open_[entry.stream].enter(entry)  # type: ignore[arg-type]
            elif isinstance(event, StageEnd):
                self._leave(open_[entry.stream], entry.time, event)
            elif isinstance(event, PassesTimed):
                self._add_passes(event)
            elif isinstance(event, CacheKeyMade):
                fields = recording.data(event.payload)
                texts = tuple(map(str, fields)) if isinstance(fields, list) else ()
                self.keys.append(CacheKey(event.compile, event.key, texts))

    def _leave(self, inside: OpenStages, time: float, event: StageEnd) -> None:
        spent = self._stages.setdefault(
            event.stage,
            {"stage": event.stage, "own_seconds": 0.0, "total_seconds": 0.0, "entered": 0},
        )
        spent["own_seconds"] += event.seconds
        spent["entered"] += 1
        ended = inside.leave(event)
        # A recursive stage is already part of the outer one's total.
        same = event.stage, event.thread
        again = any((each.event.stage, each.event.thread) == same for each in inside.all)
        if ended and not again:
            spent["total_seconds"] += time - ended[0].time
        spent["total_seconds"] = max(spent["total_seconds"], spent["own_seconds"])

    def _add_passes(self, event: PassesTimed) -> None:
        for each in event.passes:
            name, stage = str(each.get("name")), event.stage
            nothing = {"own_seconds": 0.0, "total_seconds": 0.0, "runs": 0}
            new = {"name": name, "stage": stage, **nothing}
            spent = self.passes.setdefault((name, stage), new)
            spent["own_seconds"] += float(each.get("own") or 0.0)
            spent["total_seconds"] += float(each.get("seconds") or 0.0)
            spent["runs"] += int(each.get("runs") or 0)

    @property
    def in_order(self) -> list[Row]:
        order = {name: number for number, name in enumerate(stages.COMPILER_ORDER)}
        return sorted(self._stages.values(), key=lambda row: order.get(row["stage"], len(order)))


def _graphs(recording: Recording) -> Iterator[tuple[Compile, InductorGraph]]:
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            yield compile_, graph


def _nodes(recording: Recording) -> Iterator[Row]:
    for compile_, graph in _graphs(recording):
        final = GraphJoin(recording, compile_, graph).final
        places = {node.name: str(node.place or "") for node in final.nodes} if final else {}
        for node in graph.lowered:
            yield {
                "node": node.node,
                "target": node.target,
                "graph": graph.key,
                "seconds": node.seconds,
                "source": places.get(node.node, ""),
            }


def _lines(nodes: Iterable[Row]) -> list[Row]:
    found: dict[str, list[float]] = {}
    for node in nodes:
        if node["source"]:
            found.setdefault(node["source"], []).append(node["seconds"])
    lines = [
        {"source": place, "seconds": round(sum(each), 6), "nodes": len(each)}
        for place, each in found.items()
    ]
    return sorted(lines, key=_seconds)


def _rounds(recording: Recording) -> Iterator[Row]:
    for _, graph in _graphs(recording):
        for each in graph.rounds:
            yield {
                "graph": graph.key,
                "number": each.round,
                "before": each.before,
                "after": each.after,
                "seconds": each.seconds,
            }


def _natives(recording: Recording) -> Iterator[Row]:
    index = NativeIndex(recording)
    names: dict[int, str] = {}
    for _, graph in _graphs(recording):
        for kernel in graph.kernels:
            for native in index.of(kernel):
                names.setdefault(id(native), kernel.name)
    for native in recording.natives:
        name = native.kernel or names.get(id(native)) or Path(native.source).name
        is_cpp = native.tool == "c++"
        yield {
            "tool": native.tool,
            "kernel": f"{name} ({native.config})" if native.config else name,
            "seconds": native.seconds,
            "characters": len(recording.payload(native.payload)) if is_cpp else 0,
            "process": native.process,
            "failed": bool(native.error) or bool(native.exit_code),
            "from_cache": native.cache_hit,
        }


def _notes(recording: Recording) -> Iterator[str]:
    compiling = {compile_.process for compile_ in recording.compiles}
    if len(compiling) > 1:
        yield f"{len(compiling)} processes compiled; their seconds are added up"
    unfinished = [native for native in recording.natives if native.seconds is None]
    if unfinished:
        yield f"{len(unfinished)} calls of a native compiler never ended"
    for process in recording.processes:
        for stage in process.unfinished:
            where = f" (compile {stage.compile})" if stage.compile else ""
            yield f"{stage.stage} was entered and never left{where}; its time is missing"
        for view in process.views_off:
            yield f"not recorded: {view}"
    failed = [compile_.id for compile_ in recording.compiles if compile_.errors]
    if failed:
        yield f"compile {', '.join(failed[:4])} failed half-way; later stages are missing"


# --- running the program --------------------------------------------------------------------------

Say = Callable[[str], None]


@dataclass(frozen=True)
class CompileProfile:
    ending: Ending
    cold: dict[str, Any]
    # The warm run; None if the cold run failed, or compiled nothing.
    warm: dict[str, Any] | None = None
    growth: MeasuredGrowth | None = None

    @property
    def is_empty(self) -> bool:
        return not self.cold["compiles"]


def profile_compile(
    command: Sequence[str], folder: Path, *, stdout: int | None, say: Say
) -> CompileProfile:
    """Record the program twice: with an empty cache, and with the cache that the first run filled.

    The second run's output is not shown, because it repeats the first one's.
    """
    with tempfile.TemporaryDirectory(prefix="inductoscope-cache-") as cache:
        variables = private_cache(Path(cache))
        ending = run_recorded(command, folder, variables=variables, stdout=stdout)
        recording = load(folder)
        cold = CompileProfile(ending, _run(recording, ending))
        if ending.exit_code != 0 or cold.is_empty:
            return cold
        say("running it again, served from the cache")
        place = create_recording(list(command), output=folder / "warm")
        with open(os.devnull, "wb") as nowhere:
            again = run_recorded(command, place, variables=variables, stdout=nowhere.fileno())
        return CompileProfile(ending, cold.cold, _run(load(place), again, recording))


def _run(recording: Recording, ending: Ending, earlier: Recording | None = None) -> dict[str, Any]:
    return {
        "recording": str(recording.path),
        "exit_code": ending.exit_code,
        "compile_seconds": round(sum(each.seconds for each in recording.compiles), 6),
        **recorded_costs(recording, earlier),
    }
