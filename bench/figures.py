"""Figures as text, and what every benchmark ends with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.measurement import Measurement, Runs, write_measurements


def finish(measurements: Sequence[Measurement], path: Path | None) -> None:
    """Print what was measured, and write it for the page if that is asked for."""
    for measurement in measurements:
        print(describe(measurement))
    if path:
        write_measurements(measurements, path)


def describe(measurement: Measurement) -> str:
    """One line. The load of the machine is known only to who has started us."""
    goal = "" if measurement.goal is None else f"; goal {show_value(measurement.goal, '')}"
    said = f"{goal}: {measurement.conclude()}" if goal else ""
    return f"{measurement.name}: {show_runs(measurement.ours, measurement.unit)}" + (
        f", {show_runs(measurement.values, '')} of {measurement.compared_with}{said}"
        if measurement.compared_with
        else said
    )


def show_runs(runs: Runs, unit: str) -> str:
    """The middle, with the least and the most where there are several, and what failed."""
    values = [run for run in runs if run is not None]
    if not values:
        return "failed" if runs else "none"
    text = show_value(statistics.median(values), unit)
    if len(values) > 1:
        text += f" ({show_value(min(values), '')} to {show_value(max(values), '')})"
    return f"{text}; {len(runs) - len(values)} failed" if len(values) < len(runs) else text


def show_value(value: float, unit: str) -> str:
    """Three significant digits, and no more than the number needs."""
    digits = 3 if not value else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 9)}f} {unit}".rstrip()
