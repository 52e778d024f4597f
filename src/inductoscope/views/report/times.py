"""Samples of times, as data and as text with their spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inductoscope.profiling.statistics import Sample, TimeComparison


def picked(data: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(data, name) for name in names}


def sample_view(sample: Sample) -> dict[str, Any]:
    low, high = sample.quartiles
    return {
        "median": sample.median,
        "low": low,
        "high": high,
        "spread": round(sample.spread, 4),
        "values": sample.count,
        "noisy": sample.is_noisy,
    }


def comparison_view(found: TimeComparison) -> dict[str, Any]:
    return {
        **picked(found, "verdict", "ratio", "low", "chance", "how"),
        # JSON has no infinity.
        "high": min(found.high, 1e300),
    }


def time_text(seconds: Mapping[str, Any]) -> str:
    if seconds["values"] < 2:
        return seconds_text(seconds["median"])
    return f"{seconds_text(seconds['median'])} ±{seconds['spread'] / 2:.0%}"


def seconds_text(seconds: float) -> str:
    """Format seconds in at most eight characters."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= 1:
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def short(place: str) -> str:
    """Return a source location without its folder."""
    return place.rpartition("/")[2]
