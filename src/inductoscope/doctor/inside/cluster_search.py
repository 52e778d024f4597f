"""Has a search use a cluster, if the user has one and the failure shows there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.oracle import Oracle, TriedCandidate
from inductoscope.errors import InductoscopeError
from inductoscope.vocabulary.counting import count_of


@contextlib.contextmanager
def searching_on_cluster(
    oracle: Oracle,
    candidate: Candidate,
    failure: Failure,
    instructions: Instructions,
    say: Callable[[str], None],
) -> Iterator[None]:
    """Inside the block, the workers of the cluster try the oracle's candidates."""
    if not instructions.executor:
        yield
        return
    # Only now: a program that is well never loads it.
    from inductoscope.doctor.search.cluster_forks import ClusterForks
    from inductoscope.executors.cluster import connect

    try:
        cluster = connect(instructions.executor, any_versions=instructions.any_worker)
    except InductoscopeError as error:
        say(f"the search stays on this machine: {error}")
        yield
        return
    here, forks = oracle.forks, ClusterForks(oracle.forks, cluster, say)
    try:
        say(f"trying the failing graph on {count_of(len(cluster.workers), 'worker')}")
        whole = TriedCandidate(candidate, oracle.stage, oracle.watch_kernels)
        if forks.use_those_that_show(whole, failure):
            say(f"searching with {count_of(len(forks.able), 'worker')} of {instructions.executor}")
            oracle.forks = forks
        else:
            say("the search stays on this machine")
        yield
    finally:
        oracle.forks, here.count = here, forks.count
        forks.close()
