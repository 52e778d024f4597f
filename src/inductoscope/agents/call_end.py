"""How a command ended that an agent called: with an answer, or with a reason why there is none."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from typing import Any

_MOST_LINES = 8
# How the tool and click begin an error.
_BEGINNINGS = ("inductoscope: ", "Error: ")


@dataclass(frozen=True)
class CallEnd:
    """How a command ended, what it wrote, and what it printed last."""

    exit_code: int
    data: dict[str, Any] | None
    said: str
    printed: str

    @property
    def is_result(self) -> bool:
        """Whether the JSON is the answer: not if the command was killed while it was at it."""
        if self.data is None:
            return False
        return self.exit_code >= 0 or not self.data.get("partial")

    @property
    def problem(self) -> str:
        """Why there is no answer, in the command's own words."""
        lines = self.said.strip().splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith(_BEGINNINGS)]
        told = "\n".join(lines[starts[-1] :] if starts else lines[-_MOST_LINES:])
        for beginning in _BEGINNINGS:
            told = told.removeprefix(beginning)
        if self.exit_code >= 0:
            return told or f"The command ended with exit code {self.exit_code} and said nothing."
        with contextlib.suppress(ValueError):
            name = signal.Signals(-self.exit_code).name
            return f"{name} ended the command before it had an answer.\n{told}".strip()
        return told
