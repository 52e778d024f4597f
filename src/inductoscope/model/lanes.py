"""Lanes of a timeline: which spans can share a row, because they nest or follow each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from inductoscope.vocabulary import stages


@dataclass(frozen=True)
class Lane:
    """A row of the timeline: spans in it nest or follow each other."""

    name: str
    kind: str  # launcher, program, worker or compiler
    process: str  # the stream
    pid: int
    start: float
    seconds: float
    ended: bool  # whether the process ended normally


@dataclass(frozen=True)
class Span:
    """Something that took time. `start` counts from the beginning of the run."""

    lane: int
    start: float
    seconds: float
    depth: int
    stage: str
    label: str
    graph: str = ""
    compile: str = ""
    finished: bool = True

    @property
    def end(self) -> float:
        """When it was over."""
        return round(self.start + self.seconds, 6)


Fits = Callable[[Span, Span], bool]


def nests(outer: Span, inner: Span) -> bool:
    """Whether a span lies inside another, as calls on one thread do."""
    return inner.end <= outer.end


def is_part_of_choice(outer: Span, inner: Span) -> bool:
    """Compilers run beside each other; only a choice's own compile lies inside the choice."""
    is_part = outer.stage == stages.AUTOTUNE and inner.stage == stages.TRITON_COMPILE
    return is_part and inner.end <= outer.end


def laid_out(spans: list[Span], fits: Fits) -> list[list[Span]]:
    """Each span in the first row where it fits into what is under way, or where nothing is."""
    rows: list[list[Span]] = []
    under_way: list[list[Span]] = []
    for span in spans:
        number = _row_for(span, under_way, fits)
        if number == len(rows):
            rows.append([])
            under_way.append([])
        placed = replace(span, depth=len(under_way[number]))
        rows[number].append(placed)
        under_way[number].append(placed)
    return rows


def _row_for(span: Span, under_way: list[list[Span]], fits: Fits) -> int:
    """Where it fits tightest: what ends right after it is what waited for it."""
    for stack in under_way:
        while stack and stack[-1].end <= span.start:
            stack.pop()
    around = [(s[-1].end, n) for n, s in enumerate(under_way) if s and fits(s[-1], span)]
    idle = [number for number, stack in enumerate(under_way) if not stack]
    return min(around)[1] if around else idle[0] if idle else len(under_way)
