"""Finds the tracebacks that Python itself printed into a log: an exception, or Ctrl-C.

Those that torch logs stand behind torch's header, and are left to the lines that they explain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from inductoscope.logs.text import HEADER, PREFIX, decode

_BEGIN = b"Traceback (most recent call last)"
_FRAME = re.compile(rb'\s+File "([^"\n]+)", line (\d+), in ([^\r\n]+)')
# A traceback is looked for so far and no further.
_REACH = 1 << 17
_MOST_FRAMES = 60


class Frame(NamedTuple):
    """Where a function was."""

    file: str
    line: int
    function: str


class Failure(NamedTuple):
    """One traceback: where it begins and ends in the log, and its last frames."""

    line: int
    label: str
    last_line: int
    error: str
    frames: tuple[Frame, ...]

    @property
    def is_interrupt(self) -> bool:
        return self.error.startswith("KeyboardInterrupt")

    def moved(self, lines: int) -> Failure:
        """The same so many lines further down."""
        return self._replace(line=self.line + lines, last_line=self.last_line + lines)


def find_failures(data: bytes, end: int) -> Iterator[tuple[int, Failure]]:
    """Every traceback that begins before `end`, with the place of its line; lines count from 1."""
    place = data.find(_BEGIN, 0, end + len(_BEGIN))
    while 0 <= place < end:
        start = data.rfind(b"\n", 0, place) + 1
        prefix = PREFIX.match(data, start, place)
        if prefix is not None and data[prefix.end() : place].strip(b" |+") == b"":
            yield start, _read(data[start : start + _REACH], decode(prefix[1]).strip())
        place = data.find(_BEGIN, place + 1, end + len(_BEGIN))


def _read(text: bytes, label: str) -> Failure:
    frames: list[Frame] = []
    lines = text.split(b"\n")
    for number, line in enumerate(lines[1:], start=2):
        prefix = PREFIX.match(line)
        content = line[prefix.end() :] if prefix else line
        other = prefix is not None and decode(prefix[1]).strip() != label
        if other or HEADER.search(line[:400]) or not content.strip():
            continue  # Of another rank or thread, written in between.
        frame = _FRAME.match(content)
        if frame is not None:
            frames.append(Frame(decode(frame[1]), int(frame[2][:9]), decode(frame[3])))
        elif not content[:1].isspace():
            error = decode(content[:2000]).rstrip("\r")
            return Failure(1, label, number, error, tuple(frames[-_MOST_FRAMES:]))
    return Failure(1, label, len(lines), "", tuple(frames[-_MOST_FRAMES:]))
