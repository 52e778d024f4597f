"""Profiles in a recording: `profile` keeps each result there, as it writes it with --json."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductoscope.recording.layout import PROFILE
from inductoscope.recording.reader import read_file
from inductoscope.recording.values import members, parse

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
