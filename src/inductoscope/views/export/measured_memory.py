"""Memory over one step, as counters of a trace: compiled and in eager, with the peak marked.

The steps ran some time during the run; in the trace they begin where it ends, side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inductoscope.recording.stored_memory import alive_at_peak, totals_over_time
from inductoscope.recording.values import members, objects, real, text, whole
from inductoscope.vocabulary.counting import bytes_text

Event = dict[str, Any]

# Blocks that a peak names, the largest first.
_MOST_BLOCKS = 40


def measured_memory(profile: Mapping[str, Any], *, process: int, begin: int) -> Iterator[Event]:
    """The events; none if no step was traced. `begin` is in microseconds."""
    steps = objects(profile.get("steps"))
    if steps:
        name = {"name": "memory of one step, measured by profile --memory"}
        yield {"ph": "M", "pid": process, "tid": 1, "name": "process_name", "args": name}
    for step in steps:
        for how, course in (("compiled", step), ("in eager", members(step.get("eager")))):
            if course:
                title = f"{text(step.get('function'))}, {text(course.get('device'))}, {how}"
                yield from _course(course, title, process, begin)


def _course(course: Mapping[str, Any], title: str, process: int, begin: int) -> Iterator[Event]:
    place = {"pid": process, "tid": 1}
    points = [(0.0, whole(course.get("base_bytes")))]
    for seconds, total in points + totals_over_time(course):
        at = round(begin + seconds * 1e6, 3)
        yield {**place, "ph": "C", "name": title, "ts": at, "args": {"bytes": total}}
    peak = whole(course.get("peak_bytes"))
    yield {
        **place,
        "ph": "i",
        "s": "p",
        "name": f"peak of {title}: {bytes_text(peak)}",
        "ts": round(begin + real(course.get("peak_seconds")) * 1e6, 3),
        "args": {"alive": list(_alive(course))},
    }


def _alive(course: Mapping[str, Any]) -> Iterator[str]:
    for block in alive_at_peak(course)[:_MOST_BLOCKS]:
        about = (text(block.get(key)) for key in ("kind", "name", "operation", "source"))
        yield " · ".join([bytes_text(whole(block.get("bytes"))), *filter(None, about)])
