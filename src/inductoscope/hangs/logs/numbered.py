"""Distinguishes line numbers, as `grep -n` adds them, from the ranks of a job system.

Both look like `17: `. But ranks repeat, and line numbers only grow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from inductoscope.hangs.logs.lines import Event

_NUMBER = re.compile(r"(\d{1,6}):\s*")
# If this many only grew, they are line numbers; a short log needs fewer.
_ENOUGH, _FEW = 40, 4


# An event, its file, and its line there.
_Placed = tuple[Event, str, int]


class LineNumbers:
    """Passes events on, without the numbers of lines; at first it holds them back to see."""

    def __init__(self) -> None:
        self._held: list[_Placed] = []
        self._grown = 0
        self._last = -1
        self._found: bool | None = None

    def has_none(self, event: Event) -> bool:
        """Whether an event without a number can be taken at once."""
        return not event.label and not self._held

    def pass_on(self, event: Event, file: str, line: int) -> Iterator[_Placed]:
        """The events that can be judged now, in order."""
        if self._found is None:
            self._look_at(event)
            self._held.append((event, file, line))
            if self._found is None and self._grown:
                return
            yield from self._release()
        else:
            yield self._without_number(event), file, line

    def rest(self) -> Iterator[_Placed]:
        """What is still held back when the log ends."""
        if self._held:
            processes = {getattr(event, "process", 0) for event, _, _ in self._held} - {0}
            self._found = self._grown >= _FEW and len(processes) == 1
        yield from self._release()

    def _look_at(self, event: Event) -> None:
        number = _NUMBER.match(event.label)
        if number is None:
            return
        if int(number[1]) <= self._last:
            self._found = False
            return
        self._last = int(number[1])
        self._grown += 1
        if self._grown >= _ENOUGH:
            self._found = True

    def _release(self) -> Iterator[_Placed]:
        held, self._held = self._held, []
        yield from ((self._without_number(event), file, line) for event, file, line in held)

    def _without_number(self, event: Event) -> Event:
        number = _NUMBER.match(event.label) if self._found else None
        return event._replace(label=event.label[number.end() :]) if number else event
