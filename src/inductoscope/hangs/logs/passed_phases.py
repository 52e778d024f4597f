"""Drops the phases of a trace that are over and tell nothing more, so that few records are folded.

Of records that follow each other and belong to one compile, `PhaseFold` remembers what is still
open, the last phase that held no other, and the last record. So a phase that began and ended among
them may go as soon as another one, which holds none, has ended after it. The first of them stays:
it makes the compile known in its turn.
"""

from __future__ import annotations

from typing import TypeVar

from inductoscope.hangs.logs.phases import AFTERWARDS
from inductoscope.hangs.logs.records import Record

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
