"""Writes a finding into the recording of the process that investigates, claim by claim."""

from __future__ import annotations

from typing import Any

from inductoscope.doctor.finding import FailureFinding
from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import Said


class FindingWriter:
    """A finding that grows; each claim is written to the recording immediately."""

    def __init__(self, finding: FailureFinding) -> None:
        self.finding = finding

    def claim(self, fact: Any, shown_by: str = "", how: str = "") -> None:
        """Add a claim and record it, unless it repeats the last claim of its kind."""
        grown = self.finding.claimed(fact, shown_by, how)
        same = [claim for claim in self.finding.claims if type(claim.fact) is type(fact)]
        if same and same[-1] == grown.claims[-1]:
            return
        self.finding = grown
        SCOPE.emit(grown.claims[-1].as_event())


def record(finding: FailureFinding) -> None:
    """Write all claims of a finding."""
    for claim in finding.claims:
        SCOPE.emit(claim.as_event())


def say(text: str) -> None:
    """Record a progress message for the user."""
    SCOPE.emit(Said(text=text))
