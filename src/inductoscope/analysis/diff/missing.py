"""Why a stage of a graph is not in a recording, in words."""

from __future__ import annotations

from inductoscope.analysis.diff.side import Side
from inductoscope.vocabulary.counting import count_of
from inductoscope.vocabulary.stages import DYNAMO


def why_missing(side: Side, stage: str, *, run: str) -> str:
    """A sentence about the run called `run`."""
    return f"the {run} run has none: {_reason(side, stage)}"


def why_unnamed(first: Side, second: Side) -> str:
    """Why the names of the two runs cannot be matched; empty if they can."""
    for side, other, run in ((first, second, "first"), (second, first, "second")):
        lacking = [what for what in side.unnamed if what not in other.unnamed]
        if lacking:
            return f"the {run} run lacks {' and '.join(lacking)}, which are needed to match names"
    return ""


def _reason(side: Side, stage: str) -> str:
    hit = any(lookup.outcome == "hit" for lookup in side.compile.caches)
    if (side.graph is not None and side.graph.cached) or (hit and stage != DYNAMO):
        return "the graph came from a cache ('run --fresh' recompiles everything)"
    raised = [error for error in side.compile.errors if not error.swallowed]
    if raised:
        return f"the compile raised {raised[-1].type} in stage {raised[-1].stage}"
    if side.compile.outcome == "not finished" or (side.graph and not side.graph.finished):
        return _unfinished(side)
    if side.compile.outcome == "skipped":
        return "Dynamo left the frame to eager"
    off = side.process.views_off if side.process else ()
    if off:
        return f"its hooks were off: {'; '.join(off)}"
    if side.recording.damage:
        return f"{count_of(len(side.recording.damage), 'part')} of the recording could not be read"
    if side.graph is None:
        return "Inductor did not compile the graph"
    return "nothing was recorded, or it was removed later"


def _unfinished(side: Side) -> str:
    stages = side.process.unfinished if side.process else ()
    if side.process is not None and side.process.stopped:
        return f"the recording stopped: {side.process.stopped}"
    return f"the run ended in stage {stages[-1].stage}" if stages else "the compile never finished"
