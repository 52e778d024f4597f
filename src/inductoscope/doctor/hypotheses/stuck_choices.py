"""Autotuning waits for choices that never finish.

When it applies: The program stalled, and kernels that autotuning compiles or benchmarks have not
finished.

What it runs: A stuck kernel alone, waiting ones if they separate one condition from another, and
the program without the stuck choices.

What it concludes: A hang in autotuning, the condition that stuck choices share, and a filter that
excludes them.

How sure: Proven if a kernel is stuck alone too, otherwise likely.
"""

from __future__ import annotations

from inductoscope.doctor.autotune_hang import (
    add_repro,
    find_filter,
    look_further,
    try_kernel_alone,
    verdict_on_stuck,
)
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.hangs.choices.analysis import analyse
from inductoscope.hangs.choices.stuck_choices import stuck_choices


def _applies(case: ProgramCase) -> bool:
    return case.first.stalled


def _examine(case: ProgramCase) -> Verdict | None:
    stuck = stuck_choices(case.first.folder)
    if stuck is None:
        return None
    case.say(f"choices: {len(stuck.stuck)} stuck, {len(stuck.finished)} finished")
    known = look_further(analyse(stuck), case.say)
    trial, why_not = try_kernel_alone(known, case.proof.place, case.say)
    result = verdict_on_stuck(known, trial, why_not)
    add_repro(result, trial, case.proof.script)
    if case.proof.with_workaround:
        result.workaround, told = find_filter(known, case.runs.again, case.proof.place)
        for line in told:
            result.add(line, "one run of the program")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
