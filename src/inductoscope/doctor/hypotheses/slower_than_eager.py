"""Compiled code is slower than the same code in eager.

When it applies: The program ended well, and the first run makes one suspicious: a graph took longer
than in eager, or many small parts of broken graphs are called often.

What it runs: The program without checks, half of the calls of a compiled function in eager. On a
GPU a call counts as long as it takes to enqueue or to run, whichever is longer. If eager is clearly
faster, the program with changes that may help, and all of it once more. Then once
more with checks, with the change that helps.

What it concludes: Slow, if a function takes at least 1.2 times as long as in eager, beyond noise,
and what is lost matters: per call, in the run, and in all compiled calls together. A call ends with
its backward pass on the CPU; nothing is said about calls that share theirs, nor about a GPU's.

How sure: Proven by calls in turns. A cause is named if a change of it helps; otherwise it is not
known, and what rules found in the function is evidence.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from inductoscope import verdicts as v
from inductoscope.analysis.rules import SLOWNESS, diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.slowness import (
    LONGEST_TO_TIME,
    TIME_FOR_TRIALS,
    may_be_slower,
    offer,
    trials_in,
)
from inductoscope.doctor.verdict import Verdict
from inductoscope.profiling.flip_trials import (
    AgainstEager,
    Budget,
    FlipTrial,
    TrialResults,
    try_flips,
)
from inductoscope.profiling.flips import flips_for, predicted_alone
from inductoscope.profiling.statistics import SLOWER
from inductoscope.torch_facts import stages

# A function is slow if it takes so many times as long as in eager; nobody minds less.
_SLOW = 1.2
# Nor if it loses less than so many seconds per call and per run, or less of the run than this.
_LEAST_PER_CALL = 200e-6
_LEAST_PER_RUN = 5e-3
_LEAST_SHARE = 0.05


def _applies(case: ProgramCase) -> bool:
    is_short = case.first.ending.seconds < LONGEST_TO_TIME
    return case.ends_well and is_short and may_be_slower(case.recording)


def _examine(case: ProgramCase) -> Verdict | None:
    if case.runs.without_tool_once().ending.exit_code != 0:
        return None
    case.say("compiled calls may be slower than eager; timing both in turns")
    possible = flips_for(case.recording)
    flips = [flip for flip in possible if not flip.is_tried_cold and not flip.warning]
    predict = functools.partial(predicted_alone, case.recording)
    budget = Budget(seconds=LONGEST_TO_TIME, total=TIME_FOR_TRIALS, than_eager=_SLOW)
    with trials_in(case) as folder:
        results = try_flips(
            case.runs.command, flips, folder, budget, case.say, case.runs.stdin, predict=predict
        )
    case.runs.count += results.runs
    slow = slow_function(results.base) if results.base is not None else None
    return None if slow is None else _verdict(case, results, slow)


def slow_function(base: AgainstEager) -> AgainstEager | None:
    """The function that loses most against eager, if that is beyond noise and matters."""
    if base.lost <= 0:
        return None
    slow = [function for function in base.functions if _is_slow(function, base.span)]
    return max(slow, key=lambda function: function.lost, default=None)


def _is_slow(function: AgainstEager, span: float) -> bool:
    matters = (
        function.ratio >= _SLOW
        and function.lost >= _LEAST_PER_CALL * function.calls
        and function.lost >= _LEAST_PER_RUN
        and 0 < _LEAST_SHARE * span <= function.lost
    )
    return matters and function.compared().verdict == SLOWER


def _verdict(case: ProgramCase, results: TrialResults, slow: AgainstEager) -> Verdict:
    helps = results.advice[0] if results.advice else None
    findings = _findings(case, slow)
    cause = _cause(findings, helps)
    why = (
        f"{slow.name} takes {slow.ratio:.1f} times as long compiled as in eager "
        f"({_milliseconds(slow.per_call * slow.ratio)} per call, in eager "
        f"{_milliseconds(slow.per_call)})"
    )
    why += f". {cause.title}." if cause is not None else ". Why is not known."
    result = Verdict(v.SLOW, cause.stage if cause else stages.RUNTIME, why, "proven")
    result.culprit.function = slow.name
    result.culprit.source = (cause.source if cause else "") or slow.place or None
    result.add(results.how, "runs of the program without checks")
    for finding in findings:
        proof = "changing it helps" if finding is cause else "a rule; not proven to be the cause"
        for text in (finding.title, *finding.evidence):
            result.add(text, f"{finding.rule}: {proof}")
    for trial in results.trials:
        result.add(f"{trial.flip.change}: {_gain(trial)}", trial.how)
    if helps is not None:
        offer(case, helps, result)
    return result


def _findings(case: ProgramCase, slow: AgainstEager) -> Sequence[Finding]:
    """What rules found in the compiles of the slow function."""
    # Python names the script as it was called, the recording in full.
    place = Path(slow.place).absolute()
    compiles = [each for each in case.recording.compiles if each.place and slow.place]
    own = {each.id for each in compiles if Path(each.place).absolute() == place}
    found = [f for f in diagnose(case.recording) if f.rule in SLOWNESS and f.compile in own]
    return sorted(found, key=lambda finding: SLOWNESS.index(finding.rule))


def _cause(findings: Sequence[Finding], helps: FlipTrial | None) -> Finding | None:
    """What the change that helps is about."""
    if helps is None:
        return None
    about = helps.flip.rule, helps.flip.source
    return next((each for each in findings if (each.rule, each.source) == about), None)


def _gain(trial: FlipTrial) -> str:
    if not trial.changed.count:
        return "not measured"
    return f"saves {1 - trial.ratio:.0%}" if trial.helps else "does not help beyond noise"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


HYPOTHESIS = Hypothesis(_applies, _examine)
