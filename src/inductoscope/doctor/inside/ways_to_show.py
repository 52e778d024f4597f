"""The ways in which a failure that the program showed may show again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.memory_evidence import may_depend_on_memory
from inductoscope.doctor.search.plain_compile import compiled_plainly
from inductoscope.vocabulary.flows import PLAIN


@dataclass(frozen=True)
class Way:
    """A candidate that may show the failure, and what to say while it is tried."""

    text: str
    candidate: Candidate


def ways_to_show(whole: Candidate, flow: str, failure: Failure) -> Iterator[Way]:
    """The candidate as it may fail alone, the cheapest to try first."""
    alone = replace(whole, earlier=None)
    if flow:
        text = f"trying the same graph with {PLAIN[flow]} ({alone.size} nodes)"
        yield Way(text, compiled_plainly(alone))
        yield Way(f"reproducing it with {flow} in a fork", alone)
    else:
        yield Way(f"reproducing it in a fork ({alone.size} nodes)", alone)
    if whole.earlier is not None:
        yield Way("it may need an earlier call; trying with that call", whole)
    if may_depend_on_memory(whole, failure):
        text = "it may depend on what lies in memory; trying with NaN around every buffer"
        yield Way(text, replace(compiled_plainly(alone), guarded=True))
