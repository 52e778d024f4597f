"""Where compile time goes, as data and on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inductoscope.profiling.compile_growth import MeasuredGrowth, StageGrowth
from inductoscope.profiling.compile_times import (
    ColdOrWarmRun,
    CompileProfile,
    RecordedCosts,
)
from inductoscope.views.report.terminal import FAINT, HEADING, WARN, Printer
from inductoscope.wording import count_of

_MOST = 5
# Less than this much of the compile time is not printed; the JSON has everything.
_LEAST = 0.005
_NAME = 44

_NOISE = (
    "one cold and one warm run: the same compile may take a quarter more or less another time. "
    "Times were recorded, which costs a few percent"
)


def compile_profile_view(profile: CompileProfile) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "recording": profile.cold.recording,
        "exit_code": profile.cold.ending.exit_code,
        "headline": headline(profile),
        "cold": _run_view(profile.cold),
        "warm": None if profile.warm is None else _run_view(profile.warm),
        "growth": None if profile.growth is None else _growth_view(profile.growth),
        "noise": noise(profile),
    }


def _run_view(run: ColdOrWarmRun) -> dict[str, Any]:
    return {
        "recording": run.recording,
        "exit_code": run.ending.exit_code,
        "compile_seconds": round(run.costs.compile_seconds, 6),
        **asdict(run.costs),
    }


def _growth_view(growth: MeasuredGrowth) -> dict[str, Any]:
    return {
        "compile": growth.compile,
        "joined": growth.joined,
        "error": growth.error,
        "sizes": [
            {
                "nodes": cost.nodes,
                "seconds": {name: cost.seconds_of(name) for name in cost.stages},
                "ended_in": cost.ended_in,
            }
            for cost in growth.costs
        ],
        "stages": [
            {
                "stage": each.stage,
                "exponent": round(each.exponent, 3),
                "low": round(each.low, 3),
                "high": round(each.high, 3),
                "known": each.is_known,
            }
            for each in growth.stages
        ],
    }


def noise(profile: CompileProfile) -> str:
    """How far the numbers can be trusted."""
    if not profile.is_busy:
        return _NOISE
    return (
        f"{_NOISE}. The machine was busy with other programs (load {profile.load:.0f} on "
        f"{count_of(profile.cores, 'core')}): everything took longer than it needs to"
    )


def headline(profile: CompileProfile) -> str:
    """One sentence."""
    costs = profile.cold.costs
    if not costs.compiles:
        return "Nothing was compiled."
    slowest = max(costs.stages, key=lambda stage: stage.own_seconds, default=None)
    text = (
        f"{count_of(len(costs.compiles), 'compile')} took {costs.compile_seconds:.1f} s of "
        f"{costs.seconds:.1f} s"
    )
    if slowest is not None:
        text += f"; most of it in {slowest.stage}, {slowest.own_seconds:.1f} s"
    if profile.warm is not None:
        text += f"; from the cache {profile.warm.costs.compile_seconds:.1f} s"
    return f"{text}."


# --- on the terminal ------------------------------------------------------------------------------


def print_compile_profile(printer: Printer, profile: CompileProfile) -> None:
    """The slowest of everything, in 80 columns."""
    printer.line(headline(profile), style=HEADING)
    if profile.is_empty:
        return
    costs = profile.cold.costs
    printer.line(f"noise: {noise(profile)}", style=WARN if profile.is_busy else FAINT)
    _print_stages(printer, costs, profile.warm.costs if profile.warm else None)
    _print_parts(printer, costs)
    _print_caches(printer, "cold", costs)
    if profile.warm is not None:
        _print_caches(printer, "warm", profile.warm.costs)
    if profile.growth is not None:
        _print_growth(printer, profile.growth)
    for note in costs.notes:
        printer.line(note, style=WARN)
    printer.line(f"recording     {profile.cold.recording}", indent=2)


def _print_stages(printer: Printer, costs: RecordedCosts, warm: RecordedCosts | None) -> None:
    printer.line()
    printer.line(f"{'stage':<20}{'self':>10}{'total':>10}{'share':>8}{'warm':>10}", style=HEADING)
    again = {stage.stage: stage.own_seconds for stage in warm.stages} if warm else {}
    whole = sum(stage.own_seconds for stage in costs.stages) or 1.0
    for stage in costs.stages:
        served = f"{again[stage.stage]:.2f} s" if stage.stage in again else "-"
        printer.line(
            f"{stage.stage:<20}{stage.own_seconds:>8.2f} s{stage.total_seconds:>8.2f} s"
            f"{100 * stage.own_seconds / whole:>6.0f} %{served:>10}"
        )


def _print_parts(printer: Printer, costs: RecordedCosts) -> None:
    least = _LEAST * costs.compile_seconds
    _print_rows(
        printer,
        "slowest passes (self)",
        [(each.own_seconds, each.name, each.stage) for each in costs.passes],
        least,
    )
    _print_rows(
        printer,
        "slowest nodes to lower",
        [(n.seconds, f"{n.node} {n.target}", _short(n.source)) for n in costs.nodes],
        least,
    )
    _print_rows(
        printer,
        "slowest lines to lower",
        [(n.seconds, _short(n.source), count_of(n.nodes, "node")) for n in costs.lines],
        least,
    )
    _print_rows(
        printer,
        "fusion rounds",
        [
            (each.seconds, f"{each.graph} round {each.number}", f"{each.before} → {each.after}")
            for each in costs.rounds
        ],
        least,
    )
    _print_rows(
        printer,
        "native compilers (side by side)",
        [
            (each.seconds or 0.0, each.kernel, f"{each.tool}, {each.characters >> 10} KiB")
            for each in costs.natives
        ],
        least,
    )


def _print_rows(
    printer: Printer, title: str, rows: Sequence[tuple[float, str, str]], least: float
) -> None:
    shown = [row for row in rows if row[0] >= least][:_MOST]
    if not shown:
        return
    printer.line()
    printer.line(f"{title}, {len(shown)} of {len(rows)}", style=HEADING)
    for seconds, name, more in shown:
        short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        printer.line(f"{seconds:>8.3f} s  {short:<{_NAME}}  {more}"[:80].rstrip())


def _short(source: str) -> str:
    return Path(source).name if source else ""


def _print_caches(printer: Printer, which: str, costs: RecordedCosts) -> None:
    if not costs.caches:
        return
    printer.line()
    printer.line(f"caches, {which} run", style=HEADING)
    for use in costs.caches:
        why = f": {use.why}" if use.why else ""
        printer.line(f"{use.cache} {use.outcome}, compile {use.compile}{why}", indent=2)


def _print_growth(printer: Printer, growth: MeasuredGrowth) -> None:
    printer.line()
    printer.line(f"growth of compile {growth.compile}, {growth.joined}", style=HEADING)
    if growth.error:
        printer.line(growth.error, style=WARN, indent=2)
    sizes = ", ".join(f"{c.nodes} nodes {c.python_seconds:.1f} s" for c in growth.costs)
    if sizes:
        printer.line(f"sizes, without native compilers: {sizes}", indent=2)
    for each in growth.stages:
        printer.line(f"{each.stage:<18} {_grows(each)}", indent=2)
    for cost in growth.costs:
        if cost.ended_in:
            text = f"{cost.nodes} nodes were not compiled in time: it was in {cost.ended_in}"
            printer.line(text, style=WARN, indent=2)


def _grows(growth: StageGrowth) -> str:
    seconds = growth.points[-1].seconds
    if not growth.is_known:
        return f"{seconds:.2f} s at last; too noisy to say how it grows"
    interval = f"n^{growth.exponent:.1f}, between n^{growth.low:.1f} and n^{growth.high:.1f}"
    return f"grows with {interval} (95 %), {seconds:.2f} s at last"
