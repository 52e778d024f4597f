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

_BYTES = re.compile(r"([\d,]+) bytes are moved again")

# Seconds per run and how they were computed; None if it cannot be said.
Prediction = tuple[float, str] | None


def predicted(flip: Flip, evidence: RecordedEvidence) -> Flip:
    """The change with what it should save; or with why that cannot be said."""
    if flip.predicted is not None or flip.leaves_to_eager:
        return flip  # What is left to eager is predicted when eager has been timed.
    if evidence.profile is None:
        return flip
    found = _PREDICTIONS[flip.rule](flip, evidence) if flip.rule in _PREDICTIONS else None
    if found is None:
        return replace(flip, prediction="nothing that was measured says how much")
    return replace(flip, predicted=found[0], prediction=found[1])


def _lost_in_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    rows = _concerned(flip, evidence)
    if not rows or any(row.floor is None for row in rows):
        return None
    return sum(row.lost for row in rows), "what its kernels lose against the machine's limit"


def _whole_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    # A kernel that computes something as well as the copy is not gone without the copy.
    rows = [row for row in _concerned(flip, evidence) if len(row.operations) <= 1]
    if not rows:
        return None
    return sum(row.total for row in rows), "all the time of the kernels that copy"


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
    return seconds * calls, f"{moved:,} bytes at the speed of this machine's memory"


def _between_kernels(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    if not evidence.graphs:
        return None
    gaps = sum(graph.between.median * graph.calls for graph in evidence.graphs)
    return gaps, "all gaps between kernels"


def _in_guards(flip: Flip, evidence: RecordedEvidence) -> Prediction:
    found = [
        (compile_.guard_microseconds or 0.0) * 1e-6 * evidence.calls_of(compile_.place)
        for compile_ in evidence.recording.compiles
        if compile_.place == flip.source
    ]
    return (max(found), "all guards of a call, as often as it is called") if found else None


def _concerned(flip: Flip, evidence: RecordedEvidence) -> Sequence[KernelProfile]:
    """The kernels that compute the line of the finding."""
    return [row for row in evidence.kernels if flip.source and flip.source in row.places]


_PREDICTIONS: dict[str, Callable[[Flip, RecordedEvidence], Prediction]] = {
    "scalar_loop": _lost_in_kernels,
    "recomputed": _lost_in_kernels,
    "register_spills": _lost_in_kernels,
    "split_reductions": _lost_in_kernels,
    "unsplit_reductions": _lost_in_kernels,
    "layout_copies": _whole_kernels,
    "kept_apart": _moved_again,
    "tiny_kernels": _between_kernels,
    "slow_guards": _in_guards,
}
