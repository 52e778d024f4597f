"""The memory of a device over one step, as `profile --memory` keeps it in a recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inductoscope.recording.values import members, objects, real, whole


def alive_at_peak(course: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks that were kept and are in use at the peak, the largest first."""
    there = (block for block in objects(course.get("blocks")) if block.get("at_peak") is True)
    return sorted(there, key=lambda block: -whole(block.get("bytes")))


def left_out_at_peak(course: Mapping[str, Any]) -> tuple[int, int]:
    """How many of the step's blocks were not kept, and how many bytes they have at the peak."""
    found = members(course.get("left_out"))
    return whole(found.get("blocks")), whole(found.get("bytes_at_peak"))


def totals_over_time(course: Mapping[str, Any]) -> list[tuple[float, int]]:
    """Seconds and the bytes in use from then on. The peak is among them."""
    totals = [
        (real(event.get("seconds")), whole(event.get("total")))
        for event in objects(course.get("events"))
    ]
    # The block that makes the peak may be one of those that were not kept.
    peak = real(course.get("peak_seconds")), whole(course.get("peak_bytes"))
    if peak[1] and peak not in totals:
        later = (place for place, total in enumerate(totals) if total[0] > peak[0])
        totals.insert(next(later, len(totals)), peak)
    return totals
