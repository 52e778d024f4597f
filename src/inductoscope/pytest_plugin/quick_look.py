"""Names the kernel and the operation of a wrong result from one more call: nothing is compiled."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from inductoscope.doctor.compare.kept_wrappers import KEPT
from inductoscope.doctor.compare.values import copy_values
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.own_kernels import first_wrong_own_kernel
from inductoscope.doctor.search.wrong_result_location import places_of, source_lines
from inductoscope.pytest_plugin.kept_calls import KeptSuiteCall
from inductoscope.vocabulary.frames import shorten


@dataclass(frozen=True)
class WrongPlace:
    """Where a graph goes wrong, as far as it is known."""

    stage: str = ""
    # The operations of the kernel, one of which is to blame.
    operations: tuple[str, ...] = ()
    kernel: str = ""
    source: str = ""
    text: str = ""
    how: str = ""


def what_is_wrong(call: KeptSuiteCall, *, backward: bool) -> WrongPlace:
    """The first kernel whose result is not what its node computes; a source line in any case."""
    graph = call.graph
    candidate = Candidate(
        graph.module,
        tuple(copy_values(call.inputs)),
        backward=backward,
        dynamic=graph.dynamic,
        options=graph.options,
    )
    lines = source_lines(candidate)
    only = shorten(lines[0]) if len(lines) == 1 else ""
    # A wrapper in C++ would have to be compiled again; one out of a cache is not known.
    can_look = KEPT.wrappers and not any(hasattr(w.module, "inductor_entry") for w in KEPT.wrappers)
    if not can_look or graph.compiled is None:
        return WrongPlace(source=only)
    with contextlib.suppress(Exception):
        found = first_wrong_own_kernel(candidate, graph.compiled)
        named = [node for node in candidate.operations if node.name in found.suspects]
        places = places_of(named)
        return WrongPlace(
            found.stage,
            tuple(dict.fromkeys(found.names)),
            found.kernel,
            shorten(places[-1]) if places else only,
            found.text,
            found.how if found.kernel else "",
        )
    return WrongPlace(source=only)


def forget_wrappers() -> None:
    """Let go of all that was kept for a look at kernels: the test is over."""
    KEPT.wrappers.clear()
