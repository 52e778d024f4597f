"""What the doctor can conclude, and how sure a statement is: each word with its one definition.

`explain`, the doctor's summaries and the page all take their words from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Confidence = Literal["proven", "likely", "unknown"]

CLEAN = "clean"
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
class Definition:
    """A word that a user reads: what it means, and what to do about it."""

    name: str
    meaning: str
    what_to_do: str


VERDICTS: tuple[Definition, ...] = (
    Definition(CLEAN, "Nothing wrong was found.", "The evidence lists what was checked."),
    Definition(
        WRONG_RESULT,
        "The compiled program returns a different result from eager, far beyond rounding error.",
        "Use the tested workaround, and report the bug with the reproducer.",
    ),
    Definition(
        NOT_A_NUMBER,
        "The compiled program returns NaN or infinity where eager does not.",
        "Look at the operation that is named; the reproducer holds the values it was given.",
    ),
    Definition(
        CRASH,
        "The compiler, or a kernel it generated, crashed.",
        "Use the tested workaround; the reproducer crashes without the rest of the program.",
    ),
    Definition(
        COMPILE_ERROR,
        "The compiler raised an exception for a program that runs in eager.",
        "Use the tested workaround, or rewrite the operation that is named.",
    ),
    Definition(
        HANG,
        "The program made no progress for longer than its stage should take.",
        "The kind of stall says who waits for whom: 'inductoscope explain KIND'.",
    ),
    Definition(
        SLOW,
        "The compiled program, or compiling it, takes longer than it should.",
        "Check graph breaks and recompiles first, then kernels and fusion.",
    ),
    Definition(
        NOT_A_BUG,
        "It also fails in eager, is not seeded, reads uninitialized memory, or differs only by "
        "rounding.",
        "Look at the program: the compiler did what it was asked to do.",
    ),
    Definition(
        NOT_INDUCTOR,
        "Dynamo or AOTAutograd caused it, before Inductor received the graph.",
        "Report it against the stage that is named, not against Inductor.",
    ),
    Definition(
        UNKNOWN,
        "Something is wrong, but no run proved where.",
        "The evidence says how far the search came. Run it again with a longer time limit.",
    ),
)

CONFIDENCES: tuple[Definition, ...] = (
    Definition("proven", "A run showed it.", "Rely on it."),
    Definition(
        "likely",
        "A rule matched what was recorded; no run showed it.",
        "Check it before you rely on it.",
    ),
    Definition("unknown", "Nothing has established it.", "Take it as a hint."),
)


def meaning(name: str) -> str:
    """What a verdict means, in one sentence."""
    return next(one.meaning for one in VERDICTS if one.name == name)
