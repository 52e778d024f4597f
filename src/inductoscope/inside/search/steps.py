"""The search in three steps: verify that a failure shows alone, shrink what shows it, locate it.

The doctor's investigation uses the search through these. Each step takes values and returns one.

A *candidate* is a graph with inputs and the way to compile it. A *trial* is one run of a candidate,
in a fork of this process or on a worker. The *oracle* has candidates tried and remembers answers.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from inductoscope.doctor.failure import ERROR, HANG, NAN, SIGNAL, WRONG, Failure, Location
from inductoscope.inside.search.candidate import (
    Candidate,
    compiled_plainly,
    healthy_candidate,
    special_flow,
)
from inductoscope.inside.search.location import (
    Look,
    OnPlace,
    first_look,
    kernel_work,
    locate_error,
    locate_wrong_result,
    look_closely,
    worth_trying,
    wrong_kernel_in,
)
from inductoscope.inside.search.memory_evidence import MemoryEvidence, may_depend_on_memory
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.shrink import (
    PASSES_AROUND_GRAPH,
    SHRINK_PASSES,
    ShrinkProgress,
    Subject,
    apply_passes,
    with_exact_inputs,
)
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.stages import PLAIN

Say = Callable[[str], None]

# How long to shrink the graph; a candidate that hangs costs more than one that does not.
_SHRINK_SECONDS, _SHRINK_SECONDS_HANG = 900.0, 90.0
# Stages in which a healthy candidate runs a native compiler, or a call.
_NATIVE = (stages.CPP_COMPILE, stages.TRITON_COMPILE, stages.WRAPPER, stages.RUNTIME)


# --- verify ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verified:
    """The result of reproducing a failure with the graph alone, and the flow that shows it."""

    candidate: Candidate
    # The failure of the last flow that was tried.
    failure: Failure | None = None
    is_shown: bool = False
    # Whether plain torch.compile gives right results, if the program uses another flow.
    is_right_plainly: bool = False
    look: Look | None = None


def verify(
    candidate: Candidate, failure: Failure, oracle: Oracle, say: Say, on_place: OnPlace
) -> Verified:
    """Reproduce the failure in a fork, trying one flow after the other.

    `on_place` is called as soon as the failure is located.
    """
    flow, is_right_plainly = special_flow(candidate), False
    found = Verified(candidate)

    def tell(again: Failure, location: Location) -> None:
        if is_again(again, failure):
            on_place(again, location)

    for text, way in _ways_to_show(candidate, flow, failure):
        say(text)
        found = _shown_by(way, failure, oracle, tell)
        if found.is_shown and found.failure is not None:
            _expect(found.failure, way, oracle)
            # A right result without filled memory was right by chance.
            return replace(found, is_right_plainly=is_right_plainly and not way.guarded)
        if flow and not special_flow(way):
            could_not_be_tried = oracle.mistakes or oracle.eager_error
            is_right_plainly = found.failure is None and not could_not_be_tried
    return replace(found, candidate=candidate, is_right_plainly=is_right_plainly)


def _expect(failure: Failure, candidate: Candidate, oracle: Oracle) -> None:
    """Have the oracle compile no further, and wait no longer, than this failure needs."""
    if oracle.forks.patience is not None:
        oracle.forks.patience.stage = failure.stage
    if failure.kind in (ERROR, HANG) and not candidate.backward:
        oracle.stage = failure.stage  # "" or runtime for all that is not a compile.


def _ways_to_show(whole: Candidate, flow: str, failure: Failure) -> Iterator[tuple[str, Candidate]]:
    """Yield candidates that may show the failure, cheapest first, each with its progress text."""
    alone = replace(whole, earlier=None)
    if flow:
        text = f"trying the same graph with {PLAIN[flow]} ({alone.size} nodes)"
        yield text, compiled_plainly(alone)
        yield f"reproducing it with {flow} in a fork", alone
    else:
        yield f"reproducing it in a fork ({alone.size} nodes)", alone
    if whole.earlier is not None:
        yield "it may need an earlier call; trying with that call", whole
    if may_depend_on_memory(whole, failure):
        text = "it may depend on what lies in memory; trying with NaN around every buffer"
        yield text, replace(compiled_plainly(alone), guarded=True)


def _shown_by(way: Candidate, failure: Failure, oracle: Oracle, tell: OnPlace) -> Verified:
    """Run a candidate again, and locate a wrong result or the kernel to blame for a crash."""
    look, again = None, None
    if failure.kind in (WRONG, NAN):
        look = first_look(way, failure, oracle, tell)
        again = look.failure
    elif failure.kind == SIGNAL and failure.stage == stages.RUNTIME:
        # An earlier kernel than the one that kills the process may be to blame.
        answers = dict(oracle.as_known([way, kernel_work(way)]))
        again = answers[0]
        if again is not None:
            tell(again, wrong_kernel_in(answers[1]))
    else:
        # A healthy candidate beside one that hangs shows what its compiler takes.
        is_native_hang = failure.kind == HANG and failure.stage in _NATIVE
        healthy = healthy_candidate(way) if is_native_hang else None
        again = dict(oracle.as_known([way] if healthy is None else [way, healthy]))[0]
    is_shown = again is not None and is_again(again, failure)
    return Verified(way, again, is_shown, look=look)


def is_again(again: Failure, first: Failure) -> bool:
    """Check whether the graph alone shows the program's failure.

    An exception has to be the same one: the graph may not be one that Dynamo takes. A kernel that
    Triton refuses may be refused with another exception, depending on which process compiles it.
    """
    if first.kind == again.kind == ERROR and first.stage == again.stage == stages.TRITON_COMPILE:
        return True
    is_alike = first.kind != ERROR and again.kind == first.kind
    return is_alike or again.is_same_as(first)


def place_of(look: Look, verified: Verified, oracle: Oracle) -> Location:
    """Locate a wrong result in the whole graph, after the first look."""
    failure = verified.failure
    if failure is None or failure.aspect == look.aspect:
        return look.location
    return locate_wrong_result(verified.candidate, oracle.forks, failure.aspect)


# --- shrink ---------------------------------------------------------------------------------------


def shrink(verified: Verified, location: Location, oracle: Oracle) -> Iterator[ShrinkProgress]:
    """Simplify the candidate step by step; the last result is the smallest that fails."""
    failure = verified.failure
    assert failure is not None
    longest = _SHRINK_SECONDS_HANG if failure.kind == HANG else _SHRINK_SECONDS
    oracle.deadline = time.monotonic() + longest
    suspects = _suspects(verified, failure, location)
    subject = Subject(verified.candidate, failure, suspects, location.of_kernel)
    # A trial that hangs takes longer than one that fails.
    at_once = PASSES_AROUND_GRAPH if failure.kind == HANG else ()
    yield from apply_passes(subject, oracle, SHRINK_PASSES, at_once)
    oracle.deadline = math.inf


def _suspects(verified: Verified, failure: Failure, location: Location) -> list[Sequence[str]]:
    """Return sets of nodes that may suffice to show the failure, strongest suspicion first."""
    whole, look = verified.candidate, verified.look
    found: list[Sequence[str]] = []
    if look is None:
        names = [node.name for node in whole.operations]
        found += [[name] for name in names if name == failure.detail][:1]
    elif whole.counts:
        # Many operations lay out results differently on their own; only the outputs count.
        found.append([node.name for node in whole.module.graph.output_node().all_input_nodes])
    if look is not None:
        found += [[name] for name in worth_trying(whole, look.wrong_alone)]
    return [*found, location.suspects] if location.suspects else found


# --- locate ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Located:
    """The location of the failure in the smallest graph, and the evidence from memory."""

    # The graph in question: the whole one again, if the smallest does not show the failure.
    candidate: Candidate
    # The failure of the smallest graph, compiled in full; None if it does not show.
    failure: Failure | None
    location: Location
    memory: MemoryEvidence = field(default_factory=MemoryEvidence)


def locate(smallest: Candidate, whole: Candidate, failure: Failure, oracle: Oracle) -> Located:
    """Locate the failure in the smallest graph, where little else can be wrong.

    Compiled in full, the smallest graph may not show the failure any more, because a slow candidate
    was mistaken for a hang, or the failure is intermittent. Then the whole graph is examined.
    """
    oracle.stage = ""
    if failure.kind in (WRONG, NAN):
        look = look_closely(smallest, failure, oracle)
        final, candidate = _same(look.failure, failure), smallest
        if final is None:
            candidate = with_exact_inputs(whole)
            look = look_closely(candidate, failure, oracle)
        return Located(candidate, final, look.location, look.memory)
    with _surely(oracle):
        final = _same(oracle.failure(smallest, label=" in full"), failure)
    candidate = smallest if final is not None else with_exact_inputs(whole)
    return Located(candidate, final, locate_error(candidate, final or failure, oracle.forks))


def _surely(oracle: Oracle) -> contextlib.AbstractContextManager[None]:
    """Wait longer inside the block before a fork counts as hung."""
    patience = oracle.forks.patience
    return contextlib.nullcontext() if patience is None else patience.to_be_sure()


def _same(final: Failure | None, failure: Failure) -> Failure | None:
    return final if final is not None and final.is_same_as(failure) else None


def in_filled_memory(located: Located, failure: Failure, oracle: Oracle) -> Candidate | None:
    """Return the candidate with NaN around its buffers, if it reads that and fails alike."""
    if located.memory.fault is None:
        return None
    guarded = replace(compiled_plainly(located.candidate), guarded=True)
    return guarded if _same(oracle.failure(guarded, label=" in full"), failure) else None
