"""Results of `profile --compile` as data and on the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from inductoscope.profiling.compile_growth import NOT_PYTHON, MeasuredGrowth
from inductoscope.profiling.compile_times import CompileProfile
from inductoscope.views.report.terminal import FAINT, HEADING, WARN, Printer
from inductoscope.views.report.times import picked, short
from inductoscope.wording import count_of

_MOST = 5
# Less than this much of the compile time is not printed; the JSON has everything.
_LEAST = 0.005
_NAME = 44
# The program itself and its native compilers keep the cores busy, too.
_BUSY = 1.5

_NOISE = (
    "one cold and one warm run: the same compile may take a quarter more or less another time. "
    "Times were recorded, which costs a few percent"
)


def compile_profile_view(profile: CompileProfile) -> dict[str, Any]:
    return {
        "recording": profile.cold["recording"],
        "exit_code": profile.ending.exit_code,
        "headline": headline(profile),
        "cold": profile.cold,
        "warm": profile.warm,
        "growth": None if profile.growth is None else _growth_view(profile.growth),
        "noise": noise(os.getloadavg()[0], os.cpu_count() or 1),
    }


def _growth_view(growth: MeasuredGrowth) -> dict[str, Any]:
    return {
        **picked(growth, "compile", "joined", "error"),
        "sizes": [
            {
                **picked(cost, "nodes", "ended_in"),
                "seconds": {name: cost.seconds_of(name) for name in cost.stages},
            }
            for cost in growth.costs
        ],
        "stages": [
            {
                "stage": each.stage,
                "known": each.is_known,
                **{k: round(v, 3) for k, v in picked(each, "exponent", "low", "high").items()},
            }
            for each in growth.stages
        ],
    }


def noise(load: float, cores: int) -> str:
    if load <= _BUSY * cores:
        return _NOISE
    return (
        f"{_NOISE}. The machine was busy with other programs (load {load:.0f} on "
        f"{count_of(cores, 'core')}): everything took longer than it needs to"
    )


def headline(profile: CompileProfile) -> str:
    if profile.is_empty:
        return "Nothing was compiled."
    cold, warm = profile.cold, profile.warm
    slowest = max(cold["stages"], key=lambda stage: stage["own_seconds"], default=None)
    text = (
        f"{count_of(len(cold['compiles']), 'compile')} took {cold['compile_seconds']:.1f} s of "
        f"{cold['seconds']:.1f} s"
    )
    if slowest is not None:
        text += f"; most of it in {slowest['stage']}, {slowest['own_seconds']:.1f} s"
    if warm is not None:
        text += f"; from the cache {warm['compile_seconds']:.1f} s"
    return f"{text}."


# --- on the terminal ------------------------------------------------------------------------------


def print_compile_profile(printer: Printer, view: Mapping[str, Any]) -> None:
    """Print the slowest stages, passes, nodes and kernels in 80 columns."""
    printer.line(view["headline"], style=HEADING)
    if not view["cold"]["compiles"]:
        return
    cold, warm = view["cold"], view["warm"]
    printer.line(f"noise: {view['noise']}", style=FAINT if view["noise"] == _NOISE else WARN)
    _print_stages(printer, cold, warm)
    _print_parts(printer, cold)
    for which, run in (("cold", cold), ("warm", warm)):
        if run is not None and run["caches"]:
            printer.line()
            printer.line(f"caches, {which} run", style=HEADING)
            for use in run["caches"]:
                why = f": {use['why']}" if use["why"] else ""
                text = f"{use['cache']} {use['outcome']}, compile {use['compile']}{why}"
                printer.line(text, indent=2)
    if view["growth"] is not None:
        _print_growth(printer, view["growth"])
    for note in cold["notes"]:
        printer.line(note, style=WARN)
    printer.line(f"recording     {view['recording']}", indent=2)


def _print_stages(
    printer: Printer, cold: Mapping[str, Any], warm: Mapping[str, Any] | None
) -> None:
    printer.line()
    printer.line(f"{'stage':<20}{'self':>10}{'total':>10}{'share':>8}{'warm':>10}", style=HEADING)
    again = {row["stage"]: row["own_seconds"] for row in warm["stages"]} if warm else {}
    whole = sum(row["own_seconds"] for row in cold["stages"]) or 1.0
    for row in cold["stages"]:
        stage, own = row["stage"], row["own_seconds"]
        served = f"{again[stage]:.2f} s" if stage in again else "-"
        printer.line(
            f"{stage:<20}{own:>8.2f} s{row['total_seconds']:>8.2f} s"
            f"{100 * own / whole:>6.0f} %{served:>10}"
        )


def _print_parts(printer: Printer, cold: Mapping[str, Any]) -> None:
    parts: dict[str, list[tuple[float, str, str]]] = {
        "slowest passes (self)": [
            (p["own_seconds"], p["name"], p["stage"]) for p in cold["passes"]
        ],
        "slowest nodes to lower": [
            (n["seconds"], f"{n['node']} {n['target']}", short(n["source"])) for n in cold["nodes"]
        ],
        "slowest lines to lower": [
            (line["seconds"], short(line["source"]), count_of(line["nodes"], "node"))
            for line in cold["lines"]
        ],
        "fusion rounds": [
            (r["seconds"], f"{r['graph']} round {r['number']}", f"{r['before']} → {r['after']}")
            for r in cold["rounds"]
        ],
        "native compilers (side by side)": [
            (n["seconds"] or 0.0, n["kernel"], f"{n['tool']}, {n['characters'] >> 10} KiB")
            for n in cold["natives"]
        ],
    }
    for title, rows in parts.items():
        shown = [row for row in rows if row[0] >= _LEAST * cold["compile_seconds"]][:_MOST]
        if shown:
            printer.line()
            printer.line(f"{title}, {len(shown)} of {len(rows)}", style=HEADING)
        for seconds, name, more in shown:
            cut = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
            printer.line(f"{seconds:>8.3f} s  {cut:<{_NAME}}  {more}"[:80].rstrip())


def _print_growth(printer: Printer, growth: Mapping[str, Any]) -> None:
    printer.line()
    printer.line(f"growth of compile {growth['compile']}, {growth['joined']}", style=HEADING)
    if growth["error"]:
        printer.line(growth["error"], style=WARN, indent=2)
    sizes = ", ".join(f"{s['nodes']} nodes {_in_python(s):.1f} s" for s in growth["sizes"])
    if sizes:
        printer.line(f"sizes, without native compilers: {sizes}", indent=2)
    finished = [size for size in growth["sizes"] if not size["ended_in"]]
    for each in growth["stages"]:
        seconds = finished[-1]["seconds"].get(each["stage"], 0.0)
        printer.line(f"{each['stage']:<18} {_grows(each, seconds)}", indent=2)
    for size in growth["sizes"]:
        if size["ended_in"]:
            ended = f"{size['nodes']} nodes were not compiled in time: it was in {size['ended_in']}"
            printer.line(ended, style=WARN, indent=2)


def _in_python(size: Mapping[str, Any]) -> float:
    return sum(float(each) for stage, each in size["seconds"].items() if stage not in NOT_PYTHON)


def _grows(growth: Mapping[str, Any], seconds: float) -> str:
    if not growth["known"]:
        return f"{seconds:.2f} s at last; too noisy to say how it grows"
    exponent, low, high = (f"n^{growth[key]:.1f}" for key in ("exponent", "low", "high"))
    return f"grows with {exponent}, between {low} and {high} (95 %), {seconds:.2f} s at last"
