"""Stacks that Python printed: the only parser of what faulthandler and `py-spy dump` write.

Thread 0x00007f0a (most recent call first):        Thread 4242 (idle): "MainThread"
  File "train.py", line 12 in step                     step (train.py:12)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MOST_FRAMES = 400


@dataclass(frozen=True)
class StackFrame:
    """One call on a stack. Native frames have no line."""

    function: str
    file: str
    line: int = 0

    @property
    def name(self) -> str:
        """The function without the class or function around it, which only some sources give."""
        return self.function.rpartition(".")[2]

    @property
    def text(self) -> str:
        place = f" ({self.file}:{self.line})" if self.line else f" ({self.file})"
        return self.function + (place if self.file else "")


@dataclass(frozen=True)
class ThreadStack:
    """The calls of one thread, innermost first."""

    name: str
    frames: tuple[StackFrame, ...]
    is_active: bool | None = None


@dataclass(frozen=True)
class DumpFormat:
    """How one writer of dumps begins a thread, and how it writes a call."""

    # On the first line of a thread, after `thread`; a quick search finds it.
    begin: str
    thread: re.Pattern[str]
    call: re.Pattern[str]

    def frame(self, line: str) -> StackFrame | None:
        """The call that a line shows; None for any other line."""
        found = self.call.match(line)
        if found is None:
            return None
        number = found["line"][:9]
        line_number = int(number) if number.isdecimal() else 0
        return StackFrame(found["function"].rstrip(), found["file"], line_number)


FAULTHANDLER = DumpFormat(
    " (most recent call first):",
    re.compile(r"(?:Current t|T)hread (?P<id>0x[0-9a-f]+)(?: \[(?P<name>[^\]\n]*)\])?$"),
    re.compile(r'  File "(?P<file>[^\n]*)", line (?P<line>\d+|\?\?\?) in (?P<function>[^\r\n]+)'),
)
PY_SPY = DumpFormat(
    '): "MainThread"',
    re.compile(r"Thread (?P<id>0x[0-9A-Fa-f]+|\d+) \([a-z+]+$"),
    re.compile(r"    (?P<function>[^\n]+) \((?P<file>[^()\n]+):(?P<line>\d+)\)"),
)
FORMATS = (FAULTHANDLER, PY_SPY)


def parse_dump(text: str) -> tuple[ThreadStack, ...]:
    """The threads in what faulthandler wrote for one process; the main thread comes first."""
    found = [thread for _, thread in threads_in(text) if thread.frames]
    return tuple(reversed(found))


def threads_in(text: str) -> Iterator[tuple[str, ThreadStack]]:
    """Every thread in what faulthandler wrote, in the order it was written, with its number."""
    number, name, frames = "", "", list[StackFrame]()
    for line in [*text.splitlines(), ""]:
        head, begin, _ = line.partition(FAULTHANDLER.begin)
        thread = FAULTHANDLER.thread.match(head) if begin else None
        frame = FAULTHANDLER.frame(line)
        if frame is not None and number:
            frames.append(frame)
            continue
        if number:
            yield number, ThreadStack(name, tuple(frames[:_MOST_FRAMES]))
        number, name, frames = "", "", []
        if thread is not None:
            number, name = thread["id"], thread["name"] or thread["id"]
