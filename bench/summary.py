"""docs/benchmarks.md: every measurement with its goal, its spread, and what may be concluded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battery.markdown import plain, row
from bench.figures import show_runs, show_value
from bench.load import MOST_OTHERS, MOST_STOLEN, Load
from bench.measurement import (
    ENOUGH_TURNS,
    MET,
    MISSED,
    NOT_CONCLUDED,
    NOTCH,
    SINGLE_TURN,
    Measurement,
    read_measurements,
)
from bench.peers import ROOT

DOCUMENT = ROOT / "docs" / "benchmarks.md"
_WORDS = (MET, MISSED, NOT_CONCLUDED)
_COLUMNS = ("what", "ours", "the peer", "ratio (least to most)", "goal", "conclusion")
_INTRODUCTION = f"""\
Written by `make bench`; `make bench BENCH="logs cli"` measures only those. Each result names the
commit that it was measured at, and is kept in `docs/benchmarks`, one file for each benchmark: what
is not measured again stays. Ours and the peer get the same input and run in turns, the peer in
an environment where inductoscope is not loaded, and with the settings that suit it best. A cell
has the median of all turns, with the least and the most. The ratio is computed turn by turn.

A goal is the most that is allowed. A median is compared with it only if it is farther away than it
is uncertain: by {NOTCH} interquartile ranges over the root of the number of turns; with fewer than
{ENOUGH_TURNS} turns by their whole range; with one turn by {SINGLE_TURN:.0%} of it. Seconds by the
clock also depend on who else uses the machine. If other processes had more than {MOST_OTHERS:.0%}
of the processor time meanwhile, or the host took more than {MOST_STOLEN:.0%}, no ratio of such
seconds is concluded from, and no value above its goal. A goal that was measured in several ways
counts once: beside the peer at its best."""


@dataclass(frozen=True)
class Result:
    """Result of one benchmark, as it is kept beside the page."""

    bench: str
    commit: str
    date: str
    machine: dict[str, str]
    versions: dict[str, str]
    load: Load
    # Why there is nothing to show; empty if there is.
    failure: str
    measurements: Sequence[Measurement]
    # Other than the usual ones.
    options: str = ""
    # What a reader has to know of where these figures are from; empty where they are as measured.
    remark: str = ""


def result_from(data: dict[str, Any]) -> Result:
    found = read_measurements(data)
    return Result(**{**data, "load": Load(**data["load"]), "measurements": found})


def render(benches: Sequence[str], results: dict[str, Result]) -> str:
    """The whole page."""
    lines = ["# Benchmarks", "", _INTRODUCTION, "", *_render_counts(results.values())]
    for bench in benches:
        lines += ["", f"## {title_of(bench)}", "", describe(bench), ""]
        lines += _render_result(results[bench]) if bench in results else ["Not measured yet."]
    return "\n".join(lines) + "\n"


def _render_counts(results: Iterable[Result]) -> Iterator[str]:
    measured = [(m, r.load) for r in results for m in r.measurements]
    goals = [m.conclude(load).word for m, load in measured if m.goal is not None and m.counts]
    counted = ", ".join(f"{goals.count(word)} {word}" for word in _WORDS)
    yield f"Goals: {counted}."


def source_of(bench: str) -> Path:
    return ROOT / "bench" / f"{bench}.py"


def title_of(bench: str) -> str:
    """The first line of the module's docstring, without what to type."""
    return re.sub(r"(: (make|python) .*|\.)$", "", _docstring(bench).partition("\n")[0])


def describe(bench: str) -> str:
    """The rest of the docstring: how it is measured."""
    return _docstring(bench).partition("\n")[2].strip() or f"`python -m bench.{bench}`"


def _docstring(bench: str) -> str:
    path = source_of(bench)
    if not path.exists():
        return f"{bench}\n\nThere is no such benchmark in this checkout."
    return ast.get_docstring(ast.parse(path.read_text())) or bench


def _render_result(result: Result) -> Iterator[str]:
    yield _describe_run(result)
    yield ""
    if result.remark:
        yield f"**{plain(result.remark)}**"
        yield ""
    if result.failure:
        yield f"**Failed**: {plain(result.failure)}"
        return
    yield row(_COLUMNS)
    yield row(["---"] * len(_COLUMNS))
    for measurement in result.measurements:
        yield row(_cells(measurement, result.load))
    notes = [f"- {m.name}: {m.note}" for m in result.measurements if m.note]
    if notes:
        yield ""
        yield from notes


def _describe_run(result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    cores, load = result.machine["cores"], result.load
    before = f"load average for each core before {load.average:.1f}; " if load.is_known else ""
    options = f"; run with `{result.options}`" if result.options else ""
    return (
        f"{result.date}, commit {result.commit}; {versions}; {cores} cores, "
        f"{result.machine['architecture']}, {result.machine['memory']}; {before}{load.explain()}"
        f"{options}."
    )


def _cells(measurement: Measurement, load: Load) -> tuple[str, ...]:
    conclusion = measurement.conclude(load)
    # Without a goal there is nothing to conclude; that something failed is said all the same.
    said = conclusion.why if measurement.goal is None else str(conclusion)
    counted = "" if measurement.counts or measurement.goal is None else " (counts elsewhere)"
    return (
        plain(measurement.name),
        show_runs(measurement.ours, measurement.unit),
        _show_peer(measurement),
        show_runs(measurement.values, "") if measurement.compared_with else "",
        _show_goal(measurement),
        plain(f"**{said}**{counted}" if said == MET else f"{said}{counted}"),
    )


def _show_peer(measurement: Measurement) -> str:
    if not measurement.compared_with:
        return ""
    failed = sum(run is None for run in measurement.peer)
    why = measurement.why_no_peer if not measurement.peer or failed else ""
    runs = show_runs(measurement.peer, measurement.unit) if len(measurement.peer) > failed else ""
    told = "; ".join(filter(None, (runs, why)))
    return plain(f"{measurement.compared_with}: {told or 'no value'}")


def _show_goal(measurement: Measurement) -> str:
    if measurement.goal is None:
        return ""
    return show_value(measurement.goal, "" if measurement.compared_with else measurement.unit)
