"""The doctor's verdicts and confidence levels, with one definition for each.

`explain`, the doctor's summaries and the page all use these definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Confidence = Literal["proven", "likely", "unknown"]

CLEAN = "clean"
NOT_CHECKED = "not-checked"
WRONG_RESULT = "wrong-result"
NOT_A_NUMBER = "nan"
CRASH = "crash"
COMPILE_ERROR = "compile-error"
HANG = "hang"
SLOW = "slow"
NOT_A_BUG = "not-a-bug"
NOT_INDUCTOR = "not-inductor"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class VerdictDefinition:
    """The definition of a verdict or confidence level, and what the user should do about it."""

    name: str
    # A sentence without its full stop, so that a summary can go on with where and why.
    headline: str
    # More sentences, where one is not enough.
    details: str
    what_to_do: str

    @property
    def meaning(self) -> str:
        """The definition in whole sentences."""
        return f"{self.headline}. {self.details}".strip()


VERDICTS: tuple[VerdictDefinition, ...] = (
    VerdictDefinition(CLEAN, "Nothing wrong was found", "", "The evidence lists what was checked."),
    VerdictDefinition(
        NOT_CHECKED,
        "Nothing could be compared with eager",
        "Nothing was compiled, or no call of what was compiled could be checked. Whether it is "
        "right is not known.",
        "The summary says why. Change that, and run the doctor again.",
    ),
    VerdictDefinition(
        WRONG_RESULT,
        "The compiled program gives a wrong result",
        "It differs from eager by far more than rounding, judged against float64. Or eager raises "
        "an error, and compiled code returns or raises another one.",
        "Use the tested workaround, and report the bug with the reproducer.",
    ),
    VerdictDefinition(
        NOT_A_NUMBER,
        "The compiled program gives NaN or Inf where eager is finite",
        "",
        "Look at the named operation; the reproducer contains its inputs.",
    ),
    VerdictDefinition(
        CRASH,
        "The compiler, or a kernel it generated, crashed",
        "It raised an exception, or a signal ended the process.",
        "Use the tested workaround; the reproducer crashes without the rest of the program.",
    ),
    VerdictDefinition(
        COMPILE_ERROR,
        "The C++ or Triton compiler rejected the code that Inductor generated",
        "Or it cannot compile anything on this machine: the summary says which.",
        "Use the tested workaround, or install the missing compiler.",
    ),
    VerdictDefinition(
        HANG,
        "The program hangs",
        "It made no progress for longer than the stage should take.",
        "The kind of stall says who waits for whom: 'inductoscope explain KIND'.",
    ),
    VerdictDefinition(
        SLOW,
        "The compiled program, or compiling it, takes longer than it should",
        "",
        "Check graph breaks and recompiles first, then kernels and fusion.",
    ),
    VerdictDefinition(
        NOT_A_BUG,
        "The compiler did what it was asked to do",
        "The program fails in eager too, is not seeded, reads uninitialized memory, breaks its own "
        "declarations, or differs only by rounding.",
        "Look at the program; the evidence says what is wrong with it.",
    ),
    VerdictDefinition(
        NOT_INDUCTOR,
        "It fails before the graph reaches Inductor",
        "Dynamo, AOTAutograd or another backend caused it.",
        "Report it against the named stage, not against Inductor.",
    ),
    VerdictDefinition(
        UNKNOWN,
        "Something is wrong, but no run proved where",
        "",
        "The evidence says how far the search got. Run again with a longer time limit.",
    ),
)

CONFIDENCES: tuple[VerdictDefinition, ...] = (
    VerdictDefinition("proven", "A run showed it", "", "Rely on it."),
    VerdictDefinition(
        "likely",
        "A rule matched what was recorded; no run showed it",
        "",
        "Check it before you rely on it.",
    ),
    VerdictDefinition("unknown", "Nothing has established it", "", "Take it as a hint."),
)


def headline(verdict: str) -> str:
    """Return the headline of a verdict, without a full stop; summaries begin with it."""
    return next(one.headline for one in VERDICTS if one.name == verdict)
