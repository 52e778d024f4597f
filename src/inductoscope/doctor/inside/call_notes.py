"""What is written down about the calls of one compiled graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.compare.bug_or_rounding import EagerComparison
from inductoscope.recording.events.checking import (
    OUTSIDE,
    CallChecked,
    CallsUnchecked,
    DifferenceNoted,
    GraphCall,
    GraphReturned,
)


class CallNotes:
    """Writes events about calls, each difference in memory once."""

    def __init__(self, compile_id: str) -> None:
        self._compile = compile_id
        self._noted: set[tuple[str, str]] = set()
        # Seconds in eager and compiled of the call that is being checked.
        self._took = (0.0, 0.0)

    def took(self, eager: float, compiled: float) -> None:
        """How long the call took that is being checked."""
        self._took = (round(eager, 7), round(compiled, 7))

    def checked(self, call: int, verdict: str, text: str, *, is_exact: bool | None = None) -> None:
        """What came of comparing a call with eager."""
        eager, compiled = self._took
        self._took = (0.0, 0.0)
        event = CallChecked(
            compile=self._compile,
            call=call,
            verdict=verdict,
            text=text,
            is_exact=is_exact,
            eager=eager,
            compiled=compiled,
        )
        SCOPE.emit(event)

    def unchecked(self, *, is_first: bool) -> None:
        """A call is not compared any more; that is said once."""
        if is_first:
            SCOPE.emit(CallsUnchecked(compile=self._compile))

    @contextlib.contextmanager
    def taking_views(self, call: int, text: str) -> Iterator[None]:
        """In the block torch takes constants for this call that it may take wrongly."""
        self.checked(call, OUTSIDE, text)
        SCOPE.emit(GraphCall(compile=self._compile, call=call))
        try:
            yield
        finally:
            SCOPE.emit(GraphReturned(compile=self._compile, call=call))

    def differences(self, call: int, comparison: EagerComparison) -> None:
        """Note what lies otherwise in memory than in eager, once for each result."""
        for item in comparison.noted:
            if (item.kind, item.where) not in self._noted:
                self._noted.add((item.kind, item.where))
                self.difference(call, item.kind, item.where, item.text)

    def difference(self, call: int, aspect: str, where: str, text: str) -> None:
        """Note one of them, or a kernel that differs though the results do not."""
        event = DifferenceNoted(
            compile=self._compile, call=call, aspect=aspect, where=where, text=text
        )
        SCOPE.emit(event)
