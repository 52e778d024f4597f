"""One usual call of every graph that was profiled, as lanes of a trace: kernels, and gaps as gaps.

They ran some time during the run; in the trace they begin where it ends, side by side, so that
they can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inductoscope.recording.values import members, objects, real

Event = dict[str, Any]


def measured_calls(profile: Mapping[str, Any], *, process: int, begin: int) -> Iterator[Event]:
    """The events; none if no call was kept. `begin` is in microseconds."""
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
    """Microseconds with three decimals: a kernel may take less than one."""
    seconds = max(real(found.get("seconds")), 0.0)
    return {"ts": round(begin + start * 1e6, 3), "dur": round(seconds * 1e6, 3)}
