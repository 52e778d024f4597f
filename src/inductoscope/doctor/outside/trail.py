"""From the fault back to the kernel that is to blame, in the graph that the program compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from inductoscope.doctor.failure import SIGNAL, Failure
from inductoscope.doctor.handover import Found
from inductoscope.doctor.location import Location
from inductoscope.doctor.outside.finding_verdict import relative_place
from inductoscope.model.fault_trail import (
    FaultTrail,
    GuiltyPlace,
    TrailBuffer,
    TrailStep,
    fault_trail,
)
from inductoscope.model.fold import load

_OUTPUT = re.compile(r"output (\d{1,6})$")


def trail_of(found: Found, folder: Path) -> FaultTrail | None:
    """The trail; None if the kernel is not known by its name in the program's own graph."""
    failure = found.first_failure or found.failure
    place = found.in_program if found.flow else _without_package(found, failure)
    if not place.kernel:
        return None
    guilty = GuiltyPlace(
        kernel=place.kernel,
        buffer=place.buffer,
        overwrites=place.is_overwritten,
        outputs=tuple(_outputs(failure)),
        fails=failure.function if failure.kind == SIGNAL else "",
    )
    trail = fault_trail(load(folder), found.compile, guilty)
    if trail is None:
        return None
    fault = failure.text.strip().partition("\n")[0][:300]
    steps = tuple(map(_with_short_places, trail.steps))
    return replace(trail, steps=steps, fault=fault, wrong=place.text[:1500], how=place.how)


def _with_short_places(step: TrailStep) -> TrailStep:
    """As the rest of the verdict has them: relative to the current folder."""

    def shortened(buffers: tuple[TrailBuffer, ...]) -> tuple[TrailBuffer, ...]:
        return tuple(replace(b, source=relative_place(b.source)) for b in buffers)

    return replace(step, buffers=shortened(step.buffers), reads=shortened(step.reads))


def _without_package(found: Found, failure: Failure) -> Location:
    """The graph that was cut down has other kernels; what is to blame there is only its own."""
    dies_in = failure.function if failure.kind == SIGNAL else ""
    if dies_in and not found.location.buffer:
        return Location(kernel=dies_in, text=failure.text, how="the last kernel launched")
    return found.in_whole_graph


def _outputs(failure: Failure) -> Iterator[int]:
    for where in failure.where:
        match = _OUTPUT.match(where)
        if match:
            yield int(match[1])
