"""Findings by what is known of them: the claims that an investigation would have made."""

from __future__ import annotations

from typing import Any

from inductoscope.doctor import judgement
from inductoscope.doctor.failure import Failure, Location
from inductoscope.doctor.finding import (
    PROGRAM,
    SMALLEST_GRAPH,
    WHOLE_GRAPH,
    FailureFinding,
    Noticed,
    Reduction,
    SearchProgress,
)
from inductoscope.doctor.verdict import Verdict
from inductoscope.views.verdict_text import worded


def finding(
    failure: Failure,
    *facts: Any,
    reproduces: bool = True,
    is_complete: bool = True,
    location: Location | None = None,
    in_program: Location | None = None,
    smallest: Failure | None = None,
    noticed: Noticed | None = None,
    candidates: int = 0,
    **left: Any,
) -> FailureFinding:
    """A failure, its place, what is left of its graph, and further facts in this order.

    `in_program` is the place in the program's whole graph; `smallest` is the failure as it shows
    in the smallest one.
    """
    found = FailureFinding().claimed(noticed or Noticed("0/0")).claimed(failure, PROGRAM)
    if reproduces:
        found = found.claimed(failure, WHOLE_GRAPH)
    if in_program is not None:
        found = found.claimed(in_program, WHOLE_GRAPH)
    if smallest is not None:
        found = found.claimed(smallest, SMALLEST_GRAPH)
    if location is not None:
        found = found.claimed(location, SMALLEST_GRAPH)
    if left:
        found = found.claimed(Reduction(**left), SMALLEST_GRAPH)
    for fact in facts:
        found = found.claimed(fact)
    return found.claimed(SearchProgress(candidates, is_complete=is_complete))


def verdict_on(found: FailureFinding) -> Verdict:
    """The verdict on a finding, with its words."""
    return worded(judgement.verdict_on(found))
