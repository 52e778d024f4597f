"""Reads a log in blocks, so that memory does not grow with its size.

Every block ends at the end of a line, and is given together with some of what follows: a record
or traceback that begins on its last line can be read to its end. So it does not matter where a
block ends, and a large file can be divided among processes.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator

from inductoscope.hangs.logs.lines import FoundEvents, find_events
from inductoscope.hangs.logs.text import LONGEST, clean, is_clean

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
