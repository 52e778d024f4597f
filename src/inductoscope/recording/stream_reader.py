"""Reads one stream, intact or damaged, even while a process is still writing it.

The stream is untrusted: a link is not followed, a pipe is not waited for, and no more of it is held
in memory than the longest line that a run writes.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from inductoscope.recording.events.base import Event
from inductoscope.recording.events.reading import (
    Entry,
    UnreadEvent,
    parse_block,
    parse_line,
    time_unless_of,
    undecoded_of,
)
from inductoscope.recording.layout import STOPPED_SUFFIX, STREAM_SUFFIX, STREAMS

_LONGEST_LINE = 64 << 20
_BLOCK = 1 << 20
LINK = "a link, which is not followed"


@dataclass(frozen=True)
class Damage:
    """Something in a recording that could not be read."""

    where: str
    what: str


class StreamReader:
    """One stream. It remembers how far it has read, and what could not be understood."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A process that has to stop recording says so in a separate file.
        self.name = path.name.removesuffix(STOPPED_SUFFIX).removesuffix(STREAM_SUFFIX)
        self.damage: list[Damage] = []
        self._position = 0
        self._line = 0
        self._in_long_line = False
        self._kinds: frozenset[bytes] | None = None
        self._undecoded: re.Pattern[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process that writes the stream; 0 if the file's name does not say."""
        text = self.name.partition("-")[0]
        return int(text) if text.isdecimal() and text.isascii() else 0

    def read(
        self, kinds: Iterable[str] | None = None, undecoded: Collection[str] = ()
    ) -> Iterator[Entry[Event]]:
        """All entries up to the end of the file, where the last line may lack its line break.

        Of these `kinds`, if given; the others are passed over, and the last of them is an
        `UnreadEvent`. Those that are to stay `undecoded` may be decoded nevertheless.
        """
        self._undecoded = undecoded_of(undecoded) if undecoded else None
        self._kinds = None if kinds is None else frozenset(kind.encode() for kind in kinds)
        return self._entries(is_over=True)

    def read_new(self) -> Iterator[Entry[Event]]:
        """Entries written since the last call. A line that is being written waits for the next."""
        return self._entries(is_over=False)

    def _entries(self, *, is_over: bool) -> Iterator[Entry[Event]]:
        try:
            file = open_ordinary(self.path)
        except OSError as error:
            self._report(self.path.name, f"cannot be read: {error.strerror}")
            return
        last = 0.0
        with file:
            file.seek(self._position)
            if is_over and self._kinds is None:
                yield from self._blocks(file)
            while line := file.readline(_LONGEST_LINE + 1):
                is_whole = line.endswith(b"\n")
                if not is_whole and not is_over and len(line) <= _LONGEST_LINE:
                    return
                self._position += len(line)
                if self._kinds is not None and is_whole and not self._in_long_line:
                    time = time_unless_of(self._kinds, line)
                    if time is not None:
                        self._line += 1
                        last = max(last, time)
                        continue
                entry = self._take(line, is_whole=is_whole)
                if entry is not None:
                    yield entry
        if last:
            yield Entry(self.name, -1, last, UnreadEvent())

    def _blocks(self, file: IO[bytes]) -> Iterator[Entry[Event]]:
        """Many lines at a time, as long as blocks hold whole lines."""
        while (end := (block := file.read(_BLOCK)).rfind(b"\n") + 1) and not self._in_long_line:
            self._position += end
            file.seek(self._position)
            lines = block[: end - 1].split(b"\n")
            is_short = max(map(len, lines)) < _LONGEST_LINE
            entries = parse_block(self.name, lines, self._undecoded) if is_short else None
            if entries is None:
                found = (self._take(line + b"\n", is_whole=True) for line in lines)
                yield from (entry for entry in found if entry is not None)
            else:
                self._line += len(lines)
                yield from entries
        file.seek(self._position)

    def _take(self, line: bytes, *, is_whole: bool) -> Entry[Event] | None:
        if self._in_long_line:
            self._in_long_line = not is_whole
            return None
        self._line += 1
        place = f"{self.path.name}:{self._line}"
        if len(line) > _LONGEST_LINE:
            self._in_long_line = not is_whole
            self._report(place, f"longer than {_LONGEST_LINE >> 20} MiB")
            return None
        if not line.strip():
            return None
        entry = parse_line(self.name, line)
        if entry is None:
            self._report(place, "not a whole event")
        return entry

    def _report(self, where: str, what: str) -> None:
        # A stream that is read repeatedly reports the same damage once.
        if not self.damage or self.damage[-1] != Damage(where, what):
            self.damage.append(Damage(where, what))


def stream_paths(folder: Path) -> list[Path]:
    """The streams of the recording in `folder`, oldest process first."""
    found = (folder / STREAMS).glob("*" + STREAM_SUFFIX)
    return sorted(found, key=lambda path: (path.stem.partition("-")[2].rjust(20), path.stem))


def open_ordinary(path: str | Path) -> IO[bytes]:
    """Open a regular file; OSError if it is a link, or a pipe, which might never end."""
    return os.fdopen(open_descriptor(path)[0], "rb")


def open_descriptor(path: str | Path) -> tuple[int, int]:
    """The same as a descriptor, with the size of the file."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, LINK) from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not an ordinary file")
    return descriptor, found.st_size
