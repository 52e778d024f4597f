"""Drops the phases of a trace that are over and tell nothing more, so that few records are folded.

Of records that follow each other and belong to one compile, `PhaseFold` remembers what is still
open, the last phase that held no other, and the last record. So a phase that began and ended among
them may go as soon as another one, which holds none, has ended after it. The first of them stays:
it makes the compile known in its turn.
"""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, TypeVar

from inductoscope.torch_facts.log_lines import PATTERNS, LineMeaning, LogPattern
from inductoscope.torch_facts.log_text import (
    COLLECTIVE,
    HEADER,
    LONGEST,
    PRINTED,
    clean,
    decode,
    is_clean,
    is_prefix,
    label_of,
    may_stand_before,
    text_of_line,
)
from inductoscope.torch_facts.printed_stacks import LoggedStack, find_failures, prefix_of
from inductoscope.torch_facts.torch_trace import (
    AFTERWARDS,
    RECORD,
    Record,
    end_of_payload,
    outside_payloads,
    read_record,
)

_UNNAMED = ("artifact", "dynamo_start")

_Event = TypeVar("_Event")


def without_passed_phases(found: list[tuple[int, _Event]]) -> list[tuple[int, _Event]]:
    """The same without records that would change nothing."""
    run = _Run()
    for number, (_, event) in enumerate(found):
        if not isinstance(event, Record):
            run = _Run(run.dropped)
        elif (event.label, event.process, event.compile_id) != run.key:
            run = _Run(run.dropped, (event.label, event.process, event.compile_id))
        else:
            run.take(number, event)
    if not run.dropped:
        return found
    return [each for number, each in enumerate(found) if number not in run.dropped]


class _Run:
    """Records of one compile that follow each other."""

    def __init__(
        self, dropped: set[int] | None = None, key: tuple[str, int, str] | None = None
    ) -> None:
        self.key = key
        self.dropped = set[int]() if dropped is None else dropped
        self._open: list[tuple[int, str]] = []
        self._is_leaf = False
        # What goes with the end of the next phase that holds no other.
        self._passed: list[int] = []

    def take(self, number: int, record: Record) -> None:
        """Take a record that is not the first one."""
        if record.kind == "begin":
            self._open.append((number, record.name))
            self._is_leaf = True
        elif record.kind == "end":
            self._end(number, record)
        elif record.kind in _UNNAMED:
            self._passed.append(number)

    def _end(self, number: int, record: Record) -> None:
        if not self._open or self._open[-1][1] != record.name:
            # It ends what began before, or several at once.
            self._open, self._passed = [], []
        else:
            begin, _ = self._open.pop()
            if self._is_leaf and record.name not in AFTERWARDS:
                self.dropped.update(self._passed)
                self._passed = []
            self._passed += (begin, number)
        self._is_leaf = False


# --- Finds torch's lines in the bytes of a log ----------------------------------------------------
#
# A log may have many gigabytes and any origin, so its bytes are searched with one expression
# for the header that torch gives each line:
#
#     V1115 00:25:34.924000 1578 torch/_inductor/select_algorithm.py:3515] [0/0] Submitted ...
#
# A launcher or job system may put text before it on the line. Each line is
# found independently of the lines before, so a file can be read in pieces.

_HEADS = {pattern.head: pattern for pattern in PATTERNS if pattern.head}
TABLE = next(pattern.head for pattern in PATTERNS if pattern.meaning is LineMeaning.TABLE)
_PRINTED = (TABLE, *PRINTED)
_ALTERNATIVES = b"|".join(
    re.escape(head.encode()) for head in sorted(_HEADS, key=len, reverse=True)
)
# Begins with rare letters, which makes it fast; the text before is checked afterwards.
_MODULE_AND_TEXT = re.compile(
    rb"\.py:(\d+)\]"
    rb"(?: \[([^\]\s]*\d/\d[^\]\s]*)\])?(?: \[__(\w+)\])? ?"
    rb"(?:(?:Step \d+: )?(" + _ALTERNATIVES + rb")"
    rb'|(\{")'
    rb"|\[\w+\] inductor_config\[(max_autotune\w*)\]: ([TF])"
    rb"|)"
)
# Groups up to this one are on every line.
_PLAIN = 3
# From the level up to the process.
_TIME_LENGTH = len("V1115 00:25:34.924000")
_FAILED_CHOICE = b" for benchmark choice "


class Line(NamedTuple):
    """One line of torch's. `pattern` is the head of the pattern that it fits, or empty."""

    label: str
    process: int
    level: str
    time: str
    module: str
    compile_id: str
    pattern: str
    text: str
    # Whether it was asked for by name, like [__output_code]: then others may have been left out.
    artifact: bool = False


Event = Line | Record | LoggedStack


@dataclass(frozen=True)
class FoundEvents:
    """What a piece of a log holds, each with its line, and how many lines it has."""

    events: list[tuple[int, Event]]
    lines: int
    torch_lines: int


def find_events(data: bytes, end: int) -> FoundEvents:
    """What is on the lines that begin before `end`; what follows only completes the last ones.

    Of lines with no pattern, the last one of every process and compile id is kept: it says how
    far a stage got.
    """
    finder = _Finder(data, end)
    found = [*finder.records(), *finder.torch_lines()]
    found += [*finder.last_lines(), *finder.other_lines()]
    found.sort(key=itemgetter(0))
    events, line, place = list[tuple[int, Event]](), 1, 0
    for position, event in without_passed_phases(found):
        line += data.count(b"\n", place, position)
        place = position
        events.append((line, event))
    lines = line - 1 + data.count(b"\n", place, end)
    return FoundEvents(events, lines, finder.number_of_torch_lines)


class _Header(NamedTuple):
    """Where the parts of a header are."""

    level: int
    process: int
    module: int
    place: int
    label: str


# Label, process, compile id, and whether it is not an artifact.
_Key = tuple[str, bytes, bytes | None, bool]


class _Finder:
    """Searches the text outside payloads; the places that it gives are those in the log."""

    def __init__(self, data: bytes, end: int) -> None:
        self._outside = outside_payloads(data, end)
        self._log, self._data, self._end, self._place, self._records = self._outside
        self._last: dict[_Key, tuple[re.Match[bytes], int, bytes]] = {}
        self._error: tuple[str, bytes, bytes] | None = None
        self.number_of_torch_lines = len(self._records)

    def records(self) -> Iterator[tuple[int, Event]]:
        """Records with nothing before them on their lines; others are among torch's lines."""
        for head, end in self._records:
            record = read_record(self._log, head, end, "")
            if record is not None:
                yield head.start(1), record

    def torch_lines(self) -> Iterator[tuple[int, Event]]:
        """Lines with a pattern, records, and errors; the others are counted, the last ones kept."""
        data, end = self._data, self._end
        start, same, length, count = 0, b"", 0, 0
        for match in _MODULE_AND_TEXT.finditer(data, 0, min(len(data), end + LONGEST)):
            place, kind = match.start(), match.lastindex or 0
            if kind <= _PLAIN and length and data.startswith(same, place - length):
                count += place - length + 1 < end  # A further line of the same message.
                continue
            start = data.rfind(b"\n", start, place) + 1 or start
            if start >= end:
                break
            header = self._header(start, place)
            if header is None:
                continue
            count += 1
            if kind > _PLAIN:
                event = self._marked(match, header)
                if event is not None:
                    yield self._place(start), event
                continue
            if data[header.level] in b"EC":
                line = self._error_line(match, header)
                if line is not None:
                    yield self._place(start), line
            else:
                self._keep(match, header)
            length = place - start + 1 if start else 0
            same = data[start - 1 : place] if start else b""
        self.number_of_torch_lines += count

    def _header(self, start: int, place: int) -> _Header | None:
        """Where the parts of the header before `place` are; None if it is not torch's."""
        module = self._data.rfind(b" ", start, place)
        process = self._data.rfind(b" ", start, module) if module > 0 else -1
        level = process - _TIME_LENGTH
        if level < start:
            return None
        label = "" if level == start else self._label(start, level)
        return None if label is None else _Header(level, process, module, place, label)

    def _marked(self, match: re.Match[bytes], header: _Header) -> Event | None:
        self._error = (header.label, self._data[header.level : header.process], match[1])
        if match[5] is None:
            return self._line(match, header.level, header.label)
        head = RECORD.match(self._log, self._place(header.level))
        if head is None:
            return None
        end = end_of_payload(self._log, head.end())
        return read_record(self._log, head, end, header.label)

    def _keep(self, match: re.Match[bytes], header: _Header) -> None:
        """Keep the last message of each compile, by its first line, which says most."""
        data = self._data
        key = (header.label, data[header.process : header.module], match[2], match[3] is None)
        text = data[header.level : header.place]
        before = self._last.get(key)
        if before is None or before[2] != text:
            self._last[key] = match, header.level, text

    def last_lines(self) -> Iterator[tuple[int, Event]]:
        for (label, *_), (match, level, _) in self._last.items():
            line = self._line(match, level, label)
            if line is not None:
                yield self._place(match.start()), line

    def _error_line(self, match: re.Match[bytes], header: _Header) -> Line | None:
        """The first line of an error."""
        error = (header.label, self._data[header.level : header.process], match[1])
        if error == self._error:
            return None
        self._error = error
        line = self._line(match, header.level, header.label)
        return line if line is not None and line.pattern != FAILED_CHOICE else None

    def _failed_choices(self) -> Iterator[tuple[int, Event]]:
        """The last lines of messages of several lines, which name the choice that failed."""
        data, place = self._data, self._data.find(_FAILED_CHOICE, 0, self._end)
        while place >= 0:
            start = data.rfind(b"\n", max(0, place - LONGEST), place) + 1
            match = _MODULE_AND_TEXT.search(data, start, place)
            header = self._header(start, match.start()) if match else None
            if match and header and match[4] is None and data[header.level] == 69:
                line = self._line(match, header.level, header.label)
                if line is not None:
                    yield self._place(start), line
            place = data.find(_FAILED_CHOICE, place + 1, self._end)

    def other_lines(self) -> Iterator[tuple[int, Event]]:
        """Tracebacks, and lines without a header."""
        yield from find_failures(self._outside)
        yield from self._failed_choices()
        for head in _PRINTED:
            yield from self._printed(head)

    def _printed(self, head: str) -> Iterator[tuple[int, Event]]:
        place = self._data.find(head.encode(), 0, self._end)
        while place >= 0:
            start = self._data.rfind(b"\n", max(0, place - LONGEST), place) + 1
            prefix = prefix_of(self._data, start, place)
            if prefix is not None and may_stand_before(head, prefix):
                text = text_of_line(self._data, place)
                label = label_of(prefix) if is_prefix(prefix) or head == COLLECTIVE else ""
                yield self._place(start), Line(label, 0, "", "", "", "", head, text)
            place = self._data.find(head.encode(), place + 1, self._end)

    def _label(self, start: int, level: int) -> str | None:
        """The name before a header; None if the line is the payload of a record."""
        if self._data[start] == 9:
            return None
        return label_of(self._data[start : min(level, start + 300)])

    def _line(self, match: re.Match[bytes], level: int, label: str) -> Line | None:
        header = HEADER.match(self._data, level)
        if header is None:
            return None
        pattern, text = self._pattern_and_text(match)
        return Line(
            label,
            int(header[3][:18]),
            decode(header[1]),
            decode(header[2]),
            decode(header[4]),
            decode(match[2] or b""),
            pattern,
            text,
            match[3] is not None,
        )

    def _pattern_and_text(self, match: re.Match[bytes]) -> tuple[str, str]:
        if match[4] is not None:
            return match[4].decode(), text_of_line(self._data, match.start(4))
        if match[6] is not None:
            return SETTING, f"{decode(match[6])}={match[7] == b'T'}"
        text = text_of_line(self._data, match.end())
        return (FAILED_CHOICE if FAILED_CHOICE in text else ""), text


# Two kinds of line that follow from a pattern: a value in the list of settings, and the end of
# a message of several lines.
SETTING = "inductor_config"
FAILED_CHOICE = _FAILED_CHOICE.decode()


def pattern_of(head: str) -> LogPattern | None:
    """The pattern with this head."""
    return _HEADS.get(head)


def recognise(text: str) -> LogPattern | None:
    """The pattern that a message fits, if any."""
    match = _TEXT.match(text.encode("utf-8", "replace"))
    return _HEADS.get(match[1].decode()) if match else None


_TEXT = re.compile(rb"(?:Step \d+: )?(" + _ALTERNATIVES + rb")")


# --- Reads a log in blocks, so that memory does not grow with its size ----------------------------
#
# Every block ends at the end of a line, and is given together with some of what follows: a record
# or traceback that begins on its last line can be read to its end. So it does not matter where a
# block ends, and a large file can be divided among processes.

BLOCK = 1 << 20
# How far ahead a record or a traceback may reach.
AHEAD = 1 << 18

Read = Callable[[int], bytes]


def read_events(read: Read, *, stop: int | None = None, damage: list[str]) -> Iterator[FoundEvents]:
    """The events of what `read` gives, block by block; of lines that begin before `stop` only."""
    buffer = _Buffer(read, damage)
    while True:
        ended = buffer.fill()
        end = len(buffer.data) if ended else buffer.whole_lines()
        if stop is not None:
            end = min(end, buffer.place_of(stop))
        if end:
            yield _find(buffer.data, end)
        if ended:
            return
        buffer.drop(end)


def _find(data: bytes, end: int) -> FoundEvents:
    if is_clean(data):
        return find_events(data, end)  # A copy would cost as much as the search.
    head = clean(data[:end])
    return find_events(head + clean(data[end : end + AHEAD]), len(head))


class _Buffer:
    """Bytes that were read but not searched yet, without the rest of over-long lines."""

    def __init__(self, read: Read, damage: list[str]) -> None:
        self._read = read
        self._damage = damage
        self._in_long_line = False
        self._before = 0  # Bytes of the log before the buffer.
        self._gaps: list[tuple[int, int]] = []  # Where in the buffer how many are left out.
        self.data = b""

    def fill(self) -> bool:
        """Read a block and what it needs ahead; True at the end of the log."""
        pieces: list[bytes] = []
        # One line may fill the buffer and end in what is ahead: then more is read all the same.
        missing = max(1, BLOCK + AHEAD - len(self.data))
        while missing > 0:
            piece = self._next()
            if not piece:
                self._append(b"".join(pieces))
                return True
            pieces.append(piece)
            missing -= len(piece)
        self._append(b"".join(pieces))
        return False

    def whole_lines(self) -> int:
        """How many bytes are whole lines with enough read ahead of them."""
        return self.data.rfind(b"\n", 0, max(0, len(self.data) - AHEAD)) + 1

    def place_of(self, offset: int) -> int:
        """Where in the buffer the byte at `offset` of the log is."""
        place = offset - self._before
        for gap, size in self._gaps:
            if gap < place:
                place = max(gap, place - size)
        return max(0, place)

    def drop(self, end: int) -> None:
        """Drop what was searched."""
        self._before += end + sum(size for gap, size in self._gaps if gap <= end)
        self._gaps = [(gap - end, size) for gap, size in self._gaps if gap > end]
        self.data = self.data[end:]

    def _next(self) -> bytes:
        try:
            return self._read(BLOCK)
        except KeyboardInterrupt:
            self._damage.append("reading was interrupted")
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            self._damage.append(f"reading stopped early: {error}")
        return b""

    def _append(self, block: bytes) -> None:
        if self._in_long_line:
            rest = block.find(b"\n")
            left_out = len(block) if rest < 0 else rest
            self._leave_out(left_out)
            block = block[left_out:]
            self._in_long_line = rest < 0
        self.data += block
        last = self.data.rfind(b"\n") + 1
        if len(self.data) - last > LONGEST + AHEAD:
            left_out = len(self.data) - last - LONGEST
            self.data = self.data[: last + LONGEST]
            self._leave_out(left_out)
            self._in_long_line = True

    def _leave_out(self, size: int) -> None:
        if self._gaps and self._gaps[-1][0] == len(self.data):
            size += self._gaps.pop()[1]
        self._gaps.append((len(self.data), size))
