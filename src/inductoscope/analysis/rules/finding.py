"""What a rule found."""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope.torch_facts import stages
from inductoscope.verdicts import Confidence


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    `rule` is the name of the rule's file. `is_problem` decides the exit code of a command; the
    others are notes. `evidence` says how the claim was established.
    """

    rule: str
    title: str
    is_problem: bool
    confidence: Confidence
    evidence: tuple[str, ...]
    advice: str
    stage: str = stages.NO_STAGE
    source: str = ""
    compile: str = ""
    # How the program got there, outermost first, and the text of the line itself.
    stack: tuple[str, ...] = ()
    code: str = ""
