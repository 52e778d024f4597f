"""The timeline as a trace that ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.model.lanes import Lane, Span
from inductoscope.model.timeline import Timeline, timeline
from inductoscope.recording.profile_file import KERNELS, MEMORY, stored_profile
from inductoscope.views.export.item import Item
from inductoscope.views.export.measured_calls import measured_calls
from inductoscope.views.export.measured_memory import measured_memory

Event = dict[str, Any]


def perfetto(recording: Recording) -> Iterator[Item]:
    """One trace of all processes."""
    yield Item(
        "trace.json",
        "compile time by process, stage and graph, measured calls, memory; open in ui.perfetto.dev",
        lambda: json.dumps(whole_trace(recording)),
    )


def whole_trace(recording: Recording) -> dict[str, Any]:
    """The timeline, and what `profile` measured after it."""
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
    """The trace as data: named processes and threads, then spans in order of time."""
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
    """Process ids, made unique: the system reuses ids."""
    ids = {lane.process: lane.pid if 0 < lane.pid < 2**31 else 1 for lane in found.lanes}
    spare = itertools.count(max(ids.values(), default=0) + 1)
    taken: set[int] = set()
    for process, number in ids.items():
        ids[process] = next(spare) if number in taken else number
        taken.add(number)
    return ids


def _thread_numbers(found: Timeline) -> list[int]:
    """The lanes of a process are its threads, numbered from 1."""
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
