"""What a hypothesis is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.verdict import Verdict


@dataclass(frozen=True)
class Hypothesis:
    """One idea of what is wrong. Its module says when it applies, and how sure it can be."""

    # Whether it is worth examining, from what is already known: runs nothing.
    applies: Callable[[ProgramCase], bool]
    # Runs what it needs. None if this is not the cause: the next hypothesis is tried.
    examine: Callable[[ProgramCase], Verdict | None]

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.examine.__module__.rpartition(".")[2]
