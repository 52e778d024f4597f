"""Faults that rounding hides: a kernel is wrong, and the graph's results are within rounding.

A graph may amplify rounding so much that a wrong kernel in it does not show in the results. So the
graph is compiled again, with every kernel compared with the nodes that it computes. The kernels
are those of the program, so no native compiler runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inductoscope.doctor.failure import NAN, WRONG, Failure
from inductoscope.doctor.handover import say
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.candidate import Candidate, has_transforms
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.subgraph import record_values, subgraph
from inductoscope.doctor.search.suspects import nodes_wrong_alone
from inductoscope.doctor.search.wrong_result_location import in_kernels, location_of_answer

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


def wrong_kernel(candidate: Candidate, place: Path) -> HiddenFault | None:
    """The first wrong kernel of a graph whose results differ from eager's within rounding."""
    say(place, "differences within rounding; comparing every kernel with eager")
    oracle = Oracle(Forks(seconds=_SECONDS))
    location = location_of_answer(oracle.forks.ask(lambda: in_kernels(candidate)))
    if not location.kernel:
        return None
    part, failure = _wrong_part(candidate, location, oracle)
    return HiddenFault(location.kernel, location.text, part, failure)


def _wrong_part(
    candidate: Candidate, location: Location, oracle: Oracle
) -> tuple[Candidate | None, Failure | None]:
    """The part of the graph that the kernel computes, or one node, if it is wrong by itself."""
    if has_transforms(candidate):
        return None, None
    recorded = record_values(candidate)
    suspects = [list(location.suspects)] if location.suspects else []
    for names in (*suspects, *nodes_wrong_alone(recorded, oracle)):
        part = subgraph(recorded, names)
        failure = None if part is None else oracle.failure(part)
        if failure is not None and failure.kind in (WRONG, NAN):
            return part, failure
    return None, None
