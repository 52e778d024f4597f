"""The kernel profile as data and on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inductoscope.model.entities import Ending
from inductoscope.profiling.kernel_profile import (
    GraphProfile,
    KernelProfile,
    Profile,
    eager_of,
    is_slower_than_eager,
    regions_of,
)
from inductoscope.profiling.machine import FUNCTIONS, MATRIX, TF32, MachineLimits
from inductoscope.profiling.statistics import NOISY
from inductoscope.profiling.timings import FUNCTION, GRAPH, WHOLE, CallTimes, gaps_text
from inductoscope.views.report.terminal import BAD, FAINT, WARN, Printer
from inductoscope.views.report.times import picked, sample_view, seconds_text, short, time_text
from inductoscope.wording import count_of

# A median over fewer calls is unreliable.
_FEW = 5
_MOST_PRINTED = 20
_MOST_SLOWER = 5
# Kernels that take less of the time than this are left out of what is printed.
_NEGLIGIBLE = 0.001


def profile_view(profile: Profile, folder: str, ending: Ending) -> dict[str, Any]:
    return {
        "recording": folder,
        "exit_code": ending.exit_code,
        "headline": headline(profile),
        "functions": [_call_view(calls) for calls in profile.functions],
        "graphs": [_graph_view(graph, profile) for graph in profile.graphs],
        "kernels": [_kernel_view(row, profile) for row in profile.kernels],
        "regions": [asdict(region) for region in regions_of(profile.kernels, profile.eager)],
        "machines": [_machine_view(machine) for machine in profile.machines],
        "notes": [*profile.notes, *dict.fromkeys(_notes(profile))],
    }


def _call_view(calls: CallTimes) -> dict[str, Any]:
    return {
        **picked(calls, "name", "kind", "place", "dropped"),
        "calls": calls.count,
        "seconds": sample_view(calls.seconds),
        "compiling": [value / 1e9 for value in calls.compiling],
        "warming": [value / 1e9 for value in calls.warming],
    }


def _graph_view(graph: GraphProfile, profile: Profile) -> dict[str, Any]:
    times, eager = graph.times, eager_of(graph, profile.eager)
    return {
        **picked(graph, "graph", "function", "place", "phase", "calls"),
        **picked(times, "device", "sizes", "threads"),
        "measured_by": times.how,
        "seconds": sample_view(times.seconds),
        "first_call": times.first.duration / 1e9 if times.first else 0.0,
        "kernel_seconds": sum(k.seconds.median for k in profile.kernels if k.of is graph),
        "between_kernels": sample_view(times.between) if times.between.count else None,
        "eager": eager
        and {**sample_view(eager), "slower_than_eager": is_slower_than_eager(graph, eager)},
        "calls_with_other_sizes": times.other_sizes,
        "usual_call": _usual_view(graph),
    }


def _usual_view(graph: GraphProfile) -> dict[str, Any] | None:
    call = graph.times.usual
    if call is None:
        return None
    return {
        "seconds": call.duration / 1e9,
        "kernels": [
            {
                "kernel": graph.sites[number].kernel,
                "wrapper_line": graph.sites[number].line,
                "start": start / 1e9,
                "seconds": duration / 1e9,
            }
            for number, start, duration in call.spans
            if number >= 0
        ],
    }


def _kernel_view(row: KernelProfile, profile: Profile) -> dict[str, Any]:
    work, median = row.work, row.seconds.median
    return {
        **picked(row, "kernel", "language", "device", "calls", "total", "lost"),
        **picked(row.of, "graph", "function"),
        "wrapper_line": row.line,
        "sizes": row.of.times.sizes,
        "measured_by": row.of.times.how,
        "seconds": sample_view(row.seconds),
        **picked(work, "read", "written", "flops", "functions"),
        "matrix_flops": work.matrix,
        "gb_per_second": _rate(work.bytes, median),
        "gflop_per_second": _rate(work.flops, median),
        "floor": asdict(row.floor) if row.floor else None,
        "share_of_limit": row.share,
        "why_above_limit": _why_above(row, profile) if row.beats_limit else "",
        "not_counted": work.missing,
        **picked(row, "operations", "nodes", "places"),
    }


def _rate(amount: int | None, seconds: float) -> float | None:
    return None if not amount or seconds <= 0 else amount / seconds / 1e9


def _machine_view(machine: MachineLimits) -> dict[str, Any]:
    return {
        **picked(machine, "device", "name", "threads", "torch", "spread", "matrix", "functions"),
        "measured": machine.when,
        "bandwidths": [asdict(item) for item in machine.steady_bandwidths],
    }


# --- conclusions and their limits -----------------------------------------------------------------


def headline(profile: Profile) -> str:
    if profile.is_empty:
        return (
            "The program made no compiled call: nothing in it was compiled by Inductor, or it "
            "ended before that was called."
        )
    if not profile.has_graphs and all(calls.kind == FUNCTION for calls in profile.functions):
        return (
            "What is called ran in eager: Dynamo gave no graph of it to Inductor, as where a graph "
            "breaks inside a loop. 'inductoscope profile --advise' tries what may change that."
        )
    if not profile.kernels:
        return (
            "Only whole calls could be timed: what is called is C++ code that was compiled without "
            "kernel profiling."
        )
    steady = [row for row in profile.kernels if row.calls]
    if not steady:
        return (
            "Every kernel ran once, right after it was compiled: these times are cold. Have the "
            "program make more calls."
        )
    noisy = sum(row.total for row in profile.kernels if row.seconds.is_noisy)
    if noisy > sum(row.total for row in profile.kernels) / 2:
        return (
            f"The machine is too noisy to say much: half of the calls of most kernels differ by "
            f"more than {NOISY:.0%} from each other. Run it again while nothing else runs."
        )
    total = sum(row.total for row in steady)
    lost = sum(row.lost for row in steady if row.floor)
    return (
        f"{seconds_text(lost)} of {seconds_text(total)} in kernels are beyond what the machine "
        f"needs for their bytes and operations."
    )


def _why_above(row: KernelProfile, profile: Profile) -> str:
    machine = next((m for m in profile.machines if m.device == row.device), None)
    if machine is not None and machine.spread > NOISY:
        return (
            f"the machine was busy when it was measured (rounds {machine.spread:.0%} apart): "
            "--measure-machine does it again"
        )
    limit = row.floor.limit if row.floor else ""
    if limit == FUNCTIONS:
        return "the generated code may compute its functions faster than torch's own kernels do"
    if limit == MATRIX:
        return (
            "its shape may suit the machine better than the square products that were measured, or "
            "the program allows products of less precision"
        )
    return "its data may stay in a nearer cache than data of its size usually does"


def _notes(profile: Profile) -> Iterator[str]:
    for graph in profile.graphs:
        name, times = f"{graph.function or 'a graph'}, {graph.graph}", graph.times
        if times.how == WHOLE:
            yield (
                f"{name}: only whole calls are timed. A package, or another C++ wrapper, has its "
                "kernels timed if it was compiled with "
                "torch._inductor.config.cpp.enable_kernel_profile = True. Compile it again."
            )
        if times.threads > 1:
            yield (
                f"{name}: called by {times.threads} threads; a kernel's time includes waiting for "
                "the other threads."
            )
        if times.other_sizes:
            yield f"{name}: {count_of(times.other_sizes, 'call')} with further sizes not shown."
    if profile.processes > 1:
        yield (
            f"{profile.processes} processes made compiled calls and shared this machine: a graph "
            "and a kernel have a row for each, and the calls of a function are counted together."
        )
    if any(0 < row.calls < _FEW for row in profile.kernels):
        yield f"Some kernels have fewer than {_FEW} calls: their times say little."
    for calls in profile.functions:
        if not calls.count and (calls.compiling or calls.warming):
            yield (
                f"{calls.name}: no call without compiling or warming up; call it more often for a "
                "time that lasts."
            )
        if len(calls.compiling) > profile.processes:
            yield (
                f"{calls.name}: {len(calls.compiling)} calls compiled something; their "
                f"{seconds_text(sum(calls.compiling) / 1e9)} are kept apart."
            )


# --- on the terminal ------------------------------------------------------------------------------


def print_profile(printer: Printer, view: Mapping[str, Any]) -> None:
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
    by_autograd = any(graph["phase"] == "backward" for graph in view["graphs"])
    for calls in view["functions"]:
        place = f" ({calls['place']})" if calls["kind"] == FUNCTION and calls["place"] else ""
        caller = ", called by autograd" if calls["kind"] == GRAPH and by_autograd else ""
        printer.line(f"{calls['name']}{caller}{place}", indent=2)
        if calls["calls"]:
            times = time_text(calls["seconds"])
            printer.line(f"{count_of(calls['calls'], 'call')}, {times} each", indent=4)
        apart = sum(calls["compiling"])
        if apart:
            printer.line(f"{seconds_text(apart)} in calls that compiled, kept apart", indent=4)
    for graph in view["graphs"]:
        if graph["between_kernels"] and graph["seconds"]["median"]:
            share = graph["between_kernels"]["median"] / graph["seconds"]["median"]
            gaps = gaps_text(graph["device"], graph["measured_by"])
            printer.line(
                f"{_named(graph)}: kernels {seconds_text(graph['kernel_seconds'])}, {gaps} "
                f"between them {time_text(graph['between_kernels'])} ({_percent(share)} of it)",
                indent=2,
            )


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
        is_far = row["share_of_limit"] is not None and row["share_of_limit"] < 0.1 and row["calls"]
        printer.line(_numbers(row), style=BAD if is_far else "")
        printer.line(f"{row['kernel']}{_sizes_text(row['sizes'])}", indent=4)
        more = len(row["operations"]) - 6
        operations = ", ".join(row["operations"][:6]) + (f" and {more} more" if more > 0 else "")
        about = " · ".join(filter(None, (operations, _places_text(row))))
        if about:
            printer.line(about, indent=4, style=FAINT)
        if row["why_above_limit"]:
            printer.line(f"above the limit: {row['why_above_limit']}", indent=4, style=FAINT)
    if len(kernels) > len(shown):
        printer.line(f"and {len(kernels) - len(shown)} more: --json has them all", indent=2)


def _print_slower(printer: Printer, view: Mapping[str, Any]) -> None:
    timed = [graph for graph in view["graphs"] if graph["eager"]]
    if timed:
        printer.line()
        printer.heading("the same graphs in eager, with made-up inputs of the same shapes")
    for graph in timed:
        seconds, eager = graph["seconds"], graph["eager"]
        is_slower = eager["slower_than_eager"]
        ratio = seconds["median"] / eager["median"] if eager["median"] else 0.0
        about = "slower than eager" if is_slower else f"{ratio:.2f} of eager's time"
        if seconds["noisy"] or eager["noisy"]:
            about = "too noisy to compare"
        text = f"{time_text(seconds)} compiled, {time_text(eager)} in eager: {about}"
        printer.line(f"{_named(graph)}: {text}", indent=2, style=BAD if is_slower else "")
    slower = [region for region in view["regions"] if region["slower_than_eager"]]
    for region in slower[:_MOST_SLOWER]:
        printer.line(
            f"slower than eager: {', '.join(region['kernels'])}, "
            f"{seconds_text(region['compiled'])}; eager needs {seconds_text(region['eager'])} for "
            f"{', '.join(region['operations'])} ({_places_text(region)})",
            indent=2,
            style=WARN,
        )
    if slower or any(graph["eager"]["slower_than_eager"] for graph in timed):
        text = "One process of each was measured: --advise tells it from noise by several runs."
        printer.line(text, indent=2, style=FAINT)


def _numbers(row: Mapping[str, Any]) -> str:
    rates = (row["gb_per_second"], row["gflop_per_second"])
    gigabytes, flops = ("" if rate is None else f"{rate:.1f}" for rate in rates)
    return (
        f"{seconds_text(row['lost']):>9} {time_text(row['seconds']):>16} "
        f"{row['calls'] or 'cold':>6} {gigabytes:>7} {flops:>8}  {_limit_text(row)}"
    )


def _limit_text(row: Mapping[str, Any]) -> str:
    floor, seconds = row["floor"], row["seconds"]
    if floor is None:
        return "unknown"
    is_tf32 = floor["limit"] == MATRIX and TF32 in row["matrix_flops"]
    limit = f"{floor['limit']} in TF32" if is_tf32 else floor["limit"]
    if seconds["noisy"] and seconds["low"] > 0:
        low, high = floor["seconds"] / seconds["high"], floor["seconds"] / seconds["low"]
        return f"{_percent(low)} to {_percent(high)}, {limit}"
    return f"{_percent(row['share_of_limit'])}, {limit}"


def _percent(share: float) -> str:
    return "< 1%" if share < 0.01 else f"{share:.0%}"


def _machine_text(machine: Mapping[str, Any]) -> str:
    parts = [f"{machine['device']} {machine['name']}, {count_of(machine['threads'], 'thread')}"]
    if machine["bandwidths"]:
        near, far = (machine["bandwidths"][place]["copy"] / 1e9 for place in (0, -1))
        parts.append(f"copy {far:.0f} GB/s beyond the caches, {near:.0f} GB/s in them")
    rate, tf32 = (machine["matrix"].get(name) for name in ("float32", TF32))
    if rate:
        less = f", in TF32 {tf32 / 1e9:.0f} GFLOP/s" if tf32 else ""
        parts.append(f"float32 products {rate / 1e9:.0f} GFLOP/s{less}")
    return f"Limits, measured {machine['measured']}: {'; '.join(parts)}."


def _named(graph: Mapping[str, Any]) -> str:
    return f"{graph['function']} {graph['graph']}{_sizes_text(graph['sizes'])}"


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return f" [{', '.join(f'{name}={value}' for name, value in sizes.items())}]" if sizes else ""


def _places_text(row: Mapping[str, Any]) -> str:
    return ", ".join(short(place) for place in row["places"][:3])
