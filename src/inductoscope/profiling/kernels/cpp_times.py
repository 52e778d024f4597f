"""Times of the kernels of a C++ wrapper, from its traced calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inductoscope.profiling.kernels.cpp_trace import TracedCall
from inductoscope.profiling.kernels.kernel_times import (
    PROFILER,
    GraphTimes,
    KernelSpan,
    SiteTimes,
    WholeCall,
)


def with_kernels(times: GraphTimes, traced: Sequence[TracedCall]) -> GraphTimes:
    """The graph with the times of its kernels; as it is if none was seen.

    The profiler starts up in the first traced call, which only counts if there is no other.
    """
    calls = traced[1:] or traced
    if not any(call.kernels for call in calls):
        return times
    on_device = any(call.on_device for call in calls)
    is_only = len(traced) == 1
    durations: dict[tuple[str, int], list[int]] = {}
    for call in calls:
        for kernel in call.kernels:
            durations.setdefault((kernel.name, kernel.occurrence), []).append(kernel.duration)
    # On a GPU a call returns before its work is done, so that the clock says nothing.
    whole = tuple(call.duration for call in calls)
    return replace(
        times,
        how=PROFILER,
        device="cuda" if on_device else "cpu",
        sample=whole if on_device or not times.sample else times.sample,
        between=tuple(_between(call) for call in calls),
        sites=tuple(
            SiteTimes(
                0,
                name,
                0 if is_only else len(took),
                0 if is_only else sum(took),
                tuple(took),
                occurrence,
            )
            for (name, occurrence), took in durations.items()
        ),
        usual=_usual(calls),
    )


def _between(call: TracedCall) -> int:
    return max(0, call.duration - sum(kernel.duration for kernel in call.kernels))


def _usual(calls: Sequence[TracedCall]) -> WholeCall:
    """The call in the middle, by time."""
    call = sorted(calls, key=lambda one: one.duration)[len(calls) // 2]
    return WholeCall(
        call.duration,
        tuple(KernelSpan(0, k.name, k.start, k.duration) for k in call.kernels),
    )
