"""What of the program's settings in torch a failure needs, so that a script can have it, too."""

from __future__ import annotations

from dataclasses import replace

from inductoscope.doctor.compare.graphs import as_function
from inductoscope.doctor.compare.random_numbers import draws_random_numbers
from inductoscope.doctor.failure import Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.placement import placed
from inductoscope.doctor.search.torch_state import TorchState, current_state


def needed_state(candidate: Candidate, failure: Failure, oracle: Oracle) -> TorchState:
    """The state of the program, without autocast if the failure shows without it."""
    state = current_state()
    if not state.autocast:
        return state
    without = replace(state, autocast={})
    with without.entered():
        again = oracle.failure(candidate, label=" without autocast")
    return without if again is not None and again.is_same_as(failure) else state


def repeatable(smallest: Candidate, forks: Forks) -> Candidate:
    """With the random numbers that eager draws, if any: this process is set so already."""
    function = as_function(smallest.module)
    draws = forks.ask(lambda: draws_random_numbers(function, placed(smallest).inputs))
    if not draws.result or smallest.draws_inductor_random_numbers:
        return smallest
    return replace(smallest, config={**smallest.config, "fallback_random": True})
