"""Hypotheses on what is wrong with a program, in the order in which they are examined.

A hypothesis is a function that examines a case: None says that it does not apply, or is not the
cause. The first that reaches a verdict ends the examination, so the order matters: a hypothesis may
assume that all before it are ruled out. They stand in files by what they ask, and a docstring says
when each applies, what it runs, what it concludes and how sure that is.
"""

from __future__ import annotations

from collections.abc import Callable

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses import (
    compiler_levels,
    ends_well,
    found,
    packages,
    program_itself,
    slow,
    stalled,
)
from inductoscope.doctor.verdict import Verdict
from inductoscope.errors import ToolFailure

Hypothesis = Callable[[ProgramCase], Verdict | None]

HYPOTHESES: tuple[Hypothesis, ...] = (
    stalled.stuck_choices,
    stalled.time_limit,
    packages.broken_guards,
    program_itself.refused_nan,
    packages.package_from_elsewhere,
    # Before a place is looked for where memory ran out.
    program_itself.out_of_memory,
    # The first run found nothing inside the program: investigate at the place of the failure.
    found.died_or_stalled,
    # Before further calls of a program that fails because it is slow are checked.
    slow.slower_than_it_allows,
    found.unchecked_call,
    found.other_error,
    # A failure was found inside the program.
    found.machine_cannot_compile,
    found.hangs_in_eager,
    found.quick_answer,
    found.proven_failure,
    found.dies_in_eager,
    found.only_under_the_tool,
    found.unproven_failure,
    # No compiled graph is known to be wrong.
    program_itself.input_withheld,
    compiler_levels.unexamined_failure,
    compiler_levels.compile_refused,
    stalled.never_ends,
    program_itself.undetermined_result,
    # The program fails with every compiled graph right.
    packages.package_not_compared,
    program_itself.fails_in_eager,
    program_itself.rounding,
    compiler_levels.memory_layout,
    compiler_levels.wrong_capture,
    # Counted in the first run, so before hypotheses that need measurements.
    slow.compiled_for_every_value,
    # The program ended well.
    packages.two_cpp_libraries,
    slow.slow_compile,
    slow.slower_than_eager,
    ends_well.clean,
    # Conditions of a checked run, given back one at a time.
    ends_well.fails_without_the_tool,
    ends_well.inductor_random_numbers,
    ends_well.cached_results,
    ends_well.damaged_cache,
    ends_well.cuda_graphs,
    ends_well.given_back,
    ends_well.hidden_by_the_tool,
    # It fails, and rounding does not explain it.
    program_itself.fails_now_and_then,
    compiler_levels.dynamo_alone,
    compiler_levels.aot_alone,
    slow.slow_compile_and_failure,
    program_itself.random_numbers,
    program_itself.likely_rounding,
    program_itself.unknown_cause,
)


def first_verdict(case: ProgramCase) -> Verdict:
    """Return the verdict of the first hypothesis that reaches one."""
    for hypothesis in HYPOTHESES:
        verdict = hypothesis(case)
        if verdict is not None:
            return verdict
    raise ToolFailure("No hypothesis fits how the program ended.")
