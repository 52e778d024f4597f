"""How much of the time the sentinel has seen it may spend."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator


class TimeShare:
    """Keeps what is spent below a share of the time that the program had for itself."""

    def __init__(self, share: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._share, self._clock = share, clock
        self._started: float | None = None
        self.spent = 0.0

    def start(self) -> None:
        """The program's time counts from the first call on; time to compile before it does not."""
        if self._started is None:
            self._started = self._clock()

    @property
    def seen(self) -> float:
        """Seconds that the program had for itself."""
        return 0.0 if self._started is None else self._clock() - self._started - self.spent

    def allows(self, seconds: float) -> bool:
        """Whether so many seconds more stay within the share."""
        return self.spent + seconds <= self._share * self.seen

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """What happens inside is the sentinel's doing."""
        started = self._clock()
        try:
            yield
        finally:
            self.spent += self._clock() - started
