"""A function is compiled again for every value of something that changes in a loop.

When it applies: The program ended well. One line of it called a function that was recompiled at
least 8 times for a value, the compiled versions were hardly called, and the compiles took most of
the run.

What it runs: The program without the tool. If torch has a setting for it, the program as it is and
with the setting, twice each with empty caches, and once more to check its results with the setting.

What it concludes: Slow, with what changes, where, how many seconds went into the compiles, and the
setting if the program compiled less with it.

How sure: Proven if the setting helps; otherwise likely, because a longer run may reuse what this
one compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.slowness import (
    TIME_FOR_TRIALS,
    WastedCompiles,
    offer,
    trials_in,
    wasted_compiles,
)
from inductoscope.doctor.verdict import Verdict
from inductoscope.profiling.flip_trials import Budget, try_cold
from inductoscope.profiling.flips import Flip, flips_for
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of


def _applies(case: ProgramCase) -> bool:
    return case.ends_well and not case.takes_long and any(_wasted(case))


def _wasted(case: ProgramCase) -> Iterator[WastedCompiles]:
    return wasted_compiles(case.recording, case.first.ending.seconds)


def _examine(case: ProgramCase) -> Verdict | None:
    if case.runs.without_tool_once().ending.exit_code != 0:
        return None
    found = max(_wasted(case), key=lambda one: one.seconds)
    result = Verdict(v.SLOW, stages.DYNAMO, _summary(found), "likely")
    result.culprit.function = found.compiles[0].function
    result.culprit.source = found.finding.source or None
    for text in found.finding.evidence:
        result.add(text, "reported by Dynamo in the first run")
    result.add(
        f"{count_of(len(found.compiles), 'recompile')}: {found.seconds:.1f} s",
        "counted in the first run",
    )
    flips = [flip for flip in flips_for(case.recording) if flip.avoids_compiles]
    if flips:
        _try(case, flips, result)
    return result


def _try(case: ProgramCase, flips: Sequence[Flip], result: Verdict) -> None:
    case.say("a setting may avoid the recompiles; running the program with it")
    budget = Budget(total=TIME_FOR_TRIALS)
    with trials_in(case) as folder:
        tried = try_cold(case.runs.command, flips, folder, budget, case.say, case.runs.stdin)
    case.runs.count += tried.runs
    for trial in tried.trials:
        result.add(f"{trial.flip.change}: {trial.how}", "runs of the program in turns")
    if tried.advice:
        result.confidence = "proven"
        offer(case, tried.advice[0], result)


def _summary(found: WastedCompiles) -> str:
    limit = f" until torch's {found.limit} was reached" if found.limit else ""
    return (
        f"{found.compiles[0].function} was compiled again for "
        f"{count_of(len(found.compiles), 'value')} of {found.guard.about}{limit}, in "
        f"{found.seconds:.1f} s; {count_of(found.calls, 'call')} ran compiled. "
        f"{found.guard.what_to_change}"
    )


HYPOTHESIS = Hypothesis(_applies, _examine)
