"""The kernel profile as data: what was measured, and what can be said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inductoscope.model.entities import Ending
from inductoscope.profiling.kernel_profile import (
    ComparedRegion,
    EagerTimes,
    GraphProfile,
    KernelProfile,
    Profile,
    ProfiledRun,
    eager_of,
    is_slower_than_eager,
    regions_of,
)
from inductoscope.profiling.machine import (
    FUNCTIONS,
    MATRIX,
    TF32,
    MachineLimits,
)
from inductoscope.profiling.statistics import NOISY, Sample, TimeComparison
from inductoscope.profiling.timings import (
    FUNCTION,
    WHOLE,
    CallTimes,
    WholeCall,
    what_is_between,
)
from inductoscope.views.report.terminal import BAD, FAINT, WARN, Printer
from inductoscope.views.report.times import seconds_text, time_text
from inductoscope.wording import count_of

# With fewer calls, a median says little.
_FEW = 5


def profile_view(found: ProfiledRun, folder: str, ending: Ending) -> dict[str, Any]:
    """Everything that was measured, with its spread."""
    profile = found.profile
    return {
        "recording": folder,
        "exit_code": ending.exit_code,
        "headline": headline(profile),
        "functions": [_call_view(calls) for calls in profile.functions],
        "graphs": [_graph_view(graph, found.eager) for graph in profile.graphs],
        "kernels": [_kernel_view(row, profile) for row in profile.kernels],
        "regions": [_region_view(r) for r in regions_of(profile.kernels, found.eager)],
        "machines": [_machine_view(machine) for machine in profile.machines],
        "notes": [*profile.notes, *_notes(profile)],
    }


def sample_view(sample: Sample) -> dict[str, Any]:
    """A sample: its median, its quartiles, and how far they are apart."""
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
    """How two samples compare."""
    return {
        "verdict": found.verdict,
        "ratio": found.ratio,
        "low": found.low,
        # JSON has no infinity.
        "high": min(found.high, 1e300),
        "chance": found.chance,
        "how": found.how,
    }


def _call_view(calls: CallTimes) -> dict[str, Any]:
    return {
        "name": calls.name,
        "kind": calls.kind,
        "place": calls.place,
        "calls": calls.count,
        "seconds": sample_view(calls.seconds),
        "compiling": [value / 1e9 for value in calls.compiling],
        "warming": [value / 1e9 for value in calls.warming],
        "dropped": calls.dropped,
    }


def _region_view(region: ComparedRegion) -> dict[str, Any]:
    return {
        "graph": region.graph,
        "kernels": list(region.kernels),
        "operations": list(region.operations),
        "places": list(region.places),
        "compiled": region.compiled,
        "eager": region.eager,
        "slower_than_eager": region.is_slower,
    }


def _eager_view(graph: GraphProfile, times: Sequence[EagerTimes]) -> dict[str, Any] | None:
    eager = eager_of(graph, times)
    if eager is None:
        return None
    return {**sample_view(eager), "slower_than_eager": is_slower_than_eager(graph, eager)}


def _graph_view(graph: GraphProfile, times: Sequence[EagerTimes]) -> dict[str, Any]:
    return {
        "graph": graph.graph,
        "function": graph.function,
        "place": graph.place,
        "phase": graph.phase,
        "device": graph.device,
        "sizes": dict(graph.sizes),
        "measured_by": graph.how,
        "calls": graph.calls,
        "seconds": sample_view(graph.seconds),
        "first_call": graph.first,
        "kernel_seconds": graph.kernel_seconds,
        "between_kernels": sample_view(graph.between) if graph.between.count else None,
        "eager": _eager_view(graph, times),
        "threads": graph.threads,
        "calls_with_other_sizes": graph.other_sizes,
        "usual_call": _usual_view(graph.usual) if graph.usual else None,
    }


def _usual_view(call: WholeCall) -> dict[str, Any]:
    return {
        "seconds": call.duration / 1e9,
        "kernels": [
            {
                "kernel": span.kernel,
                "wrapper_line": span.line,
                "start": span.start / 1e9,
                "seconds": span.duration / 1e9,
            }
            for span in call.kernels
        ],
    }


def _kernel_view(row: KernelProfile, profile: Profile) -> dict[str, Any]:
    median = row.seconds.median
    return {
        "kernel": row.kernel,
        "language": row.language,
        "graph": row.graph,
        "function": row.function,
        "wrapper_line": row.line,
        "device": row.device,
        "sizes": dict(row.sizes),
        "measured_by": row.how,
        "calls": row.calls,
        "seconds": sample_view(row.seconds),
        "total": row.total,
        "lost": row.lost,
        "read": row.work.read,
        "written": row.work.written,
        "flops": row.work.flops,
        "matrix_flops": dict(row.work.matrix),
        "functions": dict(row.work.functions),
        "gb_per_second": _rate(row.work.bytes, median),
        "gflop_per_second": _rate(row.work.flops, median),
        "floor": None
        if row.floor is None
        else {
            "seconds": row.floor.seconds,
            "limit": row.floor.limit,
            "parts": dict(row.floor.parts),
            "working_set": row.floor.working_set,
        },
        "share_of_limit": row.share,
        "why_above_limit": why_above(row, profile) if row.beats_limit else "",
        "not_counted": row.work.missing,
        "operations": list(row.operations),
        "nodes": list(row.nodes),
        "places": list(row.places),
    }


def _rate(amount: int | None, seconds: float) -> float | None:
    return None if not amount or seconds <= 0 else amount / seconds / 1e9


def _machine_view(machine: MachineLimits) -> dict[str, Any]:
    return {
        "device": machine.device,
        "name": machine.name,
        "threads": machine.threads,
        "torch": machine.torch,
        "measured": machine.when,
        "spread": machine.spread,
        "bandwidths": [
            {
                "working_set": item.working_set,
                "read": item.read,
                "copy": item.copy,
                "fill": item.fill,
            }
            for item in machine.steady_bandwidths
        ],
        "matrix": dict(machine.matrix),
        "functions": dict(machine.functions),
    }


# --- what can and cannot be said ------------------------------------------------------------------


def headline(profile: Profile) -> str:
    """The answer in one sentence."""
    if profile.is_empty:
        return (
            "The program made no compiled call: nothing in it was compiled by Inductor, or it "
            "ended before that was called."
        )
    steady = [row for row in profile.kernels if row.calls]
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
    if not steady:
        return (
            "Every kernel ran once, right after it was compiled: these times are cold. Have the "
            "program make more calls."
        )
    if is_too_noisy(profile):
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


def is_too_noisy(profile: Profile) -> bool:
    """Whether kernels that vary too much have most of the time."""
    total = sum(row.total for row in profile.kernels)
    noisy = sum(row.total for row in profile.kernels if row.seconds.is_noisy)
    return total > 0 and noisy > total / 2


def why_above(row: KernelProfile, profile: Profile) -> str:
    """Why a kernel may be faster than what was measured as the machine's limit."""
    if row.floor is None:
        return ""
    machine = next((m for m in profile.machines if m.device == row.device), None)
    if machine is not None and machine.spread > NOISY:
        return (
            f"the machine was busy when it was measured (rounds {machine.spread:.0%} apart): "
            "--measure-machine does it again"
        )
    if row.floor.limit == FUNCTIONS:
        return "the generated code may compute its functions faster than torch's own kernels do"
    if row.floor.limit == MATRIX:
        return (
            "its shape may suit the machine better than the square products that were measured, or "
            "the program allows products of less precision"
        )
    return "its data may stay in a nearer cache than data of its size usually does"


def _notes(profile: Profile) -> list[str]:
    found = []
    for graph in profile.graphs:
        name = f"{graph.function or 'a graph'}, {graph.graph}"
        if graph.how == WHOLE:
            found.append(
                f"{name}: only whole calls are timed. A package, or another C++ wrapper, has its "
                "kernels timed if it was compiled with "
                "torch._inductor.config.cpp.enable_kernel_profile = True. Compile it again."
            )
        if graph.threads > 1:
            found.append(
                f"{name}: called by {graph.threads} threads; a kernel's time includes waiting for "
                "the other threads."
            )
        if graph.other_sizes:
            found.append(
                f"{name}: {count_of(graph.other_sizes, 'call')} with further sizes not shown."
            )
    if profile.processes > 1:
        found.append(
            f"{profile.processes} processes made compiled calls and shared this machine: a graph "
            "and a kernel have a row for each, and the calls of a function are counted together."
        )
    if any(0 < row.calls < _FEW for row in profile.kernels):
        found.append(f"Some kernels have fewer than {_FEW} calls: their times say little.")
    dropped = sum(calls.dropped for calls in profile.functions)
    if dropped:
        found.append(f"The clock went backwards during {count_of(dropped, 'call')}: left out.")
    for calls in profile.functions:
        if not calls.count and (calls.compiling or calls.warming):
            found.append(
                f"{calls.name}: no call without compiling or warming up; call it more often for a "
                "time that lasts."
            )
        if len(calls.compiling) > profile.processes:
            found.append(
                f"{calls.name}: {len(calls.compiling)} calls compiled something; their "
                f"{seconds_text(sum(calls.compiling) / 1e9)} are kept apart."
            )
    return list(dict.fromkeys(found))


# --- The kernel profile on the terminal -----------------------------------------------------------

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
