"""A recording of each test that compiles, in a private folder; it stays if something was found."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from inductoscope.capture.scope import SCOPE
from inductoscope.errors import ToolFailure
from inductoscope.recording.location import create_recording


class SuiteRecordings:
    """The recording that is open now, and the folder that holds all of one process."""

    def __init__(self, root: Path, prefix: str) -> None:
        self._root, self._prefix = root, prefix
        self._count = 0
        self._current: Path | None = None
        self._is_used = False

    def begin(self) -> None:
        """Have a recording open. One that nothing was compiled into goes on."""
        if self._current is not None:
            return
        self._count += 1
        folder = self._root / f"{self._prefix}{self._count}"
        command = [str(word) for word in getattr(sys, "orig_argv", sys.argv)]
        try:
            self._current = create_recording(command, output=folder, inside=True)
        except ToolFailure:
            return  # A full disk: calls are checked all the same.
        SCOPE.open(self._current)

    def note_use(self) -> bool:
        """Something is compiled; returns whether it is the first in a recording but the first."""
        is_first, self._is_used = not self._is_used, True
        return is_first and self._count > 1

    @property
    def path(self) -> str:
        """Where the current recording is; empty if there is none."""
        return str(self._current or "")

    def end(self, *, keep: bool) -> None:
        """The test is over: close its recording, and delete it unless it is to stay."""
        if self._current is None or not (self._is_used or keep):
            return
        SCOPE.close()
        if not keep:
            shutil.rmtree(self._current, ignore_errors=True)
        self._current, self._is_used = None, False

    def finish(self) -> None:
        """The suite is over: close the recording that is open, which holds nothing of interest."""
        self._is_used = True
        self.end(keep=False)
