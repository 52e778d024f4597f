"""What may be wrong with a program, in the order in which it is examined.

A hypothesis is one file that ends with its `HYPOTHESIS`, and one line in `HYPOTHESES`. The first
that reaches a verdict ends the examination, so the order matters: a hypothesis may assume that
all before it are ruled out.
"""

from __future__ import annotations

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses import (
    aot_alone,
    broken_guards,
    clean,
    compile_refused,
    compiled_for_every_value,
    cuda_graphs,
    died_or_stalled,
    dies_in_eager,
    dynamo_alone,
    fails_in_eager,
    fails_now_and_then,
    hangs_in_eager,
    hidden_by_the_tool,
    inductor_random_numbers,
    input_withheld,
    likely_random_numbers,
    likely_rounding,
    machine_cannot_compile,
    memory_layout,
    never_ends,
    only_under_the_tool,
    package_from_elsewhere,
    package_not_compared,
    proven_failure,
    quick_answer,
    refused_nan,
    rounding,
    slow_compile,
    slow_compile_and_failure,
    slower_than_eager,
    stuck_choices,
    time_limit,
    two_cpp_libraries,
    unchecked_call,
    undetermined_result,
    unexamined_failure,
    unknown_cause,
    unproven_failure,
    wrong_capture,
)
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.errors import ToolFailure

HYPOTHESES: tuple[Hypothesis, ...] = (
    stuck_choices.HYPOTHESIS,
    time_limit.HYPOTHESIS,
    broken_guards.HYPOTHESIS,
    refused_nan.HYPOTHESIS,
    package_from_elsewhere.HYPOTHESIS,
    # The first run found nothing inside the program: investigate where the failure may be.
    died_or_stalled.HYPOTHESIS,
    unchecked_call.HYPOTHESIS,
    # A failure was found inside the program.
    machine_cannot_compile.HYPOTHESIS,
    hangs_in_eager.HYPOTHESIS,
    quick_answer.HYPOTHESIS,
    proven_failure.HYPOTHESIS,
    dies_in_eager.HYPOTHESIS,
    only_under_the_tool.HYPOTHESIS,
    unproven_failure.HYPOTHESIS,
    # No compiled graph is known to be wrong.
    input_withheld.HYPOTHESIS,
    unexamined_failure.HYPOTHESIS,
    compile_refused.HYPOTHESIS,
    never_ends.HYPOTHESIS,
    undetermined_result.HYPOTHESIS,
    memory_layout.HYPOTHESIS,
    wrong_capture.HYPOTHESIS,
    # Counted in the first run, so before what has to be measured.
    compiled_for_every_value.HYPOTHESIS,
    # The program ended well.
    two_cpp_libraries.HYPOTHESIS,
    slow_compile.HYPOTHESIS,
    slower_than_eager.HYPOTHESIS,
    clean.HYPOTHESIS,
    inductor_random_numbers.HYPOTHESIS,
    cuda_graphs.HYPOTHESIS,
    hidden_by_the_tool.HYPOTHESIS,
    # The program fails with every compiled graph right.
    package_not_compared.HYPOTHESIS,
    fails_in_eager.HYPOTHESIS,
    fails_now_and_then.HYPOTHESIS,
    # Before rounding, whose run uses Dynamo as well.
    dynamo_alone.HYPOTHESIS,
    rounding.HYPOTHESIS,
    aot_alone.HYPOTHESIS,
    slow_compile_and_failure.HYPOTHESIS,
    likely_random_numbers.HYPOTHESIS,
    likely_rounding.HYPOTHESIS,
    unknown_cause.HYPOTHESIS,
)


def verdict_of_first(case: ProgramCase) -> Verdict:
    """The verdict of the first hypothesis that reaches one."""
    for hypothesis in HYPOTHESES:
        if hypothesis.applies(case):
            verdict = hypothesis.examine(case)
            if verdict is not None:
                return verdict
    raise ToolFailure("No hypothesis fits how the program ended.")
