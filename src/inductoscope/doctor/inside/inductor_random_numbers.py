"""Checks a graph that draws random numbers the way it is compiled without this tool.

Under this tool, compiled code draws eager's random numbers, so that values can be compared.
Otherwise Inductor uses its own operations, which may fail too: give a wrong type or shape, or
not compile.
"""

from __future__ import annotations

from dataclasses import replace

from inductoscope.doctor.compare.graphs import as_function
from inductoscope.doctor.compare.random_numbers import draws_random_numbers, nodes_that_draw
from inductoscope.doctor.failure import ERROR, WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate, has_transforms
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import Oracle, examine
from inductoscope.doctor.search.placement import placed
from inductoscope.doctor.search.subgraph import record_values, subgraph

_SECONDS = 120.0
# In a graph with more nodes, first only those that draw random numbers are compiled.
_FEW_NODES = 100


def failure_with_inductor_random_numbers(
    candidate: Candidate, *, always_whole: bool = False
) -> tuple[Candidate, Failure | None]:
    """The graph with Inductor's random numbers, and its failure then.

    To compile a large graph once more takes long, and what may be wrong is hardly ever more than
    the operations that draw the numbers: unless it is asked for, a large graph is compiled whole
    only if these fail.
    """
    own = replace(candidate, config={**candidate.config, "fallback_random": False})
    forks = Forks(workers=1, seconds=_SECONDS, uses_gpu=bool(candidate.device))
    function = as_function(candidate.module)
    if not forks.ask(lambda: draws_random_numbers(function, placed(candidate).inputs)).result:
        return own, None
    is_large = candidate.size > _FEW_NODES and not has_transforms(candidate)
    if is_large and not always_whole and forks.ask(lambda: _are_well_alone(own)).result is True:
        return own, None
    failure = Oracle(forks).failure(own)
    return own, failure if failure is not None and failure.kind in (WRONG, ERROR) else None


def _are_well_alone(candidate: Candidate) -> bool:
    """In a fork: whether the nodes that draw random numbers compile, and give what they should."""
    recorded = record_values(candidate)
    apart = subgraph(
        recorded, nodes_that_draw(candidate.module, placed(candidate).inputs), separate=True
    )
    return apart is not None and examine(apart) is None
