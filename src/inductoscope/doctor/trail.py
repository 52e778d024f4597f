"""The trail from the fault back to the culprit kernel, in the program's compiled graph."""

from __future__ import annotations

import re
from dataclasses import replace

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.failure import NAN, SIGNAL, WRONG, Failure, Location
from inductoscope.doctor.finding import PROGRAM, WHOLE_GRAPH, FailureFinding, Flow
from inductoscope.doctor.judgement import relative_place
from inductoscope.model.entities import Recording
from inductoscope.model.fault_trail import FaultTrail, GuiltyPlace, TrailStep, fault_trail

_OUTPUT = re.compile(r"output (\d{1,6})$")


def trail_or_nothing(finding: FailureFinding, case: ProgramCase) -> FaultTrail | None:
    """Return the trail, or None after an error in finding it, which does not affect the verdict."""
    try:
        return trail_of(finding, case.recording)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        case.say(f"the way from the fault to its cause could not be looked up: {what}")
        return None


def trail_of(finding: FailureFinding, recording: Recording) -> FaultTrail | None:
    """Return the trail; None if the kernel's name in the program's own graph is unknown."""
    failure = finding.latest(Failure, WHOLE_GRAPH) or finding.failure
    place = _place(finding, failure)
    if place is None or not place.kernel:
        return None
    is_value = failure.kind in (WRONG, NAN)
    outputs = tuple(int(found[1]) for each in failure.where if (found := _OUTPUT.match(each)))
    guilty = GuiltyPlace(
        kernel=place.kernel,
        buffer=place.buffer,
        overwrites=place.is_overwritten,
        outputs=outputs if is_value else (),
        # The kernel that dies, hangs or raises: the culprit, or one that its buffer leads to.
        fails="" if is_value else failure.function if place.buffer else place.kernel,
    )
    trail = fault_trail(recording, finding.compile, guilty)
    if trail is None:
        return None
    fault = failure.text.strip().partition("\n")[0][:300]
    steps = tuple(map(_with_short_places, trail.steps))
    return replace(trail, steps=steps, fault=fault, wrong=place.text[:1500], how=place.how)


def _with_short_places(step: TrailStep) -> TrailStep:
    """Make places relative to the current folder, as in the rest of the verdict."""
    buffers, reads = (
        tuple(replace(each, source=relative_place(each.source)) for each in group)
        for group in (step.buffers, step.reads)
    )
    return replace(step, buffers=buffers, reads=reads)


def _place(finding: FailureFinding, failure: Failure) -> Location | None:
    """Return the place in the program's graph: the reduced graph has different kernels."""
    if finding.fact(Flow).name:
        return finding.latest(Location, PROGRAM)
    dies_in = failure.function if failure.kind == SIGNAL else ""
    if dies_in and not finding.location.buffer:
        return Location(kernel=dies_in, text=failure.text, how="the last kernel launched")
    return finding.latest(Location, WHOLE_GRAPH)
