"""The ways in which a failure that the program showed may show again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inductoscope.doctor.failure import ERROR, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.memory_evidence import may_depend_on_memory
from inductoscope.doctor.search.plain_compile import compiled_plainly
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.flows import PLAIN


@dataclass(frozen=True)
class WayToShow:
    """A candidate that may show the failure, and what to say while it is tried."""

    text: str
    candidate: Candidate


def ways_to_show(whole: Candidate, flow: str, failure: Failure) -> Iterator[WayToShow]:
    """The candidate as it may fail alone, the cheapest to try first."""
    alone = replace(whole, earlier=None)
    if flow:
        text = f"trying the same graph with {PLAIN[flow]} ({alone.size} nodes)"
        yield WayToShow(text, compiled_plainly(alone))
        yield WayToShow(f"reproducing it with {flow} in a fork", alone)
    else:
        yield WayToShow(f"reproducing it in a fork ({alone.size} nodes)", alone)
    if whole.earlier is not None:
        yield WayToShow("it may need an earlier call; trying with that call", whole)
    if may_depend_on_memory(whole, failure):
        text = "it may depend on what lies in memory; trying with NaN around every buffer"
        yield WayToShow(text, replace(compiled_plainly(alone), guarded=True))


def is_again(again: Failure, first: Failure) -> bool:
    """Whether the graph alone shows what the program showed.

    An exception has to be the same one: the graph may not be one that Dynamo takes. A kernel that
    Triton refuses may be refused with another exception, depending on which process compiles it.
    """
    if first.kind == again.kind == ERROR and first.stage == again.stage == stages.TRITON_COMPILE:
        return True
    is_alike = first.kind != ERROR and again.kind == first.kind
    return is_alike or again.is_same_as(first)
