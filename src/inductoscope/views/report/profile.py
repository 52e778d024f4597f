"""The kernel profile as data: what was measured, and what can be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inductoscope.model.entities import Ending
from inductoscope.profiling.kernels.eager import (
    ComparedRegion,
    EagerTimes,
    eager_of,
    is_slower_than_eager,
    regions_of,
)
from inductoscope.profiling.kernels.kernel_times import WHOLE, WholeCall
from inductoscope.profiling.kernels.profile import GraphProfile, KernelProfile, Profile
from inductoscope.profiling.kernels.running import ProfiledRun
from inductoscope.profiling.machine.limits import FUNCTIONS, MATRIX, MachineLimits
from inductoscope.profiling.statistics import NOISY, Sample, TimeComparison
from inductoscope.profiling.timings import FUNCTION, CallTimes
from inductoscope.views.report.times import seconds_text
from inductoscope.vocabulary.counting import count_of

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
