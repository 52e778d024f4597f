"""Compiled code is slower than the same code in eager.

When it applies: The program ended well, and the first run makes one suspicious: a graph took longer
than in eager, a rule found slow code in a kernel, or a broken graph is called often.

What it runs: The program without checks, every second call of a compiled function in eager. If
eager is clearly faster, the program with changes that may help, and all of it once more.

What it concludes: Slow, if its compiled calls take at least 1.2 times as long as in eager, beyond
noise; with the cause if a change proves it or a rule names it, and the change that saves most.

How sure: Proven by runs in turns. The cause is proven if a change of it helps, else likely.
"""

from __future__ import annotations

from inductoscope.analysis.rules import SLOWNESS, diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.program_case import ProgramCase
from inductoscope.doctor.outside.slow_program import as_workaround, trials_in
from inductoscope.doctor.outside.slowness import may_be_slower
from inductoscope.doctor.verdict import Verdict
from inductoscope.profiling.advice.flips import flips_for
from inductoscope.profiling.advice.trials import (
    AgainstEager,
    Budget,
    FlipTrial,
    TrialResults,
    try_flips,
)
from inductoscope.profiling.statistics import SLOWER
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v

# A program is slow if it takes so many times as long as in eager; nobody minds less.
_SLOW = 1.2
# Longer programs would keep the user waiting: it is run a dozen times.
_LONGEST = 120.0


def _applies(case: ProgramCase) -> bool:
    is_short = case.first.ending.seconds < _LONGEST
    return case.ends_well and is_short and may_be_slower(case.recording)


def _examine(case: ProgramCase) -> Verdict | None:
    if case.runs.without_tool_once().ending.exit_code != 0:
        return None
    case.say("compiled calls may be slower than eager; timing both in turns")
    flips = [flip for flip in flips_for(case.recording) if not flip.avoids_compiles]
    budget = Budget(seconds=_LONGEST, than_eager=_SLOW)
    with trials_in(case) as folder:
        results = try_flips(case.runs.command, flips, folder, budget, case.say)
    case.runs.count += results.runs
    base = results.base
    if base is None or base.ratio < _SLOW or base.compared().verdict != SLOWER:
        return None
    return _verdict(case, results, base)


def _verdict(case: ProgramCase, results: TrialResults, base: AgainstEager) -> Verdict:
    helps = results.advice[0] if results.advice else None
    finding = _cause(case, helps)
    per_call = base.seconds / base.calls
    why = (
        f"Compiled calls take {base.ratio:.1f} times as long as in eager "
        f"({_milliseconds(per_call * base.ratio)} per call, in eager {_milliseconds(per_call)})"
    )
    if finding is not None:
        why += f". {finding.title}"
    elif helps is not None:
        why += f". {helps.flip.why}"
    stage = finding.stage if finding else stages.CODEGEN
    result = Verdict(v.SLOW, stage, f"{why}.", "proven")
    result.culprit.source = (finding.source if finding else "") or case.last_compiled
    result.add(results.how, "runs of the program without checks")
    if finding is not None:
        proof = "changing it helps" if helps else "a rule; no change of it was seen to help"
        for text in finding.evidence:
            result.add(text, f"{finding.rule}: {proof}")
    for trial in results.trials:
        result.add(f"{trial.flip.change}: {_gain(trial)}", trial.how)
    if helps is not None:
        result.workaround = as_workaround(helps)
    return result


def _cause(case: ProgramCase, helps: FlipTrial | None) -> Finding | None:
    """What the change that helps is about, or else the first thing that a rule has found."""
    findings = [finding for finding in diagnose(case.recording) if finding.rule in SLOWNESS]
    findings.sort(key=lambda finding: SLOWNESS.index(finding.rule))
    if helps is not None:
        about = helps.flip.rule, helps.flip.source
        own = [finding for finding in findings if (finding.rule, finding.source) == about]
        return own[0] if own else None
    return findings[0] if findings else None


def _gain(trial: FlipTrial) -> str:
    if not trial.changed.count:
        return "not measured"
    return f"saves {1 - trial.ratio:.0%}" if trial.helps else "does not help beyond noise"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


HYPOTHESIS = Hypothesis(_applies, _examine)
