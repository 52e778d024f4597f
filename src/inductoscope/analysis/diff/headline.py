"""The one line that says what the second run did differently."""

from __future__ import annotations

from collections.abc import Callable

from inductoscope.analysis.diff.entities import (
    Difference,
    FusionChange,
    GraphDifference,
    StageComparison,
)
from inductoscope.torch_facts.stages import DYNAMO, PASSES
from inductoscope.wording import count_of

_MOST_NAMES = 4


def verdict(difference: Difference) -> str:
    """The first thing that differs, in the order in which the compiler works."""
    if not difference.graphs and not difference.only:
        return "Neither run compiled anything."
    if not difference.differs:
        return _same(difference)
    if difference.outcomes:
        fact = difference.outcomes[0]
        return f"{fact.name}: {fact.first} in the first run, {fact.second} in the second."
    changed = [graph for graph in difference.graphs if graph.differs]
    if not changed:
        return _only(difference)
    earliest = min(changed, key=_stage_number)
    more = (
        f" Different too: {count_of(len(changed) - 1, 'more graph')}." if len(changed) > 1 else ""
    )
    return f"{_sentence(earliest)}{more}"


def _same(difference: Difference) -> str:
    stages = [stage for graph in difference.graphs for stage in graph.stages]
    if not any(stage.status in ("same", "renamed") for stage in stages):
        return "Nothing could be compared; the reasons are below."
    if any(stage.status == "not compared" for stage in stages):
        return "The same, as far as both runs recorded it: not every stage could be compared."
    if any(stage.status == "renamed" for stage in stages):
        return "The same: only names differ."
    return "The same in every stage."


def _only(difference: Difference) -> str:
    item = difference.only[0]
    where = f"{item.function or item.compile} ({item.place or 'unknown place'})"
    more = f" {len(difference.only) - 1} more have no counterpart." if difference.only[1:] else ""
    return f"Only the {item.run} run compiled {where}.{more}"


def _stage_number(graph: GraphDifference) -> int:
    found = graph.first_different
    names = [stage.stage for stage in graph.stages]
    return names.index(found.stage) if found else len(names)


# --- one graph ------------------------------------------------------------------------------------


def _sentence(graph: GraphDifference) -> str:
    stage = graph.first_different
    if stage is None:
        return f"{graph.label}: the passes or kernels differ, the recorded stages do not."
    special = _SENTENCES.get(stage.stage)
    text = special(graph) if special else ""
    return text or _plain(graph, stage)


def _plain(graph: GraphDifference, stage: StageComparison) -> str:
    detail = f": {stage.detail}" if stage.detail else ""
    return f"{graph.label}: the runs first differ in stage {stage.stage}{detail}."


def _fusion(graph: GraphDifference) -> str:
    if not graph.fusions:
        return ""
    change = graph.fusions[0]
    more = len(graph.fusions) - 1
    rest = f", and {count_of(more, 'more fusion')} changed" if more else ""
    return f"{graph.label}: the second run {fusion_text(change)}{rest}."


def fusion_text(change: FusionChange) -> str:
    """A fusion that was lost or gained, with the reason, in words."""
    names = f"{_names(change.operations)} with {_names(change.others)}"
    said = f"torch says '{change.reason}'" if change.in_torchs_words else change.reason
    if change.what == "lost":
        return f"lost the fusion of {names} because {said}"
    return f"gained the fusion of {names} (the first run had none: {said})"


def _names(names: tuple[str, ...]) -> str:
    shown = list(names[:_MOST_NAMES]) + (["…"] if len(names) > _MOST_NAMES else [])
    return " + ".join(shown) or "?"


def _passes(graph: GraphDifference) -> str:
    stage = graph.first_different
    lost = [p.name for p in graph.passes if stage and p.stage == stage.stage and not p.second]
    gained = [p.name for p in graph.passes if stage and p.stage == stage.stage and not p.first]
    if lost:
        return f"{graph.label}: {_names(tuple(lost))} no longer changes the graph."
    if gained:
        return f"{graph.label}: {_names(tuple(gained))} changes the graph only in the second run."
    return ""


def _dynamo(graph: GraphDifference) -> str:
    stage = graph.first_different
    detail = f": {stage.detail}" if stage and stage.detail else ""
    return f"{graph.label}: Dynamo already captured a different graph{detail}."


def _kernel(graph: GraphDifference) -> str:
    changed = [kernel.name for kernel in graph.kernels]
    if not changed:
        return ""
    return f"{graph.label}: the same loops became different code, in {_names(tuple(changed))}."


_SENTENCES: dict[str, Callable[[GraphDifference], str]] = {
    DYNAMO: _dynamo,
    **dict.fromkeys(PASSES, _passes),
    "fusion": _fusion,
    "kernel": _kernel,
}
