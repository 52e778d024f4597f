"""The program fails because a result lies otherwise in memory than in eager.

When it applies: Some results have other strides than in eager, or share memory with other tensors,
though every value is right; and the program fails, or a function gives a different result from its
Python code. Not in a program that was ended: no run of it would show that it ends well.

What it runs: The program in eager, and without the tool. Then the program with those results laid
out as in eager, all of them first, then ever fewer. If it ends well with them, once more to
investigate the graph that gives the results that matter, and what a failure inside the program is
proven with.

What it concludes: A wrong result, if the program ends well with the results laid out as in eager.

How sure: That the program needs eager's layout is proven by these runs. The place is as sure as the
way in which it was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.delta_debugging import smallest_subset
from inductoscope.doctor.finding import read_found
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.instructions import FOLDER, Instructions
from inductoscope.doctor.program_run import ProgramRun
from inductoscope.doctor.runs import functions_that_differ
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.entities import NotedDifference
from inductoscope.model.fold import load
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

# Runs of the program to find out which of several results matter.
_MOST_RUNS = 12

_ASPECTS = {"stride": "strides", "sharing": "shared memory"}


def _applies(case: ProgramCase) -> bool:
    fails = case.first.failed or bool(case.functions_that_differ)
    return case.found is None and fails and not case.first.was_ended and bool(_notes(case))


def _notes(case: ProgramCase) -> list[NotedDifference]:
    return [note for note in case.noted if note.aspect in _ASPECTS]


def _examine(case: ProgramCase) -> Verdict | None:
    if case.first.failed and not _fails_compiled_only(case):
        return None
    needed = _needed(case)
    if not needed:
        return None
    case.needed_layout = needed
    run = case.runs.again(
        replace(case.instructions, counts=tuple(needed)),
        "it ends well with them; looking for what lays them out differently",
    )
    case.found = read_found(run.folder / FOLDER)
    if case.found is None:
        result = _without_place(case, needed)
    else:
        case.proof.prove_and_help(case.found, case.runs, calls=case.instructions.calls)
        result = case.proof.verdict_on(case.found)
    words = " and ".join(sorted({_ASPECTS[note.aspect] for note in needed}))
    places = ", ".join(f"{note.where} of compile {note.compile}" for note in needed[:4])
    result.summary += ", and the program needs it as in eager"
    get = "gets" if len(needed) == 1 else "get"
    result.add(f"the program ends well if {places} {get} eager's {words}", "a run of the program")
    return result


def _fails_compiled_only(case: ProgramCase) -> bool:
    """Whether it fails each time when compiled, and not in eager."""
    in_eager = case.runs.in_eager_once().failed
    return not in_eager and case.runs.without_tool_once().failed


def _needed(case: ProgramCase) -> list[NotedDifference]:
    """The fewest results that have to be laid out as in eager; none if that does not help."""
    notes = _notes(case)
    if not _ends_well(case, notes):
        return []
    left = _MOST_RUNS

    def first(attempts: Sequence[Sequence[NotedDifference]]) -> int | None:
        nonlocal left
        for number, attempt in enumerate(attempts):
            left -= 1
            if left >= 0 and _ends_well(case, attempt):
                return number
        return None

    return smallest_subset(notes, first)


def _ends_well(case: ProgramCase, notes: Sequence[NotedDifference]) -> bool:
    instructions = Instructions(calls=0, investigate=False, as_in_eager=tuple(notes))
    results = count_of(len(notes), "result")
    return is_well(case.runs.again(instructions, f"running it with {results} laid out as in eager"))


def is_well(run: ProgramRun) -> bool:
    """Whether a run ended well, and every function gave what its Python code gives."""
    return run.ending.exit_code == 0 and not functions_that_differ(load(run.folder))


def _without_place(case: ProgramCase, needed: Sequence[NotedDifference]) -> Verdict:
    """The investigation did not see the difference again."""
    result = Verdict(
        v.WRONG_RESULT,
        stages.NO_STAGE,
        "The program fails because a compiled result is laid out in memory differently from eager; "
        f"the cause is unknown: {needed[0].text}",
        culprit=Culprit(source=case.last_compiled),
    )
    for note in needed[:4]:
        result.add(note.text, f"compile {note.compile}, compared with eager")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
