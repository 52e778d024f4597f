"""A function is compiled again for every value of something that changes in a loop.

When it applies: The program ended well. One line of it called a function that was recompiled until
torch gave up, or at least 5 times for a number, and the compiled versions were hardly called.

What it runs: If torch has a setting for it, the program as it is and with the setting, twice each
with empty caches.

What it concludes: Slow, with what changes, where, how many seconds went into the compiles, and the
setting if the program compiled less with it.

How sure: Proven: the recompiles were counted.
"""

from __future__ import annotations

from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.outside.slow_program import as_workaround, trials_in
from inductoscope.doctor.outside.slowness import WastedCompiles, wasted_compiles
from inductoscope.doctor.verdict import Verdict
from inductoscope.profiling.advice.flips import flips_for
from inductoscope.profiling.advice.trials import COLD_RUNS, Budget, try_cold
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v
from inductoscope.vocabulary.counting import count_of


def _applies(case: ProgramCase) -> bool:
    return case.ends_well and any(wasted_compiles(case.recording))


def _examine(case: ProgramCase) -> Verdict | None:
    found = max(wasted_compiles(case.recording), key=lambda one: one.seconds)
    result = Verdict(v.SLOW, stages.DYNAMO, _summary(found), "proven")
    result.culprit.function = found.compiles[0].function
    result.culprit.source = found.finding.source or None
    for text in found.finding.evidence:
        result.add(text, "reported by Dynamo in the first run")
    result.add(
        f"{count_of(len(found.compiles), 'recompile')}: {found.seconds:.1f} s",
        "counted in the first run",
    )
    flips = [flip for flip in flips_for(case.recording) if flip.avoids_compiles]
    if flips and not case.takes_long:
        case.say("a setting may avoid the recompiles; running the program with it")
        with trials_in(case) as folder:
            trials = try_cold(case.runs.command, flips, folder, Budget(), case.say)
        case.runs.count += COLD_RUNS * (1 + len(flips))
        for trial in trials:
            result.add(f"{trial.flip.change}: {trial.how}", "runs of the program in turns")
            if trial.helps and result.workaround is None:
                result.workaround = as_workaround(trial)
    return result


def _summary(found: WastedCompiles) -> str:
    limit = f" until torch's {found.limit} was reached" if found.limit else ""
    return (
        f"{found.compiles[0].function} is compiled again on every call{limit}, "
        f"{count_of(len(found.compiles), 'time')} in {found.seconds:.1f} s, because "
        f"{found.guard.about} changes. {found.guard.what_to_change}"
    )


HYPOTHESIS = Hypothesis(_applies, _examine)
