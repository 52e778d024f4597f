"""Profiles in a recording: `profile` keeps each result there, as it writes it with --json."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductoscope.recording.layout import PROFILE
from inductoscope.recording.reader import read_file
from inductoscope.recording.values import members, objects, parse, real, whole

# What was profiled, and the name of its file.
KERNELS, COMPILE, MEMORY, ADVICE = "kernels", "compile", "memory", "advice"

# Tens of thousands of kernels take less.
_LARGEST = 256 << 20


def profile_path(folder: Path, kind: str) -> Path:
    """Where the profile of a kind is kept; its folder exists then."""
    place = folder / PROFILE
    place.mkdir(exist_ok=True)
    return place / f"{kind}.json"


def stored_profile(folder: Path, kind: str) -> Mapping[str, Any]:
    """The profile as the file has it; empty if there is none or it is damaged."""
    with contextlib.suppress(OSError, ValueError):
        return members(parse(read_file(folder / PROFILE / f"{kind}.json", _LARGEST)))
    return {}


# --- memory ---------------------------------------------------------------------------------------


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
