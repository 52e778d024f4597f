"""What a change should save, computed before it is tried from what the profile measured.

Nothing is predicted where the profile does not say: then the reason is given instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from inductoscope.profiling.advice.evidence import RecordedEvidence
from inductoscope.profiling.advice.flip import Flip
from inductoscope.profiling.kernels.profile import KernelProfile
from inductoscope.profiling.machine.limits import memory_seconds
from inductoscope.profiling.timings import FUNCTION

_BYTES = re.compile(r"([\d,]+) bytes are moved again")

# The share of the compiled calls that is left with a change, or the seconds per run that it saves;
# and how that was computed. None if it cannot be said.
Prediction = tuple[float | None, str] | None


def predicted(flip: Flip, evidence: RecordedEvidence) -> Flip:
    """The change with what it should save; or with why that cannot be said."""
    if flip.predicted is not None or flip.leaves_to_eager:
        return flip  # What is left to eager is predicted when eager has been timed.
    if evidence.profile is None:
        return flip
    if flip.left is not None:
        return flip
    if flip.rule in _SECONDS and (known := _SECONDS[flip.rule](flip, evidence)) is not None:
        return replace(flip, predicted=known[0], prediction=known[1])
    found = _SHARES[flip.rule](flip, evidence) if flip.rule in _SHARES else None
    if found is None or found[0] is None:
        return replace(flip, prediction="nothing that was measured says how much")
    return replace(flip, left=found[0], prediction=found[1])


def _lost_in_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    rows = _concerned(flip, evidence)
    if not rows or any(row.floor is None for row in rows):
        return None
    lost = evidence.left_without(sum(row.lost for row in rows))
    return lost, "what its kernels lose against the machine's limit"


def _whole_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    # A kernel that computes something as well as the copy is not gone without the copy.
    rows = [row for row in _concerned(flip, evidence) if len(row.operations) <= 1]
    if not rows:
        return None
    left = evidence.left_without(sum(row.total for row in rows))
    return left, "all the time of the kernels that copy"


def _moved_again(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    size = _BYTES.search(flip.why)
    machines = evidence.profile.machines if evidence.profile is not None else ()
    calls = max((graph.calls for graph in evidence.graphs), default=0)
    if size is None or not machines or not calls:
        return None
    moved = int(size[1].replace(",", ""))
    seconds = memory_seconds(machines[0], moved // 2, moved - moved // 2)
    if seconds is None:
        return None
    left = evidence.left_without(seconds * calls)
    return left, f"{moved:,} bytes at the speed of this machine's memory"


def _between_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    if not evidence.graphs:
        return None
    gaps = sum(graph.between.median * graph.calls for graph in evidence.graphs)
    return evidence.left_without(gaps), "all gaps between kernels"


def _in_guards(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    found = [
        (compile_.guard_microseconds or 0.0) * 1e-6 * evidence.calls_of(compile_.place)
        for compile_ in evidence.recording.compiles
        if compile_.place == flip.source
    ]
    return (max(found), "all guards of a call, as often as it is called") if found else None


def _at_breaks(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    """A call costs about as much outside of its graphs for each of them; one graph is left."""
    functions = evidence.profile.functions if evidence.profile is not None else ()
    called = [function for function in functions if function.kind == FUNCTION]
    graphs = [graph for graph in evidence.graphs if graph.calls]
    if len(called) != 1 or len(graphs) < 2 or not called[0].count:
        return None  # It would not be known which graphs are whose.
    whole = called[0].seconds.median
    outside = max(0.0, whole - sum(graph.seconds.median for graph in graphs))
    if not outside:
        return None
    left = 1 - outside * (1 - 1 / len(graphs)) / whole
    return left, f"what a call takes outside of its graphs, for one graph instead of {len(graphs)}"


def _concerned(flip: Flip, evidence: RecordedEvidence) -> Sequence[KernelProfile]:
    """The kernels that compute the line of the finding."""
    return [row for row in evidence.kernels if flip.source and flip.source in row.places]


_SHARES: dict[str, Callable[[Flip, RecordedEvidence], Prediction]] = {
    "scalar_loop": _lost_in_kernels,
    "recomputed": _lost_in_kernels,
    "register_spills": _lost_in_kernels,
    "split_reductions": _lost_in_kernels,
    "unsplit_reductions": _lost_in_kernels,
    "layout_copies": _whole_kernels,
    "kept_apart": _moved_again,
    "tiny_kernels": _between_kernels,
    "graph_breaks": _at_breaks,
}
_SECONDS: dict[str, Callable[[Flip, RecordedEvidence], Prediction]] = {
    "slow_guards": _in_guards,
}
