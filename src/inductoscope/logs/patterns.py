"""The lines of torch's logs that we rely on, and whether a given torch still writes them.

torch promises nothing about the text of its logs. So each line is held here once, as its
source spells it, and `check_pattern` looks it up in the source of the torch at hand: a log
that lacks a line means nothing where torch no longer writes that line.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import Enum

# Below this likeness two log texts have no more than words like "for choice" in common.
_LEAST_LIKENESS = 0.5

# `log.exception` is ERROR with a traceback.
_CALLS = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
}

# The first string in a logging call; a comment may stand between the bracket and the text.
_LOG_CALL = re.compile(r"log\.(\w+)\(\s*(?:#[^\n]*\s*)?f?([\"'])(?P<text>.*?)\2")


@dataclass(frozen=True)
class LogPattern:
    """One log line: its text as in torch's source, and where and how it is written."""

    text: str
    level: str
    meaning: str
    module: str = "torch/_inductor/select_algorithm.py"
    first: str = "2.11"  # the oldest torch in which the line was seen
    last: str = "2.15"  # the newest torch in which it was looked for

    def expected_in(self, version: str) -> bool:
        """Whether a torch of this version should write the line; newer ones than `last` too."""
        return release(version) >= release(self.first)


class Presence(str, Enum):
    """What became of a log line in the torch at hand."""

    FOUND = "found"
    LEVEL_CHANGED = "level changed"
    MISSING = "missing"
    NOT_EXPECTED = "not in this version"


@dataclass(frozen=True)
class PatternCheck:
    """What the source of one torch says about one pattern."""

    pattern: LogPattern
    presence: Presence
    line: int | None = None  # where the text, or the nearest text, stands
    level: str | None = None  # the level that the source gives it
    nearest: str | None = None  # of a missing text: the log text most like it

    @property
    def ok(self) -> bool:
        return self.presence in (Presence.FOUND, Presence.NOT_EXPECTED)


PATTERNS: tuple[LogPattern, ...] = (
    LogPattern(
        "Multithreaded precompilation for %d choices using %d worker threads",
        "INFO",
        "the compilation of one operation's choices begins",
    ),
    LogPattern(
        "Skipping already seen choice: %s",
        "DEBUG",
        "the same kernel was submitted before",
    ),
    LogPattern(
        "Submitted triton async compile for choice: %s",
        "DEBUG",
        "a Triton choice went to the pool of compile workers",
    ),
    LogPattern(
        "Submitted nvgemm subprocess precompile for choice: %s",
        "DEBUG",
        "an NVGEMM choice went to the pool of compile workers",
        first="2.14",
    ),
    LogPattern(
        "Submitted precompile for choice: %s",
        "DEBUG",
        "any other choice went to a thread of the program itself",
    ),
    LogPattern(
        "Precompiling choice with captured stdout: %s",
        "DEBUG",
        "a thread has begun with a choice",
    ),
    LogPattern(
        "Waiting on futures",
        "DEBUG",
        "all choices are submitted; the program now waits",
    ),
    LogPattern(
        "Precompilation complete for future: %s, elapsed time: %.02fs",
        "DEBUG",
        "one choice is compiled; the line does not say which",
    ),
    LogPattern(
        "Precompiling benchmark choice %s took %.02fs",
        "INFO",
        "this choice is compiled",
    ),
    LogPattern(
        "Exception %s for benchmark choice %s",
        "ERROR",
        "the compilation of this choice failed",
    ),
    LogPattern(
        "Precompilation timeout after %ds: %d of %d futures did not complete",
        "WARNING",
        "torch gave up waiting; the stuck choices are named next",
    ),
    LogPattern(
        "Marking choice as failed due to timeout: %s",
        "WARNING",
        "this choice did not finish in time",
    ),
)


def check_pattern(pattern: LogPattern, source: str, *, version: str) -> PatternCheck:
    """Look `pattern` up in `source`, the text of its module in torch `version`."""
    calls = _log_calls(source)
    for call in calls:
        if call.text == pattern.text:
            same = call.level == pattern.level
            presence = Presence.FOUND if same else Presence.LEVEL_CHANGED
            return PatternCheck(pattern, presence, line=call.line, level=call.level)
    if not pattern.expected_in(version):
        return PatternCheck(pattern, Presence.NOT_EXPECTED)
    nearest = _nearest(pattern.text, calls)
    if nearest is None:
        return PatternCheck(pattern, Presence.MISSING)
    return PatternCheck(
        pattern,
        Presence.MISSING,
        line=nearest.line,
        level=nearest.level,
        nearest=nearest.text,
    )


@dataclass(frozen=True)
class _LogCall:
    text: str
    level: str
    line: int


def _log_calls(source: str) -> list[_LogCall]:
    return [
        _LogCall(
            text=match["text"],
            level=_CALLS[match[1]],
            line=source.count("\n", 0, match.start("text")) + 1,
        )
        for match in _LOG_CALL.finditer(source)
        if match[1] in _CALLS
    ]


def _nearest(text: str, calls: list[_LogCall]) -> _LogCall | None:
    texts = {call.text: call for call in calls}
    close = difflib.get_close_matches(text, texts, n=1, cutoff=_LEAST_LIKENESS)
    return texts[close[0]] if close else None


def release(version: str) -> tuple[int, ...]:
    """What to compare torch versions by: (2, 13) of 2.13.0+cpu."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else ()
