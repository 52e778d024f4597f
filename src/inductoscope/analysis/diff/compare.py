"""Puts two recordings side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from inductoscope.analysis.diff.entities import (
    Difference,
    Fact,
    GraphDifference,
    OnlyIn,
    PassCount,
)
from inductoscope.analysis.diff.fusions import fusion_changes
from inductoscope.analysis.diff.kernels import kernel_changes
from inductoscope.analysis.diff.matching import Matched, match_compiles, match_graphs
from inductoscope.analysis.diff.settings import are_recorded, different_settings
from inductoscope.analysis.diff.side import Side
from inductoscope.analysis.diff.stages import compare_stages
from inductoscope.analysis.diff.surroundings import notes, surroundings
from inductoscope.model.entities import Compile, InductorGraph, Recording
from inductoscope.model.native import NativeIndex

_UNSEEN = (
    "The versions and the recorded environment variables are the same. {settings}: look for the "
    "cause in the program itself."
)
_SAME_SETTINGS = "So are the settings of torch._inductor, torch._dynamo and torch._functorch"
_NO_SETTINGS = "Settings made in the program were not recorded by this version of inductoscope"

Run = tuple[Recording, NativeIndex]
Runs = tuple[Run, Run]
Seconds = Mapping[str, tuple[float, float]]


def compare(first: Recording, second: Recording) -> Difference:
    """Everything that differs, and what could not be compared."""
    compiles = match_compiles(first, second)
    runs = (first, NativeIndex(first)), (second, NativeIndex(second))
    found = Difference(
        first=first.path,
        second=second.path,
        surroundings=surroundings(first, second),
        settings=different_settings(compiles.pairs),
        graphs=tuple(graph for pair in compiles.pairs for graph in _compare_compile(runs, *pair)),
        only=tuple(_only(compiles)),
        outcomes=tuple(_outcomes(compiles)),
        seconds=_joined(_seconds(first), _seconds(second)),
        notes=(*notes(first, "first"), *notes(second, "second")),
    )
    if not found.differs or found.surroundings or found.settings:
        return found
    recorded = all(are_recorded(recording.compiles) for recording in (first, second))
    unseen = _UNSEEN.format(settings=_SAME_SETTINGS if recorded else _NO_SETTINGS)
    return replace(found, notes=(*found.notes, unseen))


# --- one compile ----------------------------------------------------------------------------------


def _compare_compile(runs: Runs, one: Compile, other: Compile) -> Iterator[GraphDifference]:
    (first, first_natives), (second, second_natives) = runs
    found = match_graphs((first, second), one, other)
    pairs: list[tuple[InductorGraph | None, InductorGraph | None]] = [*found.pairs]
    pairs += [(graph, None) for graph in found.only_first]
    pairs += [(None, graph) for graph in found.only_second]
    for number, (ours, theirs) in enumerate(pairs or [(None, None)]):
        yield _compare_graph(
            Side(first, one, ours, first_natives),
            Side(second, other, theirs, second_natives),
            of_compile=number == 0,
        )


def _compare_graph(first: Side, second: Side, *, of_compile: bool) -> GraphDifference:
    """Passes that belong to several graphs are listed with the compile's first graph."""
    return GraphDifference(
        function=first.compile.function,
        place=first.compile.place,
        first=_key(first),
        second=_key(second),
        stages=tuple(compare_stages(first, second)),
        passes=tuple(_passes(first, second, of_compile=of_compile)),
        fusions=tuple(fusion_changes(first, second)),
        kernels=tuple(kernel_changes(first, second)),
        seconds=_graph_seconds(first, second),
    )


def _key(side: Side) -> str:
    return side.graph.key if side.graph else ""


def _passes(first: Side, second: Side, *, of_compile: bool) -> Iterator[PassCount]:
    """Passes that changed the graph more often in one run than in the other."""
    if any(side.graph is None or side.graph.cached for side in (first, second)):
        return
    ours, theirs = _counted(first, of_compile), _counted(second, of_compile)
    for stage, name in dict.fromkeys((*ours, *theirs)):
        counts = ours[stage, name], theirs[stage, name]
        if counts[0] != counts[1]:
            yield PassCount(stage, name, *counts)


def _counted(side: Side, of_compile: bool) -> Counter[tuple[str, str]]:
    wanted = {_key(side), *([""] if of_compile else [])}
    return Counter((p.stage, p.name) for p in side.compile.passes if p.graph in wanted)


def _graph_seconds(first: Side, second: Side) -> Seconds:
    ours, theirs = (side.graph.seconds if side.graph else {} for side in (first, second))
    return _joined(ours, theirs)


# --- all compiles ---------------------------------------------------------------------------------


def _only(found: Matched[Compile]) -> Iterator[OnlyIn]:
    for item in found.only_first:
        yield OnlyIn("first", item.id, item.function, item.place, item.outcome)
    for item in found.only_second:
        yield OnlyIn("second", item.id, item.function, item.place, item.outcome)


def _outcomes(found: Matched[Compile]) -> Iterator[Fact]:
    """Compiles that ended differently, or broke in other places."""
    for one, other in found.pairs:
        name = f"{one.function or one.id} ({one.place or 'unknown place'})"
        if _outcome(one) != _outcome(other):
            yield Fact(name, _outcome(one), _outcome(other))
        if len(one.breaks) != len(other.breaks):
            yield Fact(f"graph breaks in {name}", str(len(one.breaks)), str(len(other.breaks)))


def _outcome(compile_: Compile) -> str:
    raised = [error for error in compile_.errors if not error.swallowed]
    if raised:
        return f"{compile_.outcome}: {raised[-1].type} in stage {raised[-1].stage}"
    return compile_.outcome


def _seconds(recording: Recording) -> Mapping[str, float]:
    totals: Counter[str] = Counter()
    for compile_ in recording.compiles:
        totals.update(compile_.stage_seconds)
    return totals


def _joined(first: Mapping[str, float], second: Mapping[str, float]) -> Seconds:
    return {
        stage: (round(first.get(stage, 0.0), 6), round(second.get(stage, 0.0), 6))
        for stage in dict.fromkeys((*first, *second))
    }
