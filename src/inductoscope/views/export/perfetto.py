"""The timeline as a trace that ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.model.timeline import Lane, Span, Timeline, timeline
from inductoscope.recording.profile_file import (
    KERNELS,
    MEMORY,
    alive_at_peak,
    stored_profile,
    totals_over_time,
)
from inductoscope.recording.values import members, objects, real, text, whole
from inductoscope.views.export.folder import Item
from inductoscope.wording import bytes_text

Event = dict[str, Any]


def perfetto(recording: Recording) -> Iterator[Item]:
    yield Item(
        "trace.json",
        "compile time by process, stage and graph, measured calls, memory; open in ui.perfetto.dev",
        lambda: json.dumps(whole_trace(recording)),
    )


def whole_trace(recording: Recording) -> dict[str, Any]:
    """Build the trace of the timeline, followed by the measurements of `profile`."""
    found = timeline(recording)
    data = trace(found)
    events = data["traceEvents"]
    spare = max((event["pid"] for event in events), default=0) + 1
    folder, begin = Path(recording.path), round(found.seconds * 1e6)
    kernels, memory = (stored_profile(folder, kind) for kind in (KERNELS, MEMORY))
    events += measured_calls(kernels, process=spare, begin=begin)
    events += measured_memory(memory, process=spare + 1, begin=begin)
    return data


def trace(found: Timeline) -> dict[str, Any]:
    """Build trace events: process and thread names, then spans by start time."""
    numbers = _process_numbers(found)
    threads = _thread_numbers(found)
    events = [
        event
        for number, lane in enumerate(found.lanes)
        for event in _names(lane, numbers[lane.process], threads[number])
    ]
    spans = sorted(found.spans, key=lambda span: (span.start, span.depth))
    events += [
        _complete(span, numbers[found.lanes[span.lane].process], threads[span.lane])
        for span in spans
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"started": found.started, "notes": list(found.notes)},
    }


def _process_numbers(found: Timeline) -> dict[str, int]:
    """Assign unique process ids, since the system reuses them."""
    ids = {lane.process: lane.pid if 0 < lane.pid < 2**31 else 1 for lane in found.lanes}
    spare = itertools.count(max(ids.values(), default=0) + 1)
    taken: set[int] = set()
    for process, number in ids.items():
        ids[process] = next(spare) if number in taken else number
        taken.add(number)
    return ids


def _thread_numbers(found: Timeline) -> list[int]:
    """Number the lanes of each process from 1, as thread ids."""
    counts: dict[str, int] = {}
    numbers = []
    for lane in found.lanes:
        counts[lane.process] = counts.get(lane.process, 0) + 1
        numbers.append(counts[lane.process])
    return numbers


def _names(lane: Lane, process: int, thread: int) -> Iterator[Event]:
    place = {"ph": "M", "pid": process, "tid": thread}
    if thread == 1:
        yield {**place, "name": "process_name", "args": {"name": lane.name}}
    yield {**place, "name": "thread_name", "args": {"name": lane.name}}
    yield {**place, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _complete(span: Span, process: int, thread: int) -> Event:
    start, end = round(span.start * 1e6), round(span.end * 1e6)
    label = f"{span.stage}: {span.label}" if span.label else span.stage
    return {
        "ph": "X",
        "name": label if span.finished else f"{label} (never ended)",
        "cat": span.stage,
        "ts": start,
        "dur": end - start,
        "pid": process,
        "tid": thread,
        "args": {"graph": span.graph, "compile": span.compile, "finished": span.finished},
    }


# --------------------------------------------------------------------------------------------------
# One usual call of every graph that was profiled, as lanes of a trace: kernels, and gaps as gaps.
#
# They ran some time during the run; in the trace they begin where it ends, side by side, so that
# they can be compared.


def measured_calls(profile: Mapping[str, Any], *, process: int, begin: int) -> Iterator[Event]:
    """Yield the trace events of profiled calls. `begin` is in microseconds."""
    graphs = [graph for graph in objects(profile.get("graphs")) if members(graph.get("usual_call"))]
    if graphs:
        name = "usual calls, measured by profile"
        yield _name("process_name", process, 1, name)
    for number, graph in enumerate(graphs, 1):
        words = [str(graph.get(key) or "") for key in ("function", "graph")]
        yield _name("thread_name", process, number, " ".join(filter(None, words)))
        call = members(graph.get("usual_call"))
        place = {"ph": "X", "pid": process, "tid": number}
        whole = {"calls": graph.get("calls"), "measured_by": graph.get("measured_by")}
        yield {**place, "name": "call", "cat": "call", **_span(begin, 0.0, call), "args": whole}
        for kernel in objects(call.get("kernels")):
            named = {"name": str(kernel.get("kernel") or ""), "cat": "kernel"}
            line = {"wrapper_line": kernel.get("wrapper_line")}
            start = real(kernel.get("start"))
            yield {**place, **named, **_span(begin, start, kernel), "args": line}


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}


def _span(begin: int, start: float, found: Mapping[str, Any]) -> dict[str, float]:
    """Convert a span to microseconds with three decimals: a kernel may take less than one."""
    seconds = max(real(found.get("seconds")), 0.0)
    return {"ts": round(begin + start * 1e6, 3), "dur": round(seconds * 1e6, 3)}


# --- Memory over one step, as counters of a trace: compiled and in eager, with the peak marked ----
#
# The steps ran some time during the run; in the trace they begin where it ends, side by side.

# Blocks that a peak names, the largest first.
_MOST_BLOCKS = 40


def measured_memory(profile: Mapping[str, Any], *, process: int, begin: int) -> Iterator[Event]:
    """Yield the counter events of profiled steps. `begin` is in microseconds."""
    steps = objects(profile.get("steps"))
    if steps:
        name = {"name": "memory of one step, measured by profile --memory"}
        yield {"ph": "M", "pid": process, "tid": 1, "name": "process_name", "args": name}
    for step in steps:
        for how, course in (("compiled", step), ("in eager", members(step.get("eager")))):
            if course:
                title = f"{text(step.get('function'))}, {text(course.get('device'))}, {how}"
                yield from _course(course, title, process, begin)


def _course(course: Mapping[str, Any], title: str, process: int, begin: int) -> Iterator[Event]:
    place = {"pid": process, "tid": 1}
    points = [(0.0, whole(course.get("base_bytes")))]
    for seconds, total in points + totals_over_time(course):
        at = round(begin + seconds * 1e6, 3)
        yield {**place, "ph": "C", "name": title, "ts": at, "args": {"bytes": total}}
    peak = whole(course.get("peak_bytes"))
    yield {
        **place,
        "ph": "i",
        "s": "p",
        "name": f"peak of {title}: {bytes_text(peak)}",
        "ts": round(begin + real(course.get("peak_seconds")) * 1e6, 3),
        "args": {"alive": list(_alive(course))},
    }


def _alive(course: Mapping[str, Any]) -> Iterator[str]:
    for block in alive_at_peak(course)[:_MOST_BLOCKS]:
        about = (text(block.get(key)) for key in ("kind", "name", "operation", "source"))
        yield " · ".join([bytes_text(whole(block.get("bytes"))), *filter(None, about)])
