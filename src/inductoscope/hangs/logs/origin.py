"""Where a line is, in which log, and which program wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Program:
    """A process that wrote into a log; `run` counts programs of the same number in one log."""

    log: str
    label: str = ""
    process: int = 0
    run: int = 1

    @property
    def text(self) -> str:
        """As people name it."""
        name = f"process {self.process}" if self.process else "a process"
        if self.label:
            name = f"{self.label.strip(' :|')} ({name})"
        return f"{name}, run {self.run}" if self.run > 1 else name


class Origin(NamedTuple):
    """One line: its place, who wrote it, when, and for which compile."""

    program: Program
    file: str = ""
    line: int = 0
    time: str = ""
    compile_id: str = ""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"
