"""Chunks of the whole run: autotuning, guards, the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inductoscope.model.entities import Choice, Compile, Recording
from inductoscope.model.timeline import Timeline

View = dict[str, Any]


def autotune(recording: Recording) -> list[View]:
    """Every search, with its choices."""
    return [
        {
            "graph": graph.key,
            "operation": search.operation,
            "winner": search.winner,
            "choices": [_choice(choice) for choice in search.choices],
        }
        for graph in recording.graphs
        for search in graph.autotunes
    ]


def _choice(choice: Choice) -> View:
    is_timed = choice.milliseconds is not None and not choice.failed
    return {
        "name": choice.name,
        "description": choice.description,
        "milliseconds": choice.milliseconds,
        "state": "timed" if is_timed else choice.state,
        "error": choice.error,
    }


def guards(recording: Recording, compile_: Compile) -> View:
    """The guards of one compile, one in a line."""
    rows = recording.data(compile_.guards)
    lines = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            code = row.get("code")
            text = "; ".join(map(str, code)) if isinstance(code, list) else str(code or "")
            head = " ".join(str(row.get(name) or "") for name in ("kind", "source")).strip()
            lines.append(f"{head}: {text}" if text else head)
    return {"text": "\n".join(lines)}


def timeline_view(found: Timeline, numbers: Mapping[tuple[str, str], int]) -> View:
    """Where the time went, by process and stage."""
    return {
        "lanes": [{"name": lane.name, "kind": lane.kind} for lane in found.lanes],
        "spans": [
            {
                "lane": span.lane,
                "start": round(span.start, 6),
                "seconds": round(span.seconds, 6),
                "depth": span.depth,
                "stage": span.stage,
                "label": span.label if span.finished else f"{span.label} (not finished)",
                "graph": numbers.get((found.lanes[span.lane].process, span.graph)),
            }
            for span in found.spans
        ],
    }
