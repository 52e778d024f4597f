"""Times as readable text, with their spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def time_text(seconds: Mapping[str, Any]) -> str:
    """A median with its spread."""
    if seconds["values"] < 2:
        return seconds_text(seconds["median"])
    return f"{seconds_text(seconds['median'])} ±{seconds['spread'] / 2:.0%}"


def seconds_text(seconds: float) -> str:
    """A time in at most eight characters."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= 1:
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
