"""Finds the relevant content of a log: torch's lines, trace records, stacks, other telling lines.

A log may have many gigabytes and any origin. It is read in blocks of whole lines, each with some of
what follows it, so that a record or traceback that begins on its last line is read to its end. So
it does not matter where a block ends, and a large file can be divided among processes. A line of
torch's is found by the end of its header, whatever a launcher put before that:

    V1115 00:25:34.924000 1578 torch/_inductor/select_algorithm.py:3515] [0/0] Submitted ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from inductoscope.hangs.logs.log_files import UNREADABLE
from inductoscope.torch_facts.log_lines import PATTERNS, LineMeaning, LogPattern
from inductoscope.torch_facts.log_text import (
    COLLECTIVE,
    HEADER,
    KEY,
    LONGEST,
    MARKS,
    PRINTED,
    clean,
    decode,
    is_prefix,
    label_of,
    may_stand_before,
    prefix_of,
    text_of_line,
)
from inductoscope.torch_facts.printed_stacks import LoggedStack, find_stacks
from inductoscope.torch_facts.torch_trace import Record, end_of_payload, read_record

BLOCK = 1 << 20
# How far ahead a record or a traceback may reach.
AHEAD = 1 << 18

_HEADS = {pattern.head: pattern for pattern in PATTERNS if pattern.head}
TABLE = next(pattern.head for pattern in PATTERNS if pattern.meaning is LineMeaning.TABLE)
_ALTERNATIVES = b"|".join(
    re.escape(head.encode()) for head in sorted(_HEADS, key=len, reverse=True)
)
# The pattern begins with rare letters, which makes it fast; the rest of the header precedes them.
_TORCH_LINE = re.compile(
    rb"\.py:\d+\]" + MARKS + rb"(?:(?:Step \d+: )?(" + _ALTERNATIVES + rb")"
    rb"|" + KEY + rb"|\[\w+\] inductor_config\[(max_autotune\w*)\]: ([TF])"
    rb"|)"
)
# Every line has the groups up to this one.
_UNMARKED = 2
_TEXT = re.compile(rb"(?:Step \d+: )?(" + _ALTERNATIVES + rb")")
_LONGEST_LABEL = 300
_TAB = 9

# Two kinds of line that follow from a pattern: a value in the list of settings, and the end of
# a message of several lines.
SETTING = "inductor_config"
FAILED_CHOICE = " for benchmark choice "
# Phases in which no compile is cut short.
AFTERWARDS = ("gc",)


class Line(NamedTuple):
    """A line of torch's. `pattern` is the head of the matching pattern, or empty."""

    label: str
    process: int
    level: str
    time: str
    module: str
    compile_id: str
    pattern: str
    text: str
    # Whether it is an artifact logged by name, like [__output_code]: other lines may be disabled.
    artifact: bool = False


@dataclass(frozen=True)
class Program:
    """A process that wrote into a log; `run` counts programs with the same pid in one log."""

    log: str
    label: str = ""
    process: int = 0
    run: int = 1

    @property
    def text(self) -> str:
        name = f"process {self.process}" if self.process else "a process"
        if self.label:
            name = f"{self.label.strip(' :|')} ({name})"
        return f"{name}, run {self.run}" if self.run > 1 else name


class Origin(NamedTuple):
    """The origin of a line: its place, who wrote it, when, and for which compile."""

    program: Program
    file: str = ""
    line: int = 0
    time: str = ""
    compile_id: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


Event = Line | Record | LoggedStack


@dataclass(frozen=True)
class FoundEvents:
    """The events in a block of a log, with line numbers, and the block's number of lines."""

    events: list[tuple[int, Event]]
    lines: int
    torch_lines: int


def pattern_of(head: str) -> LogPattern | None:
    return _HEADS.get(head)


def recognise(text: str) -> LogPattern | None:
    match = _TEXT.match(text.encode("utf-8", "replace"))
    return _HEADS.get(match[1].decode()) if match else None


# --- blocks ---------------------------------------------------------------------------------------


def read_events(
    read: Callable[[int], bytes], damage: list[str], following: bytes = b""
) -> Iterator[FoundEvents]:
    """Yield the events of the data from `read`, block by block; `following` comes after it all.

    Memory use does not grow with the log.
    """
    data = b""
    for block in _without_long_lines(_blocks(read, damage)):
        data += block
        end = data.rfind(b"\n", 0, max(0, len(data) - AHEAD)) + 1
        if end and len(data) >= BLOCK + AHEAD:
            yield find_events(data, end)
            data = data[end:]
    if data:
        yield find_events(data + following, len(data))


def _blocks(read: Callable[[int], bytes], damage: list[str]) -> Iterator[bytes]:
    try:
        while block := read(BLOCK):
            yield block
    except KeyboardInterrupt:
        damage.append("reading was interrupted")
    except UNREADABLE as error:
        damage.append(f"reading stopped early: {error}")


def _without_long_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Drop the later blocks of a line that exceeds the length limit."""
    length = 0
    for block in blocks:
        start = max(0, block.find(b"\n")) if length > LONGEST else 0
        if length <= LONGEST or block.startswith(b"\n", start):
            yield block[start:]
        last = block.rfind(b"\n")
        length = len(block) - last - 1 if last >= 0 else length + len(block)


# --- one block ------------------------------------------------------------------------------------


def find_events(data: bytes, end: int) -> FoundEvents:
    """Find the events on lines that begin before `end`; data after it only completes them."""
    if b"\x1b" in data or b"\0" in data:
        head = clean(data[:end])
        data, end = head + clean(data[end:]), len(head)
    block = _Block(data, end)
    found = [*block.torch_lines(), *block.last_lines(), *block.other_lines()]
    found.sort(key=itemgetter(0))
    events, line, place = list[tuple[int, Event]](), 1, 0
    for position, event in without_passed_phases(found):
        line += data.count(b"\n", place, position)
        place = position
        events.append((line, event))
    return FoundEvents(events, line - 1 + data.count(b"\n", place, end), block.number)


def without_passed_phases(found: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
    """Drop records that add no information, so that few are sent and folded.

    For consecutive records of one compile, the fold only keeps open phases, the last phase without
    a nested one, and the last record. So a phase is dropped once a later phase without a nested one
    has ended. The first record stays, since it determines the order of compiles.
    """
    key, opened, passed, dropped = None, list[tuple[int, str]](), list[int](), set[int]()
    is_leaf = False
    for number, (_, event) in enumerate(found):
        if not isinstance(event, Record):
            key = None
        elif key != (event.label, event.process, event.compile_id):
            key, opened, passed = (event.label, event.process, event.compile_id), [], []
            is_leaf = False
        elif event.kind == "begin":
            opened.append((number, event.name))
            is_leaf = True
        elif event.kind == "end":
            if not opened or opened[-1][1] != event.name:
                opened, passed = [], []  # It ends what began before, or several at once.
            else:
                if is_leaf and event.name not in AFTERWARDS:
                    dropped.update(passed)
                    passed = []
                passed += (opened.pop()[0], number)
            is_leaf = False
        elif event.kind in ("artifact", "dynamo_start") and not event.name:
            passed.append(number)
    return [each for number, each in enumerate(found) if number not in dropped]


def _names_choice(data: bytes, place: int) -> bool:
    """Check whether the line names a failed choice, as the last line of such a message does."""
    return data.find(FAILED_CHOICE.encode(), place, data.find(b"\n", place)) >= 0


# Label, process, compile id, and the artifact's name.
_Key = tuple[str, bytes, bytes | None, bytes | None]


class _Block:
    """The lines of a block; every event is yielded with its position."""

    def __init__(self, data: bytes, end: int) -> None:
        self._data = data
        self._end = end
        self.number = 0  # Of torch's lines.
        # The last messages without a pattern: their positions and matches.
        self._last: dict[_Key, tuple[int, re.Match[bytes], re.Match[bytes]]] = {}
        # The spans outside records and their payloads.
        self._outside: list[tuple[int, int]] = []

    def torch_lines(self) -> Iterator[tuple[int, Event]]:
        """Yield lines that match a pattern, records, and errors.

        Of all other lines, the last message of every process and compile id is kept: it says how
        far a stage got.
        """
        data, place, outside, start, message = self._data, 0, 0, 0, b""
        limit = min(len(data), self._end + LONGEST)
        while match := _TORCH_LINE.search(data, place, limit):
            start = data.rfind(b"\n", start, match.start()) + 1 or start
            if start >= self._end:
                break
            place = match.end()
            head, is_marked = data[start : match.start()], (match.lastindex or 0) > _UNMARKED
            if head == message and not is_marked and not _names_choice(data, place):
                self.number += 1  # A further line of the same message.
                continue
            header = HEADER.search(data, start, place) if data[start] != _TAB else None
            if header is None:
                continue
            message = b"" if is_marked else head
            self.number += 1
            label = self._label(start, header)
            if match[4] is not None:
                if start > outside + 1:
                    self._outside.append((outside, start))
                outside = end_of_payload(data, place)
                record = read_record(data, header, match[4], (place, outside), label)
                if record is not None:
                    yield start, record
                place = outside
            elif is_marked or header[1] in b"EC":
                yield start, self._line(match, header, label)
            else:
                # A message is represented by its first line, which is the most telling.
                self._last[label, header[3], match[1], match[2]] = start, match, header
        self._outside.append((outside, self._end))

    def last_lines(self) -> Iterator[tuple[int, Event]]:
        """Yield the last messages that `torch_lines` kept."""
        for start, match, header in self._last.values():
            yield start, self._line(match, header, self._label(start, header))

    def _label(self, start: int, header: re.Match[bytes]) -> str:
        if header.start() == start:
            return ""
        return label_of(self._data[start : min(header.start(), start + _LONGEST_LABEL)])

    def _line(self, match: re.Match[bytes], header: re.Match[bytes], label: str) -> Line:
        pattern, text = self._pattern_and_text(match)
        return Line(
            label,
            int(header[3][:18]),
            decode(header[1]),
            decode(header[2]),
            decode(header[4]),
            decode(match[1] or b""),
            pattern,
            text,
            match[2] is not None,
        )

    def _pattern_and_text(self, match: re.Match[bytes]) -> tuple[str, str]:
        if match[3] is not None:
            return match[3].decode(), text_of_line(self._data, match.start(3))
        if match[5] is not None:
            return SETTING, f"{decode(match[5])}={match[6] == b'T'}"
        text = text_of_line(self._data, match.end())
        return (FAILED_CHOICE if FAILED_CHOICE in text else ""), text

    def other_lines(self) -> Iterator[tuple[int, Event]]:
        """Yield stacks and telling lines without a header; call `torch_lines` first."""
        for start, stop in self._outside:
            yield from find_stacks(self._data, start, stop)
            for head in (TABLE, *PRINTED):
                yield from self._printed(head, start, stop)

    def _printed(self, head: str, start: int, stop: int) -> Iterator[tuple[int, Event]]:
        data, place = self._data, self._data.find(head.encode(), start, stop)
        while place >= 0:
            begin = data.rfind(b"\n", max(0, place - LONGEST), place) + 1
            prefix = prefix_of(data, begin, place)
            if prefix is not None and may_stand_before(head, prefix):
                label = label_of(prefix) if is_prefix(prefix) or head == COLLECTIVE else ""
                text = text_of_line(data, place)
                yield begin, Line(label, 0, "", "", "", "", head, text)
            place = data.find(head.encode(), place + 1, stop)
