"""Finds torch's lines in the bytes of a log.

A log may have many gigabytes and any origin, so its bytes are searched with one expression
for the header that torch gives each line:

    V1115 00:25:34.924000 1578 torch/_inductor/select_algorithm.py:3515] [0/0] Submitted ...

A launcher or job system may put text before it on the line. Each line is
found independently of the lines before, so a file can be read in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from inductoscope.hangs.logs.headerless_lines import COLLECTIVE, PRINTED, may_stand_before
from inductoscope.hangs.logs.passed_phases import without_passed_phases
from inductoscope.hangs.logs.payloads import outside_payloads
from inductoscope.hangs.logs.records import RECORD, Record, end_of_payload, read_record
from inductoscope.hangs.logs.text import HEADER, LONGEST, decode, is_prefix, label_of, text_of_line
from inductoscope.hangs.logs.tracebacks import LoggedStack, find_failures, prefix_of
from inductoscope.vocabulary.line_meanings import LineMeaning
from inductoscope.vocabulary.log_lines import PATTERNS, LogPattern

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
