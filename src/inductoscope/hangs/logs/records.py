"""Reads the records of TORCH_TRACE: a header with JSON, and a payload behind tabs.

    V1115 00:09:37.380000 5966 torch/_dynamo/utils.py:2126] {"chromium_event": {}, "frame_id": 0,
        {
        "name": "mm_template_precompiling",

Only the few records that tell how far a compile got are read, and of those only a few values, so
a record that is damaged loses no more than itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from inductoscope.hangs.logs.text import HEADER, LONGEST, decode

# The groups of a header, then the key.
RECORD = re.compile(
    HEADER.pattern + rb'(?: \[[^\]\s]*\d/\d[^\]\s]*\])?(?: \[__\w+\])? ?\{"(\w+)": '
)
_FRAME = re.compile(rb'"frame_id": (\d+), "frame_compile_id": (\d+)(?:, "attempt": (\d+))?')
_AUTOGRAD = re.compile(rb'"compiled_autograd_id": (\d+)')
_RANK = re.compile(rb'"rank": (\d+)')
_DIGEST = b', "has_payload"'
_COMPILE_ID = re.compile(rb'"compile_id": "([^"\n]*)"')
_EVENT_NAME = re.compile(
    rb'\n\t"name": "([^"\\\n]*(?:\\.[^"\\\n]*)*)"(?:,\s*\n\t"ts": (\d{1,18}(?:\.\d{1,9})?))?'
)
_EVENT_KIND = b'\n\t"ph": "'
_PAYLOAD_END = re.compile(rb"\n(?!\t)")
_ARTIFACT = re.compile(rb'"name": "([^"\n]*)"')
_FILE = re.compile(rb'"filename": "([^"\n]*)"')
_VALUE = re.compile(
    rb'"(fail_type|fail_reason|has_guarded_code|co_name|co_filename|co_firstlineno)": '
    rb'(?:"((?:[^"\\\n]|\\.)*)"|(\w+))'
)
_EVENTS = {b'B"': "begin", b'E"': "end"}


class Record(NamedTuple):
    """One record: `kind` is begin or end of a phase, or the key that torch gave it."""

    label: str
    process: int
    time: str
    compile_id: str
    kind: str
    name: str
    seconds: float
    values: tuple[tuple[str, str], ...] = ()


def end_of_payload(data: bytes, start: int) -> int:
    """Where the first line ends that begins no line of a payload, from `start` on a line."""
    end = _PAYLOAD_END.search(data, start)
    return end.start() if end else len(data)


def read_record(data: bytes, head: re.Match[bytes], end: int, label: str) -> Record | None:
    """The record with this head and a payload up to `end`; None if we do not use its kind."""
    key = head[6]
    reader = _KINDS.get(key)
    if reader is None:
        return None
    start = head.end()
    stop = data.find(b"\n", start, start + LONGEST)
    if stop < 0:
        stop = min(len(data), start + LONGEST)
    found = reader(data, start, stop, end)
    if found is None:
        return None
    kind, name, seconds, values = found
    digest = data.rfind(_DIGEST, start, stop)
    rank, compile_id = written_by(data[start : digest if digest > 0 else stop])
    if compile_id is None:
        inside = _COMPILE_ID.search(data, start, min(len(data), stop + 500))
        compile_id = decode(inside[1]) if inside else ""
    return Record(
        label or rank,
        int(head[3][:18]),
        head[2].decode(),
        compile_id,
        kind or decode(key),
        name,
        seconds,
        values,
    )


# The events of a compile follow each other, and differ in nothing else on their line.
@lru_cache(maxsize=64)
def written_by(json: bytes) -> tuple[str, str | None]:
    """The rank and the compile id."""
    found = _RANK.search(json) if b'"rank": ' in json else None
    rank = f"rank {decode(found[1])}" if found else ""
    frame = _FRAME.search(json)
    if frame is None:
        return rank, None
    attempt = f"_{decode(frame[3])}" if frame[3] not in (None, b"0") else ""
    autograd = _AUTOGRAD.search(json)
    before = f"!{decode(autograd[1])}/" if autograd else ""
    return rank, f"{before}{decode(frame[1])}/{decode(frame[2])}{attempt}"


_Read = tuple[str, str, float, tuple[tuple[str, str], ...]]
_Reader = Callable[[bytes, int, int, int], "_Read | None"]


def _event(data: bytes, start: int, stop: int, end: int) -> _Read | None:
    limit = end if end < stop + LONGEST else stop + LONGEST
    place = data.find(_EVENT_KIND, stop, limit)
    name = _EVENT_NAME.search(data, stop, stop + 400)
    if place < 0 or name is None or name.end() > end:
        return None
    place += len(_EVENT_KIND)
    kind = _EVENTS.get(data[place : place + 2])
    if kind is None:
        return None
    return kind, decode(name[1]), float(name[2]) / 1e6 if name[2] else 0.0, ()


def _metrics(data: bytes, start: int, stop: int, _end: int) -> _Read:
    values = tuple(
        (decode(found[1]), decode(found[2] if found[2] is not None else found[3]))
        for found in _VALUE.finditer(data, start, stop)
    )
    return "", "", 0.0, values


def _named(expression: re.Pattern[bytes]) -> _Reader:
    def read(data: bytes, start: int, stop: int, _end: int) -> _Read:
        found = expression.search(data, start, stop)
        return "", decode(found[1]) if found else "", 0.0, ()

    return read


def _plain(_data: bytes, _start: int, _stop: int, _end: int) -> _Read:
    return "", "", 0.0, ()


_KINDS: dict[bytes, _Reader] = {
    b"chromium_event": _event,
    b"compilation_metrics": _metrics,
    b"bwd_compilation_metrics": _metrics,
    b"artifact": _named(_ARTIFACT),
    b"inductor_output_code": _named(_FILE),
    b"dynamo_start": _plain,
}
