"""What a log says about one program: the answer, the lines that show it, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from inductoscope.hangs.logs.groups import ChoiceState, Group
from inductoscope.hangs.logs.origin import Origin, Program
from inductoscope.hangs.logs.program import Seen, SeenFailure
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.frames import shorten
from inductoscope.vocabulary.verdicts import Confidence

_LONGEST_EVIDENCE = 300


class Kind(str, Enum):
    """What happened to a program."""

    COMPILE_HANG = "kernel compile hang"
    BENCHMARK_HANG = "benchmark hang"
    KERNELS = "kernel compiler"
    RUN_TIME = "after compilation"
    ERROR = "error"
    DYNAMO = "Dynamo"
    AOT = "AOTAutograd"
    INDUCTOR = "Inductor before autotuning"
    RECOMPILE_LIMIT = "recompile limit"
    INTERRUPTED = "interrupted"
    CLEAN = "clean"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class LogLine:
    """A line of a log."""

    place: str
    text: str


@dataclass(frozen=True)
class Answer:
    """What happened to one program."""

    kind: Kind
    title: str
    program: Program
    confidence: Confidence
    stage: str = stages.NO_STAGE
    compile_id: str = ""
    is_problem: bool = True
    evidence: tuple[LogLine, ...] = ()
    advice: tuple[str, ...] = ()
    # The command to type.
    command: str = ""
    notes: tuple[str, ...] = ()
    groups: tuple[Group, ...] = field(default=(), compare=False)


_FIRST = (Kind.COMPILE_HANG, Kind.BENCHMARK_HANG, Kind.KERNELS, Kind.ERROR)


def urgency(answer: Answer) -> tuple[bool, int]:
    """To sort by: problems first, and of those the most telling ones."""
    kind = answer.kind
    return not answer.is_problem, _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def line_evidence(seen: Seen) -> LogLine:
    """A torch line."""
    return LogLine(seen.origin.place, shortened(seen.text.strip() or f"(a line of {seen.module})"))


def place_evidence(origin: Origin, text: str) -> LogLine:
    """A line, quoted or in our words."""
    return LogLine(origin.place, shortened(text))


def choice_evidence(state: ChoiceState, words: str) -> LogLine | None:
    """The last line about a choice."""
    if not state.origins:
        return None
    return LogLine(
        state.origins[-1].place,
        shortened(f"{words} {state.choice.short_name or state.choice.text}"),
    )


def failure_evidence(seen: SeenFailure, frame: int = -1) -> tuple[LogLine, ...]:
    """The traceback, with the frame that shows where it was."""
    failure, origin = seen.failure, seen.origin
    last_line = origin.line + failure.lines - 1
    found = [LogLine(f"{origin.file}:{last_line}", shortened(failure.error or "(cut)"))]
    if failure.frames:
        where = failure.frames[frame]
        text = f"in {where.function}, {shorten(where.file)}:{where.line}"
        found.insert(0, LogLine(origin.place, shortened(text)))
    return tuple(found)


def present(items: Iterable[LogLine | None]) -> tuple[LogLine, ...]:
    """Those that exist."""
    return tuple(item for item in items if item is not None)


def shortened(text: str) -> str:
    """A text cut to a readable length."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_EVIDENCE else text[: _LONGEST_EVIDENCE - 1] + "…"
