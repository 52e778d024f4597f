"""The finding that a rule reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inductoscope.torch_facts import stages
from inductoscope.verdicts import Confidence


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    `is_problem` decides the exit code of a command; the others are notes. `evidence` says how the
    claim was established.
    """

    rule: str = ""  # The name of the rule's function, filled in by `diagnose`.
    title: str
    is_problem: bool = False
    confidence: Confidence = "proven"
    evidence: tuple[str, ...]
    advice: str
    stage: str = stages.NO_STAGE
    source: str = ""
    compile: str = ""
    # The stack of the line, outermost frame first, and the source text of the line.
    stack: tuple[str, ...] = ()
    code: str = ""

    def at(self, compile_id: str, source: str, code: str = "") -> Finding:
        """Return the same finding with a line of the program."""
        return replace(self, compile=compile_id, source=source, code=code)
