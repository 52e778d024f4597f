"""Reads what a compiler wrote with -S: the functions of a kernel, and the lines they come from.

An instruction's own line is that of the `.loc` before it. Most of a kernel is made of calls of
torch's headers that were inlined, whose line is the header's: the debug information says from which
line of the kernel each was called (`DW_TAG_inlined_subroutine`, readable with GCC's -dA). An
instruction for which neither says a line of the kernel has none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_FILE = re.compile(r'^\s*\.file\s+(\d{1,9})\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOCATION = re.compile(r"^\s*\.loc\s+(\d{1,9})\s+(\d{1,9})\b")
_LABEL = re.compile(r"^([^\s#/\"][^\n]*?):\s*(?:[#/@].*)?$")
_LOCAL = re.compile(r"\.?L[\w.$]+")
_COMMENT = re.compile(r"^\s*(?:#|//|@)")
_TAG = re.compile(r"\(DIE \(0x[0-9a-f]+\) (DW_TAG_\w+)\)")
_VALUE = re.compile(r"^\s*\.\w+\s+(\S+)")
_RANGE = re.compile(r"^\s*\.\w+\s+(\.L\w+)\b.*Range (begin|end) address \(\*(\.L\w+)\)")

# Debug information is made of short lines, of calls that nest a few times: what goes far beyond was
# written by hand, to keep its reader busy.
_LONGEST_LINE = 500
_MOST_STEPS = 5_000_000


@dataclass(frozen=True)
class Listing:
    """Labels and instructions alone; `links` lead from source lines to lines of `text`."""

    text: str
    links: Mapping[int, tuple[int, ...]]
    # Lines of `text` whose own line is a header's, called from the line that links to them.
    inlined: frozenset[int]


@dataclass(frozen=True)
class _Line:
    text: str
    source: int = 0  # line of the kernel's file
    is_inlined: bool = False


def listing(assembly: str, source: str, wanted: range) -> Listing:
    """The functions that lines `wanted` of the file `source` became."""
    code = _read_code(assembly, source)
    callers = _callers(assembly, source, code.labels)
    links: dict[int, list[int]] = defaultdict(list)
    kept: list[_Line] = []
    for function in code.functions(wanted):
        kept += _without_idle_labels([code.line(number, callers) for number in function])
    for number, line in enumerate(kept, start=1):
        if line.source in wanted:
            links[line.source].append(number)
    return Listing(
        text="\n".join(line.text for line in kept) + ("\n" if kept else ""),
        links={line: tuple(numbers) for line, numbers in sorted(links.items())},
        inlined=frozenset(
            n for n, line in enumerate(kept, start=1) if line.is_inlined and line.source in wanted
        ),
    )


# --- code -----------------------------------------------------------------------------------------


@dataclass
class _Code:
    """Labels and instructions in order, and the line of the kernel's file that `.loc` says."""

    texts: list[str] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)

    def add(self, text: str, source: int) -> None:
        self.texts.append(text)
        self.sources.append(source)

    def functions(self, wanted: range) -> Iterator[range]:
        """Those that hold at least one instruction of the wanted lines."""
        for start, end in zip(self.starts, [*self.starts[1:], len(self.texts)], strict=True):
            if any(source in wanted for source in self.sources[start:end]):
                yield range(start, end)

    def line(self, number: int, callers: Mapping[int, int]) -> _Line:
        own, text = self.sources[number], self.texts[number]
        if own or _LABEL.match(text):
            return _Line(text, own)
        return _Line(text, callers.get(number, 0), is_inlined=True)


def _read_code(assembly: str, source: str) -> _Code:
    """Functions begin with a label that is not local."""
    code = _Code()
    own: set[int] = set()
    line = 0
    for text in assembly.splitlines():
        if match := _FILE.match(text):
            own.update([int(match[1])] if match[2] == source else [])
        elif match := _LOCATION.match(text):
            line = int(match[2]) if int(match[1]) in own else 0
        elif label := _LABEL.match(text):
            code.labels[label[1]] = len(code.texts)
            if not _LOCAL.fullmatch(label[1]):
                code.starts.append(len(code.texts))
                line = 0
            code.add(text, 0)
        elif _is_instruction(text) and code.starts:
            code.add(text.rstrip(), line)
    return code


def _is_instruction(text: str) -> bool:
    bare = text.strip()
    return bool(bare) and not bare.startswith(".") and not _COMMENT.match(text)


def _without_idle_labels(lines: list[_Line]) -> Iterator[_Line]:
    """Labels that nothing jumps to are for debuggers, not for readers."""
    used = {
        word for line in lines if not _LABEL.match(line.text) for word in _LOCAL.findall(line.text)
    }
    for line in lines:
        label = _LABEL.match(line.text)
        if label is None or not _LOCAL.fullmatch(label[1]) or label[1] in used:
            yield line


# --- debug information ----------------------------------------------------------------------------


@dataclass
class _Inlined:
    """A call that was inlined: where it was called from, and the labels around its code."""

    file: str = ""
    line: int = 0
    low: str = ""
    high: str = ""
    ranges: str = ""


def _callers(assembly: str, source: str, labels: Mapping[str, int]) -> dict[int, int]:
    """Instruction → line of the kernel that it was inlined into; the innermost call wins."""
    lines = [text for text in assembly.splitlines() if len(text) <= _LONGEST_LINE]
    ranges = _range_lists(lines)
    extents: list[tuple[int, int, list[tuple[int, int]]]] = []
    steps = 0
    for call in _inlined_calls(lines):
        if call.file != source or not call.line:
            continue
        pairs = ranges.get(call.ranges, []) if call.ranges else [(call.low, call.high)]
        placed = [(labels[a], labels[b]) for a, b in pairs if a in labels and b in labels]
        width = sum(max(b - a, 0) for a, b in placed)
        steps += len(pairs) + width
        if steps > _MOST_STEPS:
            return {}
        extents.append((width, call.line, placed))
    found: dict[int, int] = {}
    # The widest first, so that narrower ones overwrite it.
    for _, line, placed in sorted(extents, key=lambda extent: -extent[0]):
        for start, end in placed:
            found.update(dict.fromkeys(range(start, end), line))
    return found


def _inlined_calls(lines: list[str]) -> Iterator[_Inlined]:
    call: _Inlined | None = None
    for text in lines:
        tag = _TAG.search(text)
        if tag or "end of children" in text:
            if call is not None:
                yield call
            is_call = tag is not None and tag[1] == "DW_TAG_inlined_subroutine"
            call = _Inlined() if is_call else None
        elif call is not None:
            _take_attribute(call, text)
    if call is not None:
        yield call


def _take_attribute(call: _Inlined, text: str) -> None:
    value = _VALUE.match(text)
    if value is None:
        return
    if "DW_AT_call_file" in text:
        call.file = text.rpartition("(")[2].rstrip(") ")
    elif "DW_AT_call_line" in text:
        call.line = _number(value[1])
    elif "DW_AT_ranges" in text:
        call.ranges = value[1]
    elif "DW_AT_low_pc" in text:
        call.low = value[1]
    elif "DW_AT_high_pc" in text:
        call.high = value[1].partition("-")[0]


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def _range_lists(lines: list[str]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    begin = ""
    for text in lines:
        match = _RANGE.match(text)
        if match is None:
            continue
        if match[2] == "begin":
            begin = match[1]
        else:
            found[match[3]].append((begin, match[1]))
    return found
