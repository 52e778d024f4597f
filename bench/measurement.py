"""Measurements of a benchmark, in one shape, and the conclusions that they allow.

A turn is one run of ours and one of the peer, shortly after each other, so that what drifts on the
machine drops out of their ratio. A goal is at most a ratio, or at most a value where there is no
peer. The middle turn counts, and only if it is farther from the goal than it is uncertain.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.load import QUIET, Load

Runs = tuple[float | None, ...]

# From this many turns on, quartiles say something.
ENOUGH_TURNS = 5
# Half the notch of a box plot: with it, the middle of a normal sample is held in 19 of 20 cases.
NOTCH = 1.57
# Nobody knows how a single run varies; runs on a quiet machine stayed within this share.
SINGLE_TURN = 0.25
_CLOCKS = ("s", "ms")

MET, MISSED, NOT_CONCLUDED, NO_GOAL = "met", "missed", "not concluded", "no goal"


@dataclass(frozen=True)
class Conclusion:
    """Whether a goal is met, or why that cannot be said."""

    word: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.why}" if self.why else self.word


@dataclass(frozen=True)
class Measurement:
    """One quantity, run by run; None where a run failed."""

    name: str
    # "s" and "ms" are by the clock, which others who use the machine slow down.
    unit: str
    ours: Runs
    goal: float | None = None
    # Empty where the goal is about the value itself.
    compared_with: str = ""
    # As many as ours, of the same turns, unless the peer is missing.
    peer: Runs = ()
    why_no_peer: str = ""
    why_failed: str = ""
    note: str = ""
    # Whether the goal is counted here. It is once, where it was measured in several ways.
    counts: bool = True

    @property
    def values(self) -> tuple[float, ...]:
        """Values that the goal is about, turn by turn: ratios, or our own values."""
        if not self.compared_with:
            return _succeeded(self.ours)
        pairs = zip(self.ours, self.peer, strict=False)
        return tuple(a / b for a, b in pairs if a is not None and b)

    @property
    def middle(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def uncertainty(self) -> float:
        """How far the middle may be from that of many more turns."""
        values = self.values
        if len(values) == 1:
            return SINGLE_TURN * abs(values[0])
        if len(values) < ENOUGH_TURNS:
            return max(values) - min(values)
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return NOTCH * (high - low) / math.sqrt(len(values))

    def _explain_nothing(self) -> str:
        if self.compared_with:
            return f"{self.compared_with}: {self.why_no_peer or 'no value'}"
        return self.why_failed or "nothing was measured"

    def conclude(self, load: Load = QUIET) -> Conclusion:
        """From these turns, measured while the machine had this load."""
        failed = sum(run is None for run in self.ours)
        if failed:
            times = f" in {failed} of {len(self.ours)} runs" if len(self.ours) > 1 else ""
            return Conclusion(MISSED, f"ours failed{times}: {self.why_failed or 'no value'}")
        if not self.values:
            return Conclusion(NOT_CONCLUDED, self._explain_nothing())
        if self.goal is None:
            return Conclusion(NO_GOAL)
        middle = statistics.median(self.values)
        distance = abs(middle - self.goal)
        if self.uncertainty > distance:
            return Conclusion(NOT_CONCLUDED, "the spread is larger than the distance to the goal")
        is_met = middle <= self.goal
        # Others make a run slower, never faster; a ratio they change either way.
        if load.disturbs and self.unit in _CLOCKS and (self.compared_with or not is_met):
            return Conclusion(NOT_CONCLUDED, load.explain())
        return Conclusion(MET if is_met else MISSED)


def _succeeded(runs: Runs) -> tuple[float, ...]:
    return tuple(run for run in runs if run is not None)


def add_up(name: str, parts: Sequence[Measurement]) -> Measurement:
    """All parts as one: what they take together, turn by turn."""
    first = parts[0]
    return Measurement(
        name=name,
        unit=first.unit,
        ours=_sums(part.ours for part in parts),
        goal=first.goal,
        compared_with=first.compared_with,
        peer=_sums(part.peer for part in parts),
        why_no_peer="; ".join(sorted({p.why_no_peer for p in parts if p.why_no_peer})),
        why_failed="; ".join(f"{p.name}: {p.why_failed}" for p in parts if p.why_failed),
    )


def _sums(columns: Iterable[Runs]) -> Runs:
    return tuple(_sum(turn) for turn in itertools.zip_longest(*columns))


def _sum(parts: Runs) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def write_measurements(measurements: Iterable[Measurement], path: Path) -> None:
    """The file that a benchmark leaves for the summary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {"measurements": [asdict(measurement) for measurement in measurements]}
    path.write_text(json.dumps(found, indent=1) + "\n")


def read_measurements(found: dict[str, Any]) -> list[Measurement]:
    """Measurements written by `write_measurements`."""
    entries = found["measurements"]
    return [Measurement(**{**e, "ours": (*e["ours"],), "peer": (*e["peer"],)}) for e in entries]
