"""Faults that rounding hides: a kernel is wrong, and the graph's results are within rounding.

A graph may amplify rounding so much that a wrong kernel in it does not show in the results. So the
compiled graph is called once more, in a fork, where every buffer that a kernel writes is compared
with the node that it should hold. Nothing is compiled for that, unless the wrapper is C++.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.doctor.failure import NAN, WRONG, Failure
from inductoscope.doctor.handover import say
from inductoscope.doctor.inside.program_copy import program_copy
from inductoscope.doctor.search.candidate import Candidate, has_transforms
from inductoscope.doctor.search.forks import Forks, can_fork
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.own_kernels import first_wrong_own_kernel
from inductoscope.doctor.search.subgraph import record_values, subgraph
from inductoscope.doctor.search.suspects import nodes_wrong_alone
from inductoscope.doctor.search.wrong_result_location import location_of_answer
from inductoscope.errors import ToolFailure

_SECONDS = 120.0


@dataclass(frozen=True)
class HiddenFault:
    """A kernel of the whole graph that is wrong beyond rounding.

    It counts as a failure only if a part of the graph is wrong on its own as well.
    """

    kernel: str
    text: str
    part: Candidate | None = None
    failure: Failure | None = None


def wrong_kernel(
    candidate: Candidate, compiled: Callable[..., Any], place: Path
) -> HiddenFault | None:
    """The first wrong kernel of a graph whose results differ from eager's within rounding."""
    say(place, "differences within rounding; comparing every kernel with eager")
    forks = Forks(seconds=_SECONDS)
    location = location_of_answer(forks.ask(lambda: first_wrong_own_kernel(candidate, compiled)))
    if not location.kernel:
        return None
    names, failure = _wrong_nodes(candidate, location.suspects, place)
    part = subgraph(record_values(candidate), names) if failure is not None else None
    return HiddenFault(location.kernel, location.text, part, failure)


def _wrong_nodes(
    candidate: Candidate, suspects: Sequence[str], place: Path
) -> tuple[list[str], Failure | None]:
    """Here, or in the copy of a program that uses a GPU and so cannot be forked."""
    copy = None if can_fork() else program_copy()
    if copy is None:
        return nodes_that_are_wrong(candidate, suspects)
    try:
        found: tuple[list[str], Failure | None] = copy.run(
            nodes_that_are_wrong, candidate, suspects, place=place
        )
        return found
    except ToolFailure:
        return [], None


def nodes_that_are_wrong(
    candidate: Candidate, suspects: Sequence[str]
) -> tuple[list[str], Failure | None]:
    """The nodes that the kernel computes, or one other, if they are wrong by themselves."""
    if has_transforms(candidate):
        return [], None
    oracle = Oracle(Forks(seconds=_SECONDS, uses_gpu=bool(candidate.device)))
    recorded = record_values(candidate)
    computed = [list(suspects)] if suspects else []
    for names in (*computed, *nodes_wrong_alone(recorded, oracle)):
        part = subgraph(recorded, names)
        failure = None if part is None else oracle.failure(part)
        if failure is not None and failure.kind in (WRONG, NAN):
            return names, failure
    return [], None
