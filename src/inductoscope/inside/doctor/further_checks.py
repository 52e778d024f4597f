"""Further checks of a call that agrees with eager: in forks, under other conditions.

A call may be right by chance, or because this tool changes its environment. Each check returns a
graph that fails, or nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from inductoscope.doctor.failure import ERROR, NAN, WRONG, Failure, Location
from inductoscope.inside.compare.bug_or_rounding import described, judge, same_values
from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.guarded_memory import GuardedMemory
from inductoscope.inside.compare.kernels import KEPT_WRAPPERS
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import (
    Outcome,
    copy_values,
    draws_random_numbers,
    nodes_that_draw,
    run,
)
from inductoscope.inside.doctor.program_copy import run_forking
from inductoscope.inside.scope import say
from inductoscope.inside.search.candidate import Candidate, has_transforms
from inductoscope.inside.search.failure_signature import (
    failure_of_answer,
    failure_of_comparison,
    failure_of_signal,
    innermost,
    note_eager_error,
)
from inductoscope.inside.search.forks import Forks, answer_without_fork, can_fork
from inductoscope.inside.search.location import (
    first_wrong_own_kernel,
    location_of_answer,
    nodes_wrong_alone,
)
from inductoscope.inside.search.memory_evidence import of_changed_memory
from inductoscope.inside.search.oracle import Oracle, examine
from inductoscope.inside.search.placement import placed
from inductoscope.inside.search.subgraph import record_values, subgraph
from inductoscope.torch_facts.messages import device_error


@dataclass(frozen=True)
class FailingCandidate:
    """A graph that fails, and under which condition, if that is not the program's own."""

    candidate: Candidate
    failure: Failure
    condition: str = ""
    # The size at which it fails, if the program never uses that size.
    other_size: str = ""
    # The kernel of the program that is wrong, if that is known already.
    location: Location | None = None


# --- A call in a fork, with NaN around every buffer, before the program makes it ------------------
#
# The bytes beside a buffer differ from process to process, so that a kernel which reads them may be
# right here and wrong without this tool. A kernel that kills its process kills the fork, and the
# program is still there to be examined. Nothing is compiled for that. Buffers of wrappers in C++
# stay where they are; only their inputs are guarded.

_SECONDS = 120.0
# The time limit of a trial: a constant, and a multiple of the time of eager.
_LEAST_SECONDS, _TIMES_EAGER = 5.0, 20.0


@dataclass(frozen=True)
class CallTrial:
    """The trial of a call in a fork, before the program itself makes it."""

    # With different bytes in memory its values may not be close to eager's, or it dies.
    may_differ: bool = False
    # The failure, if it kills its process with any bytes.
    death: Failure | None = None
    # The failure, if the forward pass alone is wrong already.
    wrong_forward: Failure | None = None

    @property
    def failure(self) -> Failure | None:
        """The failure that is known before the program makes the call."""
        return self.death or self.wrong_forward


def try_call(case: Case, compiled: Callable[..., Any]) -> CallTrial:
    """Call the compiled graph in a fork, with different bytes in memory.

    A call that takes long, or hangs, is left to the program itself. So is the backward pass, which
    would have to be compiled first.
    """
    forward = Case(case.function, case.inputs)
    forks = Forks(workers=1, seconds=_LEAST_SECONDS + _TIMES_EAGER * case.eager.seconds)
    answer = forks.ask(lambda: not same_values(forward.eager, _in_filled_memory(forward, compiled)))
    if answer.signal is None:
        differs = answer.result is True
        wrong = _failure_of_forward(forward, compiled) if differs and case.backward else None
        # A backward pass, or a call that did not end in time, has not been examined yet.
        return CallTrial(differs or case.backward or answer.timed_out, wrong_forward=wrong)
    plain = forks.ask(lambda: bool(run(compiled, case.inputs, backward=False)))
    if plain.signal == signal.SIGKILL:
        raise MemoryError  # The system has ended the fork; here, that would be the program's end.
    # A crash due to different bytes alone is judged like a wrong result due to them.
    return CallTrial(True, None if plain.signal is None else failure_of_signal(plain))


# Errors that say nothing about the call: at another time it may succeed, or eager has no kernel for
# what Inductor generates code for.
_SAYS_NOTHING = (MemoryError, torch.OutOfMemoryError, NotImplementedError)
_NO_KERNEL = (" not implemented for '", "does not have a deterministic implementation")


def try_refused_call(
    error: Exception, case: Case, compiled: Callable[..., Any], arguments: Sequence[Any]
) -> tuple[bool, Failure | None]:
    """Compare a call that raises in eager; return whether that was possible, and the failure.

    The error has to be the program's own: the forward pass alone raises it again, in a fork even
    with the program's own tensors. The compiled call is made in a fork, which it may kill.
    """
    text = str(error)
    if isinstance(error, _SAYS_NOTHING) or any(words in text for words in _NO_KERNEL):
        return False, None
    if device_error(text):
        return False, None
    forks_here = can_fork()

    def error_again() -> str:
        copy = list if forks_here else copy_values
        try:
            run(case.function, arguments, backward=False, copy=copy)
        except Exception as again:
            return described(again)
        return ""

    def failure() -> dict[str, Failure | None]:
        note_eager_error(error)
        ending: Outcome | BaseException
        try:
            ending = run(compiled, case.inputs, backward=False)
        except Exception as raised:
            ending = innermost(raised)
        return {"failure": failure_of_comparison(judge(case, ending))}

    ask = Forks(workers=1, seconds=_SECONDS).ask if forks_here else answer_without_fork
    if ask(error_again).result != described(error):
        return False, None
    answer = ask(failure)
    is_compared = answer.is_done or answer.signal is not None
    return is_compared, failure_of_answer(answer) if is_compared else None


def _failure_of_forward(forward: Case, compiled: Callable[..., Any]) -> Failure | None:
    """Return the failure of the forward pass alone, which saves compiling the backward."""
    try:
        outcome = run(compiled, forward.inputs, backward=False)
    except Exception:
        return None  # The whole call raises the same error.
    return failure_of_comparison(judge(forward, outcome))


def failure_in_filled_memory(
    case: Case, compiled: Callable[..., Any], candidate: Candidate
) -> Iterator[FailingCandidate]:
    """Yield the graph in filled memory, if its result is proven to depend on that."""

    def is_wrong() -> bool:
        return failure_of_comparison(judge(case, _in_filled_memory(case, compiled))) is not None

    forks = Forks(workers=1, seconds=_SECONDS)
    answer = forks.ask(is_wrong)
    if answer.result is not True and answer.signal in (None, signal.SIGKILL):
        return
    # This compiles the graph once more, and calls it with several byte patterns.
    fault = of_changed_memory(candidate, forks).fault
    if fault is not None:
        failure = Failure(WRONG, fault.text, aspect="value", memory_was_filled=True)
        yield FailingCandidate(replace(candidate, guarded=True), failure)


def _in_filled_memory(case: Case, compiled: Callable[..., Any]) -> Outcome:
    memory = GuardedMemory()
    with memory.active_in([wrapper.module for wrapper in KEPT_WRAPPERS.wrappers]):
        return run(compiled, case.inputs, backward=case.backward, copy=memory.copies)


# --- Checks a graph that draws random numbers the way it is compiled without this tool ------------
#
# Under this tool, compiled code draws eager's random numbers, so that values can be compared.
# Without this tool, Inductor uses its own operations, which may fail too: return a wrong dtype or
# shape, or not compile.

# In a graph with more nodes, first only those that draw random numbers are compiled.
_FEW_NODES = 100


def failure_with_inductor_random_numbers(
    candidate: Candidate, *, always_whole: bool = False
) -> Iterator[FailingCandidate]:
    """Yield the graph with Inductor's random numbers, if it fails with them.

    Compiling a large graph once more takes long, and a fault is hardly ever outside the operations
    that draw the numbers. Unless `always_whole` is set, a large graph is compiled whole only if
    these operations fail.
    """
    own = replace(candidate, config={**candidate.config, "fallback_random": False})
    forks = Forks(workers=1, seconds=_SECONDS, uses_gpu=bool(candidate.device))
    function = as_function(candidate.module)
    if not forks.ask(lambda: draws_random_numbers(function, placed(candidate).inputs)).result:
        return
    is_large = candidate.size > _FEW_NODES and not has_transforms(candidate)
    if is_large and not always_whole and forks.ask(lambda: _are_well_alone(own)).result is True:
        return
    failure = Oracle(forks).failure(own)
    if failure is not None and failure.kind in (WRONG, ERROR):
        yield FailingCandidate(own, failure, "with Inductor's own random numbers")


def _are_well_alone(candidate: Candidate) -> bool:
    """In a fork, check whether the nodes that draw random numbers compile and agree."""
    recorded = record_values(candidate)
    apart = subgraph(
        recorded, nodes_that_draw(candidate.module, placed(candidate).inputs), separate=True
    )
    return apart is not None and examine(apart) is None


# --------------------------------------------------------------------------------------------------
# Faults that rounding hides: a kernel is wrong, and the graph's results are within rounding.
#
# A graph may amplify rounding so much that a wrong kernel in it does not show in the results. So
# the compiled graph is called once more, in a fork, where every buffer that a kernel writes is
# compared with the node that it should hold. Nothing is compiled for that, unless the wrapper is
# C++.


@dataclass(frozen=True)
class HiddenFault:
    """A kernel of the whole graph that is wrong beyond rounding.

    It counts as a failure only if a part of the graph is wrong on its own as well.
    """

    kernel: str
    text: str
    failures: tuple[FailingCandidate, ...] = ()


def hidden_fault(
    candidate: Candidate, compiled: Callable[..., Any], folder: Path
) -> HiddenFault | None:
    """Find the first wrong kernel of a graph whose results agree within rounding."""
    say("differences within rounding; comparing every kernel with eager")
    forks = Forks(seconds=_SECONDS)
    location = location_of_answer(forks.ask(lambda: first_wrong_own_kernel(candidate, compiled)))
    if not location.kernel:
        return None
    names, failure = run_forking(
        nodes_that_are_wrong, candidate, location.suspects, folder=folder, otherwise=([], None)
    )
    part = subgraph(record_values(candidate), names) if failure is not None else None
    if part is None:
        return HiddenFault(location.kernel, location.text)
    # The program's own results are within rounding; its buffer is not.
    shown = replace(failure, text=location.text, texts=(), where=(), values=())
    found = FailingCandidate(part, shown, location=location)
    return HiddenFault(location.kernel, location.text, (found,))


def nodes_that_are_wrong(
    candidate: Candidate, suspects: Sequence[str]
) -> tuple[list[str], Failure | None]:
    """Return the nodes of the kernel, or one other node, if they are wrong on their own."""
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
