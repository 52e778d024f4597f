"""Finds the stacks that Python itself printed into a log: an exception, Ctrl-C, or a dump.

Stacks that torch logs follow torch's header and belong to the lines they explain.
A launcher prefixes every line of a traceback alike, except for numbers such as counters and times.
So the prefix is found without a list of launchers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from inductoscope.processes.stacks import FORMATS, DumpFormat, StackFrame
from inductoscope.torch_facts.log_text import HEADER, decode, has_label, label_of, prefix_of

_BEGIN = b"Traceback (most recent call last):"
_FRAME = re.compile(rb'\s+File "([^"\n]+)", line (\d+), in ([^\r\n]+)')
# The most bytes of a traceback that are read.
_REACH = 1 << 17
_LONGEST_HEAD = 400
_MOST_FRAMES = 60
_TAB = 9

# These functions raise nothing themselves: an exception from one comes from a signal handler.
_BLOCKING = {
    ("threading.py", "wait"),
    ("threading.py", "join"),
    ("threading.py", "_wait_for_tstate_lock"),
    ("selectors.py", "select"),
    ("subprocess.py", "_try_wait"),
}
_THREAD_BEGINS = {("threading.py", "_bootstrap_inner"), ("threading.py", "_bootstrap")}
_LAUNCHERS = re.compile(
    r"torch/distributed/(elastic|launcher|run\.py)|accelerate/commands/|deepspeed/launcher/"
)
DUMP = "a dump of the stack"


class LoggedStack(NamedTuple):
    """A printed stack: the number of log lines it spans, and its last frames, innermost last."""

    label: str
    lines: int
    error: str
    frames: tuple[StackFrame, ...]

    @property
    def is_dump(self) -> bool:
        """Whether the stack is only a dump of where the program was, with nothing raised."""
        return self.error == DUMP

    @property
    def is_interrupt(self) -> bool:
        """Whether a signal from outside caused the stack, so it shows where the program was."""
        by_hand = self.error.startswith("KeyboardInterrupt") or self.is_dump
        return by_hand or any(_place(frame) in _BLOCKING for frame in self.frames[-4:])

    @property
    def is_of_launcher(self) -> bool:
        """Whether a launcher reports that its program ended or had to be ended."""
        innermost = self.frames[-3:]
        return any(_LAUNCHERS.search(frame.file.replace("\\", "/")) for frame in innermost)

    @property
    def is_of_thread(self) -> bool:
        """Whether a thread other than the main one raised it, so the program continued."""
        return bool(self.frames) and _place(self.frames[0]) in _THREAD_BEGINS

    @property
    def is_of_worker(self) -> bool:
        """Whether it comes from a child process other than torch's compile workers."""
        begins = bool(self.frames) and _place(self.frames[0]) == ("process.py", "_bootstrap")
        return begins and not any("torch/_" in frame.file for frame in self.frames)


def _place(frame: StackFrame) -> tuple[str, str]:
    return re.split(r"[/\\]", frame.file)[-1], frame.function


def find_stacks(data: bytes, start: int, stop: int) -> Iterator[tuple[int, LoggedStack]]:
    """Find every stack that starts before `stop`, with its position."""
    for begin, read in _READERS.items():
        place = data.find(begin, start, stop + len(begin))
        while 0 <= place < stop:
            line = data.rfind(b"\n", 0, place) + 1
            found = read(data, line, place)
            if found is not None:
                yield line, found
            place = data.find(begin, place + 1, stop + len(begin))


# --- tracebacks -----------------------------------------------------------------------------------


def _traceback(data: bytes, start: int, place: int) -> LoggedStack | None:
    prefix, after = prefix_of(data, start, place), place + len(_BEGIN)
    if prefix is None or data[after : after + 1] not in (b"", b"\r", b"\n"):
        return None
    return _read(data[start : start + _REACH], prefix)


def _read(text: bytes, prefix: bytes) -> LoggedStack:
    """Parse the traceback that starts on the first line of `text`."""
    label, frames = label_of(prefix), list[StackFrame]()
    lines = text.split(b"\n")
    if prefix.strip() and _FRAME.match(lines[1] if len(lines) > 1 else b""):
        prefix = b""  # Written by whoever caught it, and before the first line only.
    for number, line in enumerate(lines[1:], start=2):
        content = _content(line, prefix, number - 1)
        if content is None or not content.strip():
            continue  # Of another rank or thread, written in between.
        frame = _FRAME.match(content)
        if frame is not None:
            frames.append(StackFrame(decode(frame[3]), decode(frame[1]), int(frame[2][:9])))
        elif not content[:1].isspace():
            error = decode(content[:2000]).rstrip("\r")
            return LoggedStack(label, number, error, tuple(frames[-_MOST_FRAMES:]))
    return LoggedStack(label, len(lines), "", tuple(frames[-_MOST_FRAMES:]))


def _content(line: bytes, prefix: bytes, further: int) -> bytes | None:
    """Strip the prefix from a line `further` lines on; None if another process wrote the line."""
    if HEADER.search(line[:400]):
        return None
    if not prefix:
        return None if has_label(line) else line
    same = _alike(prefix).match(line)
    if same is None:
        return None
    mine = label_of(same[0]) in (label_of(prefix), _counted_on(label_of(prefix), further))
    return line[same.end() :] if mine else None


def _counted_on(label: str, lines: int) -> str:
    """Advance the label by `lines` if it begins with a line number."""
    number, colon, rest = label.partition(":")
    return f"{int(number) + lines}:{rest}" if colon and number.isdecimal() else label


@lru_cache(maxsize=1024)
def _alike(prefix: bytes) -> re.Pattern[bytes]:
    """Make a pattern for the same prefix with any other numbers."""
    parts = re.split(rb"\d+", prefix)
    return re.compile(rb"\d+".join(re.escape(part) for part in parts))


# --- dumps ----------------------------------------------------------------------------------------

# Where the main thread begins; the other threads do not say what the program waits for.
_OUTERMOST = ("<module>", "_run_module_as_main", "_run_code", "_start")


def _dump_in(format_: DumpFormat, data: bytes, start: int, place: int) -> LoggedStack | None:
    # Latin-1 has one character per byte, so lengths agree for any bytes.
    before = data[max(start, place - _LONGEST_HEAD) : place].decode("latin-1")
    head = format_.thread.search(before)
    if head is None or data[start] == _TAB:
        return None
    return _read_dump(data[start : start + _REACH], data[start : place - len(head[0])], format_)


def _read_dump(text: bytes, prefix: bytes, format_: DumpFormat) -> LoggedStack | None:
    """Parse the stack of a thread from a dump, if it is the main thread."""
    frames: list[StackFrame] = []
    last = 1
    for number, line in enumerate(text.split(b"\n")[1:], start=2):
        content = _content(line, prefix, number - 1)
        if content is None:
            continue
        frame = format_.frame(decode(content))
        if frame is None:
            break
        frames.append(frame)
        last = number
    if not frames or frames[-1].function not in _OUTERMOST:
        return None
    return LoggedStack(label_of(prefix), last, DUMP, tuple(reversed(frames[:_MOST_FRAMES])))


# The first words of each kind of stack, and its parser.
_READERS: dict[bytes, Callable[[bytes, int, int], LoggedStack | None]] = {
    _BEGIN: _traceback,
    **{format_.begin.encode(): partial(_dump_in, format_) for format_ in FORMATS},
}
