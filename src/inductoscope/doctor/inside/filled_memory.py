"""A call in a fork, with NaN around every buffer, before the program makes it.

What lies beside a buffer differs from process to process, so that a kernel which reads it may be
right here and wrong without this tool. A kernel that kills its process kills the fork, and the
program is still there to be examined. Nothing is compiled for that. Buffers of wrappers in C++ stay
where they are; only their inputs are guarded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from inductoscope.doctor.compare.bug_or_rounding import judge, same_values
from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.guarded_memory import GuardedMemory
from inductoscope.doctor.compare.kept_wrappers import KEPT
from inductoscope.doctor.compare.values import Outcome, run
from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.failure_signature import failure_of_comparison, failure_of_signal
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.memory_evidence import of_changed_memory

_SECONDS = 120.0
# How long the trial of a call may take: it is skipped where eager itself takes long.
_LEAST_SECONDS, _TIMES_EAGER = 5.0, 20.0


@dataclass(frozen=True)
class CallTrial:
    """What a call did in a fork, before the program itself makes it."""

    # With other bytes in memory its values may not be close to eager's, or it dies.
    may_differ_in_filled_memory: bool = False
    # The failure, if it kills its process with any bytes.
    death: Failure | None = None
    # The failure, if the forward pass alone is wrong already.
    wrong_forward: Failure | None = None

    @property
    def failure(self) -> Failure | None:
        """What is known to be wrong with the call before it is made."""
        return self.death or self.wrong_forward


def try_call(case: Case, compiled: Callable[..., Any]) -> CallTrial:
    """Call the compiled graph in a fork, with other bytes in memory.

    A call that takes long, or hangs, is left to the program itself. So is the backward pass, which
    would have to be compiled for that.
    """
    forward = Case(case.function, case.inputs)
    forks = Forks(workers=1, seconds=_LEAST_SECONDS + _TIMES_EAGER * case.eager.seconds)
    answer = forks.ask(lambda: _differs_in_filled_memory(forward, compiled))
    if answer.signal is None:
        differs = answer.result is True
        wrong = _failure_of_forward(forward, compiled) if differs and case.backward else None
        # Of a backward pass nothing is known yet, and of a call that did not end in time.
        return CallTrial(differs or case.backward or answer.timed_out, wrong_forward=wrong)
    plain = forks.ask(lambda: bool(run(compiled, case.inputs, backward=False)))
    # What dies of other bytes alone is judged like anything else that is wrong with them.
    return CallTrial(True, None if plain.signal is None else failure_of_signal(plain))


def _failure_of_forward(forward: Case, compiled: Callable[..., Any]) -> Failure | None:
    """What is wrong before the backward pass, which then need not be compiled."""
    try:
        outcome = run(compiled, forward.inputs, backward=False)
    except Exception:
        return None  # The whole call shows that, too.
    return failure_of_comparison(judge(forward, outcome))


def _differs_in_filled_memory(case: Case, compiled: Callable[..., Any]) -> bool:
    return not same_values(case.eager, _in_filled_memory(case, compiled))


def failure_in_filled_memory(
    case: Case, compiled: Callable[..., Any], candidate: Candidate
) -> tuple[Candidate, Failure | None]:
    """The graph in such memory, and its failure then, if it is proven to depend on that."""
    guarded = replace(candidate, guarded=True)
    if not _is_wrong(case, compiled):
        return guarded, None
    # Compiled once more, and called with several bytes in memory.
    fault = of_changed_memory(candidate, Forks(workers=1, seconds=_SECONDS)).fault
    if fault is None:
        return guarded, None
    return guarded, Failure(WRONG, fault.text, aspect="value", memory_was_filled=True)


def _is_wrong(case: Case, compiled: Callable[..., Any]) -> bool:
    """Whether a call that is right becomes wrong, or dies, with other bytes in memory."""

    def work() -> bool:
        return failure_of_comparison(judge(case, _in_filled_memory(case, compiled))) is not None

    answer = Forks(workers=1, seconds=_SECONDS).ask(work)
    return answer.result is True or answer.signal is not None


def _in_filled_memory(case: Case, compiled: Callable[..., Any]) -> Outcome:
    memory = GuardedMemory()
    with memory.active_in([wrapper.module for wrapper in KEPT.wrappers]):
        return run(compiled, case.inputs, backward=case.backward, copy=memory.copies)
