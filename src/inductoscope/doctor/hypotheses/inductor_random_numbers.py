"""The program fails only with the random numbers that Inductor draws.

When it applies: The program fails without the tool, which makes compiled code draw random numbers
as eager does, and not with it; and its graphs draw random numbers.

What it runs: The program with every graph compiled with Inductor's own random numbers, too; then
without checks, with Inductor's random numbers and with eager's.

What it concludes: What is wrong with such a graph, if something is. Not a bug, if the program fails
with Inductor's numbers and not with eager's.

How sure: Proven by two runs that differ in nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import other_random_numbers
from inductoscope.doctor.finding import read_found
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.instructions import FOLDER, Instructions
from inductoscope.doctor.verdict import Verdict


def _applies(case: ProgramCase) -> bool:
    return case.ends_well and bool(case.random_operations)


def _examine(case: ProgramCase) -> Verdict | None:
    return _in_whole_graphs(case) or _in_the_program(case)


def _in_whole_graphs(case: ProgramCase) -> Verdict | None:
    """What the first run looked for in a large graph's single nodes may need the whole of it."""
    instructions = replace(case.instructions, random_in_whole_graphs=True)
    again = case.runs.again(instructions, "compiling every graph with Inductor's random numbers")
    found = read_found(again.folder / FOLDER)
    if found is None:
        return None
    case.proof.prove_and_help(found, case.runs, calls=case.instructions.calls)
    if not case.proof.is_verified:
        case.proof.forget()
        return None
    case.found = found
    return case.proof.verdict_on(found)


def _in_the_program(case: ProgramCase) -> Verdict | None:
    run = case.runs.again(
        Instructions(calls=0, investigate=False, random_as_eager=False),
        "running the program with random numbers as Inductor draws them",
    )
    if not run.failed:
        return None
    control = case.runs.again(
        Instructions(calls=0, investigate=False), "running it without checks, with eager's"
    )
    if control.ending.exit_code != 0:
        return None
    result = other_random_numbers(case, is_shown=True)
    result.add(
        "fails with the random numbers that Inductor draws, not with those of eager", "two runs"
    )
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
