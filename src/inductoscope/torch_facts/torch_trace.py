"""Reader for the records of TORCH_TRACE: a header with JSON, and a tab-indented payload.

    V1115 00:09:37.380000 5966 torch/_dynamo/utils.py:2126] {"chromium_event": {}, "frame_id": 0,
        {
        "name": "mm_template_precompiling",

Only the few records that show the progress of a compile are parsed, and only a few values of each,
so a damaged record affects nothing else.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from inductoscope.torch_facts.log_text import LONGEST, decode

_FRAME = re.compile(rb'"frame_id": (\d+), "frame_compile_id": (\d+)(?:, "attempt": (\d+))?')
_AUTOGRAD = re.compile(rb'"compiled_autograd_id": (\d+)')
_RANK = re.compile(rb'"rank": (\d+)')
_DIGEST = b', "has_payload"'
_COMPILE_ID = re.compile(rb'"compile_id": "([^"\n]*)"')
_EVENT_NAME = re.compile(
    rb'\n\t?"name": "([^"\\\n]*(?:\\.[^"\\\n]*)*)"(?:,\s*\n\t?"ts": (\d{1,18}(?:\.\d{1,9})?))?'
)
_PHASE = re.compile(rb'\n\t?"ph": "([BE])"')
_PAYLOAD_END = re.compile(rb"\n(?!\t)")
_FILE = re.compile(rb'"filename": "([^"\n]*)"')
_VALUE = re.compile(
    rb'"(fail_type|fail_reason|has_guarded_code|config_suppress_errors|co_name|co_filename'
    rb'|co_firstlineno)": '
    rb'(?:"((?:[^"\\\n]|\\.)*)"|(\w+))'
)
# torch writes this artifact about a break only if it goes on, which it does not with fullgraph.
_GRAPH_BREAK = re.compile(rb'"name": "(dynamo_graph_break_reason)".*\n\t?Graph break')
_KINDS = (
    b"chromium_event",
    b"compilation_metrics",
    b"bwd_compilation_metrics",
    b"inductor_output_code",
    # Apart from a graph break, only the existence of these matters: it makes the compile known.
    b"artifact",
    b"dynamo_start",
)


class Record(NamedTuple):
    """A trace record: `kind` is begin or end of a phase, or torch's key."""

    label: str
    process: int
    time: str
    compile_id: str
    kind: str
    name: str
    seconds: float
    values: tuple[tuple[str, str], ...] = ()


def end_of_payload(data: bytes, start: int) -> int:
    """Return where a payload ends: at the first line from `start` on that is not payload."""
    end = _PAYLOAD_END.search(data, start)
    return end.start() if end else len(data)


def read_record(
    data: bytes, header: re.Match[bytes], key: bytes, span: tuple[int, int], label: str
) -> Record | None:
    """Parse the record with this key; None if its kind is not used.

    `span` is from the value of the key to the end of the payload.
    """
    start, end = span
    if key not in _KINDS:
        return None
    stop = data.find(b"\n", start, start + LONGEST)
    if stop < 0:
        stop = min(len(data), start + LONGEST)
    kind, name, seconds = decode(key), "", 0.0
    values: tuple[tuple[str, str], ...] = ()
    if key == b"chromium_event":
        event = read_event(data, stop, end)
        if event is None:
            return None
        kind, name, seconds = event
    elif key == b"artifact":
        graph_break = _GRAPH_BREAK.search(data, start, min(end, stop + len("\n\tGraph break")))
        name = decode(graph_break[1]) if graph_break else ""
    elif key == b"inductor_output_code":
        file = _FILE.search(data, start, stop)
        name = decode(file[1]) if file else ""
    elif key.endswith(b"compilation_metrics"):
        values = tuple(
            (decode(found[1]), decode(found[2] if found[2] is not None else found[3]))
            for found in _VALUE.finditer(data, start, stop)
        )
    rank, compile_id = writer_of(data, start, stop)
    if compile_id is None:
        inside = _COMPILE_ID.search(data, start, min(len(data), stop + 500))
        compile_id = decode(inside[1]) if inside else ""
    process, time = int(header[3][:18]), header[2].decode()
    return Record(label or rank, process, time, compile_id, kind, name, seconds, values)


def read_event(data: bytes, start: int, end: int) -> tuple[str, str, float] | None:
    """Parse a chromium event: begin or end, the name of the phase, and the time in seconds.

    Its lines are between `start` and `end`, with or without the tab that indents a payload. Begin
    or end is said after the arguments, which are long if they have the key of a cache.
    """
    found = _PHASE.search(data, start, end)
    name = _EVENT_NAME.search(data, start, min(end, start + 400))
    if found is None or name is None:
        return None
    time = float(name[2]) / 1e6 if name[2] else 0.0
    return ("begin" if found[1] == b"B" else "end"), decode(name[1]), time


def writer_of(data: bytes, start: int, stop: int) -> tuple[str, str | None]:
    """Return the rank and the compile id in the JSON of a record."""
    digest = data.rfind(_DIGEST, start, stop)
    return _writer_in(data[start : digest if digest > 0 else stop])


# The events of a compile follow each other, and differ in nothing else on their line.
@lru_cache(maxsize=64)
def _writer_in(json: bytes) -> tuple[str, str | None]:
    found = _RANK.search(json) if b'"rank": ' in json else None
    rank = f"rank {decode(found[1])}" if found else ""
    frame = _FRAME.search(json)
    if frame is None:
        return rank, None
    attempt = f"_{decode(frame[3])}" if frame[3] not in (None, b"0") else ""
    autograd = _AUTOGRAD.search(json)
    before = f"!{decode(autograd[1])}/" if autograd else ""
    return rank, f"{before}{decode(frame[1])}/{decode(frame[2])}{attempt}"
