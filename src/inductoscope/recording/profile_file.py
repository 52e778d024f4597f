"""Profiles in a recording, stored by `profile` in the format of its --json output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductoscope.recording.layout import PROFILE
from inductoscope.recording.reader import read_object
from inductoscope.recording.values import members, objects, real, whole

# The kinds of profiles, which are also their file names.
KERNELS, COMPILE, MEMORY, ADVICE = "kernels", "compile", "memory", "advice"


def profile_path(folder: Path, kind: str) -> Path:
    """Return the path of a kind of profile, creating its folder."""
    place = folder / PROFILE
    place.mkdir(exist_ok=True)
    return place / f"{kind}.json"


def stored_profile(folder: Path, kind: str) -> Mapping[str, Any]:
    """Read a stored profile as plain data; empty if it is missing or damaged."""
    return read_object(folder / PROFILE / f"{kind}.json")


# --- memory ---------------------------------------------------------------------------------------


def alive_at_peak(course: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the kept blocks that are live at the peak, largest first."""
    there = (block for block in objects(course.get("blocks")) if block.get("at_peak") is True)
    return sorted(there, key=lambda block: -whole(block.get("bytes")))


def left_out_at_peak(course: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of the step's blocks that were not kept, and their bytes at the peak."""
    found = members(course.get("left_out"))
    return whole(found.get("blocks")), whole(found.get("bytes_at_peak"))


def totals_over_time(course: Mapping[str, Any]) -> list[tuple[float, int]]:
    """Return the bytes in use over time as (seconds, bytes); the peak is always included."""
    totals = [
        (real(event.get("seconds")), whole(event.get("total")))
        for event in objects(course.get("events"))
    ]
    # The block that reaches the peak may not have been kept.
    peak = real(course.get("peak_seconds")), whole(course.get("peak_bytes"))
    if peak[1] and peak not in totals:
        later = (place for place, total in enumerate(totals) if total[0] > peak[0])
        totals.insert(next(later, len(totals)), peak)
    return totals
