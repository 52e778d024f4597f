"""Lines where Dynamo had to break the graph.

What it finds: every line of your program where Dynamo ended a graph and started another, with the
reason torch gives.

Why it matters: nothing is fused or optimised across a break, and each one costs time on every call.

Example: a `print` in a compiled function, a branch on the value of a tensor.

What to do: torch's own hint is quoted; `fullgraph=True` turns breaks into errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.torch_facts import stages

_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)
_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)
# Hints that say nothing about the user's program.
_EMPTY_HINT = re.compile(
    r"report an issue|possible to write Dynamo tracing rules|caused by an earlier graph break"
    r"|This is likely to be a Dynamo bug"
)


@dataclass
class BrokenLine:
    """A line that breaks graphs for one reason, or that leaves one function to eager."""

    source: str
    reason: str
    in_eager: str  # The function that ran in eager; empty if only the graph broke.
    stack: tuple[str, ...] = ()
    code: str = ""
    compiles: list[str] = field(default_factory=list)

    @property
    def times(self) -> str:
        """How often, in brackets; empty for once."""
        return f" ({len(self.compiles)} times)" if len(self.compiles) > 1 else ""


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per line and reason, however often the graph broke there."""
    for line in broken_lines(recording):
        if not line.in_eager:
            title = f"Graph break{line.times}: {short_reason(line.reason)}"
            yield finding_on(line, "graph_breaks", title, first_hint(line.reason))


def broken_lines(recording: Recording) -> list[BrokenLine]:
    """What broke in all compiles: the same line and reason once, with all compiles it broke."""
    places: dict[tuple[str, str, str], BrokenLine] = {}
    for compile_ in recording.compiles:
        for found in _places_of(compile_):
            key = (found.source, short_reason(found.reason), found.in_eager)
            place = places.setdefault(key, found)
            place.compiles.append(compile_.id)
            if len(found.stack) > len(place.stack):  # A whole stack says more than its inner end.
                place.stack = found.stack
    return list(places.values())


def _places_of(compile_: Compile) -> Iterator[BrokenLine]:
    """What broke in one compile; a break that Dynamo gave up at is the reason why it did."""
    given_up = [e for e in compile_.errors if e.swallowed and not _is_limit(e.message)]
    for item in compile_.breaks:
        left = _name(compile_) if given_up else ""
        yield BrokenLine(item.source, item.reason, left, item.stack, item.code)
    if not compile_.breaks:
        for error in given_up:
            place = error.source or compile_.place
            yield BrokenLine(place, error.message, _name(compile_))


def _name(compile_: Compile) -> str:
    if compile_.resumed:
        return f"{compile_.resumed.partition(' at ')[0]}, from the break at its line on,"
    return compile_.function or "?"


def _is_limit(message: str) -> bool:
    return "recompile limit" in message.lower()


def short_reason(text: str) -> str:
    """The sentence in torch's explanation that says why."""
    explanation = _EXPLANATION.search(text)
    if explanation is not None:
        return explanation[1].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


def finding_on(line: BrokenLine, rule: str, title: str, advice: str) -> Finding:
    """A finding on a line, with all that is known about it."""
    return Finding(
        rule=rule,
        title=title,
        is_problem=True,
        confidence="proven",
        evidence=(f"reported by Dynamo in compile {', '.join(dict.fromkeys(line.compiles))}",),
        advice=f"{advice} All hints: 'inductoscope show --stage breaks'.",
        stage=stages.DYNAMO,
        source=line.source,
        compile=line.compiles[0],
        stack=line.stack,
        code=line.code,
    )


def first_hint(reason: str) -> str:
    """The first of torch's hints that says what to change in the program."""
    hints = [hint.strip() for hint in _HINT.findall(reason) if not _EMPTY_HINT.search(hint)]
    return hints[0] if hints else "Move this line out of the compiled function."
