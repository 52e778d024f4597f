"""Reads what a benchmark has written with --json as measurements.

A benchmark either writes measurements itself, or has an adapter in ADAPTERS here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench import capture, logs, report
from bench.measurement import Measurement, Runs, read_measurements

Found = dict[str, Any]

NOT_INSTALLED = "not installed"
# Exit codes of inductoscope: nothing is wrong, or something was found.
ANSWERED = (0, 1)


def measurements_of(bench: str, found: Found) -> list[Measurement]:
    """What a benchmark has found."""
    if "measurements" in found:
        return read_measurements(found)
    return ADAPTERS[bench](found)


def of_logs(found: Found) -> list[Measurement]:
    """Reading with one core and with all, each beside tlparse on the same trace."""
    theirs = found.get("trace, tlparse", [])
    why = NOT_INSTALLED if not theirs else _why_failed(theirs, (0,))
    measurements = []
    for way, runs in found.items():
        if way == "trace, tlparse":
            continue
        is_compared = way.startswith("trace")
        cores = 1 if way.endswith("1 core") else None
        for key, unit in (("seconds", "s"), ("megabytes", "MB")):
            measurements.append(
                Measurement(
                    name=f"{way}: {'memory' if unit == 'MB' else 'time'}",
                    unit=unit,
                    ours=_column(runs, key, ANSWERED),
                    goal=_logs_goal(key, cores) if is_compared else None,
                    compared_with="tlparse" if is_compared else "",
                    peer=_column(theirs, key, (0,)) if is_compared else (),
                    why_no_peer=why if is_compared else "",
                    why_failed=_why_failed(runs, ANSWERED),
                )
            )
    return measurements


def _logs_goal(key: str, cores: int | None) -> float | None:
    """The goal for time is about all cores; that for memory holds for any number."""
    if key == "seconds" and cores == 1:
        return None
    return logs.GOALS[key]


def _column(runs: Iterable[Found], key: str, fine: Sequence[int]) -> Runs:
    return tuple(run[key] if run["exit_code"] in fine else None for run in runs)


def _why_failed(runs: Iterable[Found], fine: Sequence[int]) -> str:
    codes = sorted({run["exit_code"] for run in runs if run["exit_code"] not in fine})
    return f"exit code {', '.join(map(str, codes))}" if codes else ""


def of_report(found: Found) -> list[Measurement]:
    """Building the page beside tlparse, and opening it."""
    seconds, kernels = found["build seconds"], found["kernels"]
    build = Measurement(
        name=f"building the page of {kernels:,} kernels",
        unit="s",
        ours=(*seconds["inductoscope"],),
        goal=report.GOALS["build"],
        compared_with="tlparse",
        peer=(*seconds["tlparse"],),
        why_no_peer="" if seconds["tlparse"] else NOT_INSTALLED,
        note=f"{found['page bytes'] / 1e6:.1f} MB, tlparse {found['tlparse bytes'] / 1e6:.1f} MB",
    )
    views = found["first view seconds"]
    return [build, *_seen("first view of it", views, report.GOALS["first view"])]


def _seen(name: str, seconds: Sequence[float], goal: float) -> list[Measurement]:
    """Without a browser nothing was seen, and nothing is claimed."""
    return [Measurement(name, "s", (*seconds,), goal)] if seconds else []


def of_capture(found: Found) -> list[Measurement]:
    """Recorded runs beside plain ones, and beside torch's own tracing for comparison."""
    compared = [
        Measurement(
            name=f"{model}: {name}, {mode}",
            unit="CPU s",
            ours=(*ours,),
            goal=capture.GOALS[what] if mode == "recorded" else None,
            compared_with="the plain run",
            peer=(*runs["plain"][: len(ours)],),
        )
        for what, name in (("compile", "compile"), ("calls", "a later call"))
        for model, runs in found.get(what, {}).items()
        for mode, ours in runs.items()
        if mode != "plain" and ours
    ]
    sizes = [
        Measurement(f"{model}: recording, for each node", "bytes", (size["bytes"] / size["nodes"],))
        for model, size in found.get("recordings", {}).items()
    ]
    return compared + sizes


ADAPTERS: dict[str, Callable[[Found], list[Measurement]]] = {
    "logs": of_logs,
    "report": of_report,
    "capture": of_capture,
}
