"""Writes the reproducer of the smallest graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.handover import Found
from inductoscope.doctor.location import Location
from inductoscope.doctor.repro.failure_script import expected_output, script_text, title_of
from inductoscope.doctor.repro.own_passes import own_passes_text
from inductoscope.doctor.repro.replaced_functions import check_tuned_operators, replaced_parts_text
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.needed_state import needed_state, repeatable
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.plain_compile import compiled_like, special_flow
from inductoscope.errors import ToolFailure
from inductoscope.vocabulary import stages


@dataclass(frozen=True)
class ScriptSubject:
    """What a script is to show."""

    smallest: Candidate
    # The program's own graph, and the way on which that reaches Inductor.
    own: Candidate
    flow: str
    failure: Failure
    location: Location


def write_script(
    subject: ScriptSubject, found: Found, oracle: Oracle, say: Callable[[str], None]
) -> None:
    """Put the script, or why there is none, into what is found."""
    smallest, failure = subject.smallest, subject.failure
    try:
        if not all([*smallest.recipes, *smallest.earlier_recipes]):
            raise ToolFailure("a script cannot hold an input of this size or type")
        if subject.location.stage == stages.AUTOTUNE:
            check_tuned_operators(smallest.module)
        passes = own_passes_text() if subject.location.own_pass else ""
        replaced, found.not_held = replaced_parts_text(found.replaced)
        candidate = _as_in_program(subject, repeatable(smallest, oracle.forks), found, oracle, say)
        title = title_of(failure, candidate.flow, found.operations)
        found.script = script_text(
            candidate,
            failure,
            title,
            state=needed_state(candidate, failure, oracle),
            own_passes="\n\n\n".join(filter(None, [passes, replaced])),
        )
    except ToolFailure as error:
        found.no_script = str(error)
    found.expected_output = expected_output(failure)


def _as_in_program(
    subject: ScriptSubject,
    smallest: Candidate,
    found: Found,
    oracle: Oracle,
    say: Callable[[str], None],
) -> Candidate:
    """The way that the program takes, if it fails there as well."""
    way = special_flow(smallest)
    found.shows_with_torch_compile = not way
    if way == subject.flow or smallest.guarded:
        return smallest  # A script cannot fill the buffers of a C++ wrapper.
    candidate = compiled_like(smallest, subject.own)
    say(f"trying the smallest graph with {subject.flow}")
    again = oracle.failure(candidate, label=" in full")
    return candidate if again is not None and again.is_same_as(subject.failure) else smallest
