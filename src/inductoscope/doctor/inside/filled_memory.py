"""Reads past the end that do no harm by chance: a call is repeated with NaN around every buffer.

What lies beside a buffer differs from process to process, so that a kernel which reads it may be
right here and wrong without this tool. The compiled graph is called once more in a fork, nothing is
compiled for that. Buffers of wrappers in C++ stay where they are; only their inputs are guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inductoscope.doctor.compare.bug_or_rounding import judge
from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.guarded_memory import GuardedMemory
from inductoscope.doctor.compare.kept_wrappers import KEPT
from inductoscope.doctor.compare.values import run
from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.failure_signature import failure_of_comparison
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.memory_evidence import of_changed_memory

_SECONDS = 120.0


def failure_in_filled_memory(
    case: Case, compiled: Callable[..., Any], candidate: Candidate
) -> tuple[Candidate, Failure | None]:
    """The graph in such memory, and its failure then, if it is proven to depend on that."""
    guarded = replace(candidate, guarded=True)
    if not _is_wrong(case, compiled, candidate.inputs):
        return guarded, None
    # Compiled once more, and called with several bytes in memory.
    fault = of_changed_memory(candidate, Forks(workers=1, seconds=_SECONDS)).fault
    if fault is None:
        return guarded, None
    return guarded, Failure(WRONG, fault.text, aspect="value", memory_was_filled=True)


def _is_wrong(case: Case, compiled: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """Whether a call that is right becomes wrong, or dies, with other bytes in memory."""
    modules = [wrapper.module for wrapper in KEPT.wrappers]

    def work() -> bool:
        memory = GuardedMemory()
        with memory.active_in(modules):
            outcome = run(compiled, arguments, backward=case.backward, copy=memory.copies)
        return failure_of_comparison(judge(case, outcome)) is not None

    answer = Forks(workers=1, seconds=_SECONDS).ask(work)
    return answer.result is True or answer.signal is not None
