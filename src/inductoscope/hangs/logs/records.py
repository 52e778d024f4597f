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
from typing import NamedTuple

from inductoscope.hangs.logs.text import LONGEST, decode

_FRAME = re.compile(rb'"frame_id": (\d+), "frame_compile_id": (\d+)(?:, "attempt": (\d+))?')
_AUTOGRAD = re.compile(rb'"compiled_autograd_id": (\d+)')
_RANK = re.compile(rb'"rank": (\d+)')
_KEY = re.compile(rb'\{"(\w+)": ')
_COMPILE_ID = re.compile(rb'"compile_id": "([^"\n]*)"')
_EVENT_NAME = re.compile(rb'\n\t"name": "((?:[^"\\\n]|\\.)*)"')
_EVENT_KIND = re.compile(rb'\n\t"ph": "(\w)"|\n(?!\t)')
_EVENT_TIME = re.compile(rb'\n\t"ts": ([\d.]+)')
_ARTIFACT = re.compile(rb'"name": "([^"\n]*)"')
_FILE = re.compile(rb'"filename": "([^"\n]*)"')
_VALUE = re.compile(
    rb'"(fail_type|fail_reason|has_guarded_code|co_name|co_filename|co_firstlineno)": '
    rb'(?:"((?:[^"\\\n]|\\.)*)"|(\w+))'
)
_EVENTS = {b"B": "begin", b"E": "end"}


class Record(NamedTuple):
    """One record: `kind` is begin or end of a phase, or the key that torch gave it."""

    line: int
    label: str
    process: int
    time: str
    compile_id: str
    kind: str
    name: str
    seconds: float
    values: tuple[tuple[str, str], ...] = ()


def read_record(data: bytes, header: re.Match[bytes], start: int, label: str) -> Record | None:
    """The record whose JSON begins at `start`; None if we do not use its kind."""
    key = _KEY.match(data, start)
    reader = _KINDS.get(key[1]) if key else None
    if key is None or reader is None:
        return None
    stop = data.find(b"\n", start, start + LONGEST)
    stop = stop if stop >= 0 else min(len(data), start + LONGEST)
    found = reader(data, start, stop)
    if found is None:
        return None
    kind, name, seconds, values = found
    rank = _RANK.search(data, start, stop)
    return Record(
        line=0,
        label=label or (f"rank {decode(rank[1])}" if rank else ""),
        process=int(header[3][:18]),
        time=decode(header[2]),
        compile_id=_compile_id(data, start, stop),
        kind=kind or decode(key[1]),
        name=name,
        seconds=seconds,
        values=values,
    )


def _compile_id(data: bytes, start: int, stop: int) -> str:
    frame = _FRAME.search(data, start, stop)
    if frame is not None:
        attempt = f"_{decode(frame[3])}" if frame[3] not in (None, b"0") else ""
        autograd = _AUTOGRAD.search(data, start, stop)
        before = f"!{decode(autograd[1])}/" if autograd else ""
        return f"{before}{decode(frame[1])}/{decode(frame[2])}{attempt}"
    inside = _COMPILE_ID.search(data, start, min(len(data), stop + 500))
    return decode(inside[1]) if inside else ""


_Read = tuple[str, str, float, tuple[tuple[str, str], ...]]
_Reader = Callable[[bytes, int, int], "_Read | None"]


def _event(data: bytes, start: int, stop: int) -> _Read | None:
    limit = stop + LONGEST
    kind = _EVENT_KIND.search(data, stop, limit)
    name = _EVENT_NAME.search(data, stop, min(limit, stop + 400))
    if kind is None or name is None or kind[1] not in _EVENTS:
        return None
    time = _EVENT_TIME.search(data, name.end(), name.end() + 40)
    return _EVENTS[kind[1]], decode(name[1]), float(time[1][:20]) / 1e6 if time else 0.0, ()


def _metrics(data: bytes, start: int, stop: int) -> _Read:
    values = tuple(
        (decode(found[1]), decode(found[2] if found[2] is not None else found[3]))
        for found in _VALUE.finditer(data, start, stop)
    )
    return "", "", 0.0, values


def _named(expression: re.Pattern[bytes]) -> _Reader:
    def read(data: bytes, start: int, stop: int) -> _Read:
        found = expression.search(data, start, stop)
        return "", decode(found[1]) if found else "", 0.0, ()

    return read


def _plain(data: bytes, start: int, stop: int) -> _Read:
    return "", "", 0.0, ()


_KINDS: dict[bytes, _Reader] = {
    b"chromium_event": _event,
    b"compilation_metrics": _metrics,
    b"bwd_compilation_metrics": _metrics,
    b"artifact": _named(_ARTIFACT),
    b"inductor_output_code": _named(_FILE),
    b"dynamo_start": _plain,
}
