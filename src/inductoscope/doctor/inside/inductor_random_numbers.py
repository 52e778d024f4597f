"""Checks a graph that draws random numbers the way it is compiled without this tool.

Under this tool, compiled code draws eager's random numbers, so that values can be compared.
Otherwise Inductor uses its own operations, which may fail too: give a wrong type or shape, or
not compile.
"""

from __future__ import annotations

from dataclasses import replace

from inductoscope.doctor.compare.graphs import as_function
from inductoscope.doctor.compare.random_numbers import draws_random_numbers
from inductoscope.doctor.failure import ERROR, WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.placement import placed

_SECONDS = 120.0


def failure_with_inductor_random_numbers(candidate: Candidate) -> tuple[Candidate, Failure | None]:
    """The graph with Inductor's random numbers, and its failure then."""
    own = replace(candidate, config={**candidate.config, "fallback_random": False})
    forks = Forks(workers=1, seconds=_SECONDS, uses_gpu=bool(candidate.device))
    function = as_function(candidate.module)
    if not forks.ask(lambda: draws_random_numbers(function, placed(candidate).inputs)).result:
        return own, None
    failure = Oracle(forks).failure(own)
    return own, failure if failure is not None and failure.kind in (WRONG, ERROR) else None
