"""A progress line: the current step on a terminal's last line, or line by line in a file."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.status import Status

from inductoscope.views.plain_text import visible


class ProgressLine:
    """A display of the current step and the elapsed seconds. It can be silenced."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._started = time.monotonic()
        self._console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._status: Status | None = None

    def __enter__(self) -> ProgressLine:
        if not self._quiet and self._console.is_terminal:
            self._status = self._console.status("starting", spinner="dots")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """Show the beginning of a step."""
        if self._quiet:
            return
        seconds = time.monotonic() - self._started
        line = " ".join(visible(text).split())
        self._console.print(f"[{seconds:5.1f} s] {line}"[:2000], soft_wrap=True)
        if self._status is not None:
            self._status.update(line[: max(20, self._console.width - 10)])
