"""Reads the records of TORCH_TRACE: a header with JSON, and a payload behind tabs.

    V1115 00:09:37.380000 5966 torch/_dynamo/utils.py:2126] {"chromium_event": {}, "frame_id": 0,
        {
        "name": "mm_template_precompiling",

Only the few records that tell how far a compile got are read, and of those only a few values, so
a record that is damaged loses no more than itself.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from inductoscope.torch_facts.log_text import (
    HEADER,
    LONGEST,
    Origin,
    decode,
)

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


# --- Divides a log into records, their payloads, and other lines ----------------------------------
#
# Payloads are most of a trace, and nothing in them is a line of its own. Every line of them begins
# with a tab, so it is known without the lines before it.

# Begins with the one letter that is searched for, which makes it fast.
_LINE = re.compile(rb"\n(?!\t)(?:" + RECORD.pattern + rb"|[^\n]*)")
# So much of a block shows whether payloads fill it.
_SAMPLE = 1 << 16


class Outside(NamedTuple):
    """What is outside payloads: a text of lines up to `end`, and records, each with its end.

    Where payloads are few, the text is the log itself: with payloads, and with every record.
    """

    log: bytes
    text: bytes
    end: int
    place_in_log: Callable[[int], int]
    records: list[tuple[re.Match[bytes], int]]


def outside_payloads(data: bytes, end: int) -> Outside:
    """What is on the lines that begin before `end`."""
    sample = min(end, _SAMPLE)
    if 2 * data.count(b"\n\t", 0, sample) < data.count(b"\n", 0, sample):
        return Outside(data, data, end, lambda place: place, [])
    lines = [_first_line(data, end)] if data[:1] != b"\t" else []
    starts = [-1] * len(lines)
    records: list[tuple[re.Match[bytes], int]] = []
    # The end of the last line begins none: what follows may be its payload.
    following = _LINE.finditer(data, 0, end - data.endswith(b"\n", 0, end))
    next_line = next(following, None)
    while next_line is not None:
        line, next_line = next_line, next(following, None)
        if line.lastindex:
            after = next_line.start() if next_line else end_of_payload(data, line.end())
            records.append((line, after))
        else:
            lines.append(line[0])
            starts.append(line.start())
    text = b"".join(lines)
    before = list(accumulate(map(len, lines), initial=0))

    def place_in_log(place: int) -> int:
        line = bisect_right(before, place) - 1
        return starts[line] + place - before[line]

    return Outside(data, text, len(text), place_in_log, records)


def _first_line(data: bytes, end: int) -> bytes:
    stop = data.find(b"\n", 0, end)
    return b"\n" + data[: stop if stop >= 0 else end]


# --- How far a compile got, by the phases in a TORCH_TRACE ----------------------------------------
#
# A program that is killed leaves phases open. One that is interrupted closes them all on its way
# out, the innermost first; then the compile has no result, and the phase that was closed first is
# where it was.

_MOST_COMPILES = 64
_MOST_KERNELS = 200
# Not where a compile was cut short.
AFTERWARDS = ("gc",)


class Phase(NamedTuple):
    """A phase: when it began, and its end if it has one."""

    name: str
    began: Origin
    began_at: float
    ended: Origin | None = None
    ended_at: float = 0.0

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        return self.ended_at - self.began_at if self.ended is not None else None


@dataclass
class TracedCompile:
    """What the trace says of one compile id."""

    compile_id: str
    function: str = ""
    open: list[Phase] = field(default_factory=list)
    # The last phase that held no other.
    innermost: Phase | None = None
    outputs: list[str] = field(default_factory=list)
    metrics: dict[str, str] = field(default_factory=dict)
    metrics_at: Origin | None = None
    last: Origin | None = None

    @property
    def failure(self) -> str:
        """The exception that ended it, as its metrics have it."""
        kind = self.metrics.get("fail_type", "null")
        return "" if kind in ("null", "None", "") else kind

    @property
    def cut_short(self) -> bool:
        """Whether it ended with neither code nor an exception that the metrics name."""
        has_code = self.metrics.get("has_guarded_code")
        return self.metrics_at is not None and has_code == "false" and not self.failure


class PhaseFold:
    """Builds compiles from the records of one program."""

    def __init__(self) -> None:
        self._compiles: OrderedDict[str, TracedCompile] = OrderedDict()
        self._leaf: dict[str, bool] = {}
        self.finished = 0
        self.records = 0

    @property
    def compiles(self) -> list[TracedCompile]:
        """Those that are not done, and some that are."""
        return list(self._compiles.values())

    def take(self, record: Record, origin: Origin) -> None:
        """Take one record."""
        self.records += 1
        compile_ = self._compile(record.compile_id)
        compile_.last = origin
        if record.kind == "begin":
            compile_.open.append(Phase(record.name, origin, record.seconds))
            self._leaf[record.compile_id] = True
        elif record.kind == "end":
            self._end(compile_, record, origin)
        elif record.kind == "inductor_output_code":
            if len(compile_.outputs) < _MOST_KERNELS:
                compile_.outputs.append(record.name)
        elif record.kind in ("compilation_metrics", "bwd_compilation_metrics"):
            compile_.metrics = dict(record.values)
            compile_.metrics_at = origin
            self.finished += 1

    def _compile(self, compile_id: str) -> TracedCompile:
        compile_ = self._compiles.get(compile_id)
        if compile_ is None:
            compile_ = self._compiles[compile_id] = TracedCompile(compile_id)
            self._forget()
        return compile_

    def _forget(self) -> None:
        """Drop the oldest compile that is done, once there are many."""
        if len(self._compiles) <= _MOST_COMPILES:
            return
        for compile_id, compile_ in self._compiles.items():
            if not compile_.open and not compile_.failure and not compile_.cut_short:
                del self._compiles[compile_id]
                self._leaf.pop(compile_id, None)
                return

    def _end(self, compile_: TracedCompile, record: Record, origin: Origin) -> None:
        open_ = compile_.open
        if open_ and open_[-1].name == record.name:
            phase = open_.pop()
        else:
            names = [phase.name for phase in open_]
            if record.name not in names:
                return  # It began before the log does.
            place = len(names) - 1 - names[::-1].index(record.name)
            phase = open_[place]
            del open_[place:]
        if self._leaf.get(record.compile_id) and record.name not in AFTERWARDS:
            compile_.innermost = Phase(
                phase.name, phase.began, phase.began_at, origin, record.seconds
            )
        self._leaf[record.compile_id] = False
