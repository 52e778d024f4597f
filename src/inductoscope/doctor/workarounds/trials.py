"""Tries workarounds on the failing graph and measures what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inductoscope.doctor.compare.values import copy_values
from inductoscope.doctor.failure import ERROR, HANG, SIGNAL
from inductoscope.doctor.handover import Found, GraphWorkaround
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.axis import Axis
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.candidate_work import CandidateWork
from inductoscope.doctor.search.forks import can_fork
from inductoscope.doctor.search.oracle import EagerFails, Oracle, compiled, compiling, examine
from inductoscope.doctor.search.placement import placed
from inductoscope.doctor.workarounds.proposals import ProposedWorkaround, propose_workarounds

_CALLS = 20
_UNTRIED = 3
_LONGEST = 1.0
# Two measurements of the same thing that differ by more than this factor say nothing.
_STEADY = 1.25


def try_workarounds(
    candidate: Candidate,
    found: Found,
    location: Location,
    suppressing: Sequence[tuple[Axis, str]],
    oracle: Oracle,
) -> list[GraphWorkaround]:
    """Workarounds with which the whole graph is right, the least loss first."""
    operations = [location.operation, *found.operations]
    passes = [location.pass_name, *(name for name in location.names if name.isidentifier())]
    passes = passes if location.pass_name else []
    proposals = propose_workarounds(
        location.stage, _unique(operations), _unique(passes), suppressing
    )
    if not can_fork():
        # In this process one would affect the next: they are tried on the program instead.
        return [GraphWorkaround(each.text, each.code) for each in proposals[:_UNTRIED]]
    working: list[tuple[ProposedWorkaround, float | None]] = []
    forks = oracle.forks
    for first in range(0, len(proposals), forks.workers):
        wave = proposals[first : first + forks.workers]
        answers = forks.ask_all(
            [TriedWithWorkaround(candidate, each.code, forks.is_here) for each in wave]
        )
        for proposal, answer in zip(wave, answers, strict=True):
            if answer.result and answer.result.get("works"):
                working.append((proposal, answer.result.get("seconds")))
        if working:
            break
    ends_without = found.failure.kind not in (HANG, SIGNAL, ERROR)
    if working and not forks.is_here:
        # Times of different machines say nothing about each other.
        least, _ = working[0]
        working[0] = least, forks.ask(_timed(candidate, least.code)).result
    can_compare = ends_without and working and working[0][1]
    plain = forks.ask(_timed(candidate)).result if can_compare else None
    return [
        GraphWorkaround(each.text, each.code, seconds / plain if seconds and plain else None)
        for each, seconds in working
    ]


def _unique(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]


@dataclass(frozen=True)
class TriedWithWorkaround(CandidateWork):
    """Whether the candidate is right with a workaround, and if so how fast."""

    code: str
    is_timed: bool = True

    def __call__(self) -> dict[str, Any]:
        exec(self.code, {"torch": torch})
        try:
            failure = examine(self.candidate)
        except EagerFails:
            return {"works": False}
        if failure is not None:
            return {"works": False}
        return {"works": True, "seconds": _timed(self.candidate)() if self.is_timed else None}


def _timed(candidate: Candidate, code: str = "") -> Callable[[], float | None]:
    """Work for a fork: seconds of a compiled call; None if they vary too much."""

    def work() -> float | None:
        exec(code, {"torch": torch})
        there = placed(candidate)
        with compiling(there, in_filled_memory=False):
            function = compiled(there)
            inputs = copy_values(there.inputs)
            function(*inputs)
            halves = [_shortest(lambda: function(*inputs)) for _ in range(2)]
            # If something else takes the processor or the GPU, no number is better than this one.
            return min(halves) if max(halves) < _STEADY * min(halves) else None

    return work


def _shortest(call: Callable[[], Any]) -> float:
    """Seconds of the shortest of many calls."""
    best, begun = float("inf"), time.perf_counter()
    for _ in range(_CALLS):
        _wait_for_gpu()
        started = time.perf_counter()
        call()
        _wait_for_gpu()
        best = min(best, time.perf_counter() - started)
        if time.perf_counter() - begun > _LONGEST:
            break
    return best


def _wait_for_gpu() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
