"""The kernel profile on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inductoscope.profiling.kernels.kernel_times import what_is_between
from inductoscope.profiling.machine.limits import MATRIX, TF32
from inductoscope.views.report.terminal import BAD, FAINT, WARN, Printer
from inductoscope.views.report.times import seconds_text, time_text
from inductoscope.vocabulary.counting import count_of

_MOST_PRINTED = 20
_MOST_SLOWER = 5
# Kernels that take less of the time than this are left out of what is printed.
_NEGLIGIBLE = 0.001


def print_profile(printer: Printer, view: Mapping[str, Any]) -> None:
    """The calls, then the kernels, those that lose most time first."""
    printer.line(view["headline"], style=WARN if not view["kernels"] else "")
    _print_calls(printer, view)
    if view["kernels"]:
        _print_kernels(printer, view["kernels"])
    _print_slower(printer, view)
    for machine in view["machines"]:
        printer.line()
        printer.line(_machine_text(machine), style=FAINT)
    if view["notes"]:
        printer.line()
    for note in view["notes"]:
        printer.line(note, style=FAINT)
    printer.line()
    printer.line(f"recording: {view['recording']}", style=FAINT)


def _print_calls(printer: Printer, view: Mapping[str, Any]) -> None:
    if view["functions"]:
        printer.line()
        printer.heading("compiled calls")
    for calls in view["functions"]:
        place = f" ({calls['place']})" if calls["kind"] == "function" and calls["place"] else ""
        name = _graph_name(calls, view["graphs"]) if calls["kind"] == "graph" else calls["name"]
        printer.line(f"{name}{place}", indent=2)
        if calls["calls"]:
            times = time_text(calls["seconds"])
            printer.line(f"{count_of(calls['calls'], 'call')}, {times} each", indent=4)
        apart = sum(calls["compiling"])
        if apart:
            printer.line(f"{seconds_text(apart)} in calls that compiled, kept apart", indent=4)
    for graph in view["graphs"]:
        if graph["between_kernels"] and graph["seconds"]["median"]:
            share = graph["between_kernels"]["median"] / graph["seconds"]["median"]
            between = what_is_between(graph["device"], graph["measured_by"])
            printer.line(
                f"{graph['function']} {graph['graph']}{_sizes_text(graph['sizes'])}: kernels "
                f"{seconds_text(graph['kernel_seconds'])}, {between} between them "
                f"{time_text(graph['between_kernels'])} ({_percent(share)} of it)",
                indent=2,
            )


def _graph_name(calls: Mapping[str, Any], graphs: Sequence[Mapping[str, Any]]) -> str:
    backward = [g for g in graphs if g["phase"] == "backward"]
    return f"{calls['name']}, called by autograd" if backward else str(calls["name"])


def _print_kernels(printer: Printer, kernels: Sequence[Mapping[str, Any]]) -> None:
    total = sum(row["total"] for row in kernels) or 1.0
    shown = [row for row in kernels if row["total"] >= _NEGLIGIBLE * total][:_MOST_PRINTED]
    printer.line()
    printer.heading("kernels, by time lost against the least that the machine needs")
    printer.line(
        f"{'lost':>9} {'time of a call':>16} {'calls':>6} {'GB/s':>7} {'GFLOP/s':>8}  of the limit",
        style=FAINT,
    )
    for row in shown:
        printer.line(_numbers(row), style=BAD if _is_far(row) else "")
        where = ", ".join(_short(place) for place in row["places"][:3])
        operations = ", ".join(row["operations"][:6])
        more = f" and {len(row['operations']) - 6} more" if len(row["operations"]) > 6 else ""
        printer.line(f"{row['kernel']}{_sizes_text(row['sizes'])}", indent=4)
        about = " · ".join(part for part in (operations + more, where) if part)
        if about:
            printer.line(about, indent=4, style=FAINT)
        if row["why_above_limit"]:
            printer.line(f"above the limit: {row['why_above_limit']}", indent=4, style=FAINT)
    rest = len(kernels) - len(shown)
    if rest:
        printer.line(f"and {rest} more: --json has them all", indent=2)


def _print_slower(printer: Printer, view: Mapping[str, Any]) -> None:
    """Graphs in eager, and the regions that are faster there."""
    timed = [graph for graph in view["graphs"] if graph["eager"]]
    if timed:
        printer.line()
        printer.heading("the same graphs in eager, with made-up inputs of the same shapes")
    for graph in timed:
        eager = graph["eager"]
        ratio = graph["seconds"]["median"] / eager["median"] if eager["median"] else 0.0
        is_slower = eager["slower_than_eager"]
        about = "slower than eager" if is_slower else f"{ratio:.2f} of eager's time"
        if graph["seconds"]["noisy"] or eager["noisy"]:
            about = "too noisy to compare"
        printer.line(
            f"{graph['function']} {graph['graph']}{_sizes_text(graph['sizes'])}: "
            f"{time_text(graph['seconds'])} compiled, {time_text(eager)} in eager: {about}",
            indent=2,
            style=BAD if is_slower else "",
        )
    for region in [r for r in view["regions"] if r["slower_than_eager"]][:_MOST_SLOWER]:
        where = ", ".join(_short(place) for place in region["places"][:3])
        printer.line(
            f"slower than eager: {', '.join(region['kernels'])}, "
            f"{seconds_text(region['compiled'])}; eager needs {seconds_text(region['eager'])} for "
            f"{', '.join(region['operations'])} ({where})",
            indent=2,
            style=WARN,
        )


def _numbers(row: Mapping[str, Any]) -> str:
    gigabytes = "" if row["gb_per_second"] is None else f"{row['gb_per_second']:.1f}"
    flops = "" if row["gflop_per_second"] is None else f"{row['gflop_per_second']:.1f}"
    calls = str(row["calls"]) if row["calls"] else "cold"
    return (
        f"{seconds_text(row['lost']):>9} {time_text(row['seconds']):>16} {calls:>6} "
        f"{gigabytes:>7} {flops:>8}  {_limit_text(row)}"
    )


def _limit_text(row: Mapping[str, Any]) -> str:
    floor = row["floor"]
    if floor is None:
        return "unknown"
    seconds, limit = row["seconds"], floor["limit"]
    if limit == MATRIX and TF32 in row["matrix_flops"]:
        limit = f"{limit} in TF32"
    if seconds["noisy"] and seconds["low"] > 0:
        low, high = floor["seconds"] / seconds["high"], floor["seconds"] / seconds["low"]
        return f"{_percent(low)} to {_percent(high)}, {limit}"
    share = row["share_of_limit"]
    return f"{_percent(share)}, {limit}"


def _percent(share: float) -> str:
    return "< 1%" if share < 0.01 else f"{share:.0%}"


def _is_far(row: Mapping[str, Any]) -> bool:
    return row["share_of_limit"] is not None and row["share_of_limit"] < 0.1 and row["calls"] > 0


def _machine_text(machine: Mapping[str, Any]) -> str:
    last = machine["bandwidths"][-1] if machine["bandwidths"] else None
    rate = machine["matrix"].get("float32")
    parts = [f"{machine['device']} {machine['name']}, {count_of(machine['threads'], 'thread')}"]
    if last:
        parts.append(
            f"copy {last['copy'] / 1e9:.0f} GB/s beyond the caches, "
            f"{machine['bandwidths'][0]['copy'] / 1e9:.0f} GB/s in them"
        )
    if rate:
        tf32 = machine["matrix"].get(TF32)
        less = f", in TF32 {tf32 / 1e9:.0f} GFLOP/s" if tf32 else ""
        parts.append(f"float32 products {rate / 1e9:.0f} GFLOP/s{less}")
    return f"Limits, measured {machine['measured']}: {'; '.join(parts)}."


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return f" [{', '.join(f'{name}={value}' for name, value in sizes.items())}]" if sizes else ""


def _short(place: str) -> str:
    return place.rpartition("/")[2]
