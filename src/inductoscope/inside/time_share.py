"""Limits what the tool adds to a program to a share of the time that the program takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator


class TimeShare:
    """Limits the time spent to a share of the time that the program had for itself."""

    def __init__(self, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._share, self._clock = share, clock
        self._started: float | None = None
        self.spent = self._aside = 0.0

    def start(self) -> None:
        """Start the program's clock, unless it runs already."""
        if self._started is None:
            self._started = self._clock()

    @property
    def seen(self) -> float:
        """The seconds that the program had for itself."""
        passed = 0.0 if self._started is None else self._clock() - self._started
        return passed - self.spent - self._aside

    def allows(self, seconds: float) -> bool:
        """Check whether this many more seconds stay within the share."""
        return self.spent + seconds <= self._share * self.seen

    @contextlib.contextmanager
    def spending(self, *, counts: bool = True) -> Iterator[None]:
        """Count the time of the block as spent; otherwise, only not as the program's."""
        started = self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - started
            self.spent += seconds if counts else 0.0
            self._aside += 0.0 if counts else seconds
