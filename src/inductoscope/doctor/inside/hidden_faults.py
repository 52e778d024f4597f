"""Faults that rounding hides: a kernel is wrong, and the graph's results are within rounding.

A graph may amplify rounding so much that a wrong kernel in it does not show in the results. So the
compiled graph is called once more, in a fork, where every buffer that a kernel writes is compared
with the node that it should hold. Nothing is compiled for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.doctor.compare.kept_wrappers import KEPT
from inductoscope.doctor.compare.kernels import KernelWatch
from inductoscope.doctor.compare.values import run
from inductoscope.doctor.failure import NAN, WRONG, Failure
from inductoscope.doctor.handover import say
from inductoscope.doctor.location import Location
from inductoscope.doctor.search.candidate import Candidate, has_transforms
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.subgraph import record_values, subgraph
from inductoscope.doctor.search.suspects import nodes_wrong_alone
from inductoscope.doctor.search.wrong_result_location import (
    location_of_answer,
    names_in_first_graph,
)

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
    oracle = Oracle(Forks(seconds=_SECONDS))
    location = location_of_answer(oracle.forks.ask(lambda: _in_own_kernels(candidate, compiled)))
    if not location.kernel:
        return None
    part, failure = _wrong_part(candidate, location, oracle)
    return HiddenFault(location.kernel, location.text, part, failure)


def _in_own_kernels(candidate: Candidate, compiled: Callable[..., Any]) -> Location:
    """The first kernel that differs, while the program's compiled graph is called once more."""
    watch = KernelWatch()
    with watch.watching_loaded(KEPT.wrappers):
        run(compiled, candidate.inputs, backward=candidate.backward)
    if not watch.divergences:
        return Location()
    found = watch.divergences[0]
    nodes = [node for node in found.graph.module.graph.nodes if node.name in found.origins]
    known = {node.name for node in candidate.operations}
    return Location(
        kernel=found.kernel,
        text=f"{found.text} (buffer {found.buffer} of kernel {found.kernel}, node {found.node})",
        suspects=tuple(sorted(known & names_in_first_graph(nodes))),
    )


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
