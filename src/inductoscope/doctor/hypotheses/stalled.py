"""The program stalled, or was ended by a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import verdict_at_limit
from inductoscope.doctor.finding import Repro, Workaround
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.last_position import last_position, last_stacks
from inductoscope.doctor.runs import ProgramRun
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.errors import InductoscopeError
from inductoscope.hangs.choices import stuck_choices as choices_in
from inductoscope.hangs.choices.analysis import Analysis, analyse
from inductoscope.hangs.choices.contrast import ChoiceCondition
from inductoscope.hangs.choices.filters import (
    VARIABLE,
    assignment_for,
    pattern_for,
    snippet_for,
    write_filter,
)
from inductoscope.hangs.choices.suspects import StuckChoices, kernel_of
from inductoscope.kernels.alone import (
    KernelRequest,
    KernelTrial,
    make_plans,
    try_alone,
    write_script,
)
from inductoscope.processes.children import ChildLimits
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_choices import Choice
from inductoscope.torch_facts.triton_kernels import KernelFile
from inductoscope.wording import count_of

Say = Callable[[str], None]
Rerun = Callable[[Instructions, str], ProgramRun]

# The time limit of a kernel compiled alone, as a multiple of the slowest finished choice.
_PATIENCE = 5.0
_LEAST_SECONDS = 15.0
_TIMES = 3
_MOST_TRIALS = 8
_MOST_FILTERS = 5
_STUCK = "does not end"  # the outcome of a trial
_EAGERS_KERNELS = (
    "import torch._inductor.config\ntorch._inductor.config.max_autotune_gemm_backends = 'ATEN'"
)


def stuck_choices(case: ProgramCase) -> Verdict | None:
    """Autotuning waits for choices that never finish.

    Applies: The program stalled, and kernels that autotuning compiles or benchmarks have not
    finished.
    Runs: A stuck kernel alone, waiting ones if they separate one condition from another, and the
    program without the stuck choices.
    Concludes: A hang in autotuning, the condition that stuck choices share, and a filter that
    excludes them.
    How sure: Proven if a kernel is stuck alone too, otherwise likely.
    """
    if not case.first.stalled:
        return None
    stuck = choices_in.stuck_choices(case.first.folder)
    if stuck is None:
        return None
    case.say(f"choices: {len(stuck.stuck)} stuck, {len(stuck.finished)} finished")
    known = _look_further(analyse(stuck), case.say)
    if known.kernel is not None:
        case.say(f"compiling {known.kernel.name} alone, {_TIMES} times")
    trial, why_not = _compile_alone(
        known.kernel, known.choices.longest, case.runs.folder, times=_TIMES
    )
    result = _verdict_on_stuck(known, trial, why_not)
    if trial is not None and case.proof.script.exists():  # The script holds the kernel alone.
        of = len(trial.attempts)
        failed = sum(attempt.outcome == _STUCK for attempt in trial.attempts)
        result.repro = Repro(str(case.proof.script), failed == of, failed, of, 1)
    if case.instructions.with_workaround:
        result.workaround, told = _find_filter(known, case.runs.again, case.runs.folder)
        for line in told:
            result.add(line, "one run of the program")
    return result


def time_limit(case: ProgramCase) -> Verdict | None:
    """The program was ended by a limit, and not because anything is wrong with it.

    Applies: It ran longer than --time-limit, or had made all calls that were to be checked, and was
    neither in the compiler nor in a call that is checked.
    Runs: Nothing.
    Concludes: Clean so far if calls were compared, not-checked if none was.
    How sure: Likely: what the program does later is not known.
    """
    was_ended = case.first.calls_done or (
        case.first.over_time and last_position(case.first) is None
    )
    # Known errors take precedence over the limit.
    if case.finding is not None or not was_ended or case.is_seen_wrong:
        return None
    return verdict_at_limit(case)


def never_ends(case: ProgramCase) -> Verdict | None:
    """The program does not end, and no smaller program was found that shows it.

    Applies: The program stalled or ran out of time, and nothing was found; nor does a function
    differ in a program that only ran out of time.
    Runs: Nothing: where it was is known from its last stacks.
    Concludes: A hang in the stage that it was in, or in the program itself.
    How sure: Likely.
    """
    is_late = case.first.over_time and not case.first.functions_that_differ
    if case.finding is not None or not (case.first.stalled or is_late):
        return None
    position = last_position(case.first)
    if position is None:
        text = "The program made no progress; it was not inside the compiler."
        result = Verdict(v.HANG, stages.USER, text, "likely")
    else:
        hang = position.failure
        said = f"{hang.text[0].upper()}{hang.text[1:]}"
        text = f"{said}; no smaller program was found that shows it."
        culprit = Culprit(function=hang.function or None, source=case.last_compiled)
        result = Verdict(v.HANG, hang.stage, text, "likely", culprit)
        if case.first.over_time:
            # At a time limit, the program may be slow instead of hanging.
            result.verdict, result.confidence, result.partial = v.UNKNOWN, "unknown", True
            result.summary = f"{said}. Whether it hangs is not known: --time-limit gives it longer."
        for number, function in enumerate(hang.functions[:12]):
            result.add(f"called from {function}" if number else f"it was in {function}")
    return result.add(last_stacks(case.first)[-1500:], "the last Python stacks")


# --- further trials -------------------------------------------------------------------------------


def _look_further(known: Analysis, say: Say) -> Analysis:
    """Compile waiting choices alone while candidate conditions disagree on one.

    Choices that wait for a thread have not been tried yet; only those are compiled that would
    distinguish one condition from another.
    """
    for _ in range(_MOST_TRIALS):
        telling = next(filter(_is_telling(known), known.choices.waiting), None)
        if telling is None:
            break
        conditions = " from ".join(condition.text for condition in known.conditions[:2])
        say(f"compiling a waiting choice alone to separate {conditions}")
        trial, _ = _compile_alone(kernel_of(telling), known.choices.longest, None, times=1)
        known = analyse(_settled(known.choices, telling, trial))
    return known


def _is_telling(known: Analysis) -> Callable[[Choice], bool]:
    def tells(choice: Choice) -> bool:
        said = {condition.holds(choice.configuration) for condition in known.conditions}
        return len(said) > 1 and kernel_of(choice) is not None

    return tells


def _settled(choices: StuckChoices, choice: Choice, trial: KernelTrial | None) -> StuckChoices:
    """Move a choice from the waiting ones to those with an outcome."""
    waiting = tuple(other for other in choices.waiting if other is not choice)
    outcome = trial.outcome if trial is not None else ""
    stuck = (choice,) if outcome == _STUCK else ()
    finished = (choice,) if outcome == "compiles" else ()
    return replace(
        choices,
        waiting=waiting,
        stuck=(*choices.stuck, *stuck),
        finished=(*choices.finished, *finished),
    )


# --- a choice alone -------------------------------------------------------------------------------


def _compile_alone(
    kernel: KernelFile | None, longest: float, folder: Path | None, *, times: int
) -> tuple[KernelTrial | None, str]:
    """Compile a kernel alone, with a generous limit. With a folder, keep the script."""
    limits = ChildLimits(seconds=max(_LEAST_SECONDS, _PATIENCE * longest))
    try:
        if kernel is None:
            return None, "no file of a stuck kernel could be read"
        plan = make_plans(kernel, KernelRequest())[0]
        if folder is not None:
            write_script(plan, folder / "repro.py")
        output = folder / "kernel" if folder is not None else None
        request = KernelRequest(limits=limits, output=output)
        # Repeated in parallel: a kernel that hangs usually waits.
        with ThreadPoolExecutor(times) as beside:
            trials = list(
                beside.map(lambda _: try_alone(plan, request, lambda text: None), range(times))
            )
        attempts = tuple(attempt for trial in trials for attempt in trial.attempts)
        return replace(trials[0], attempts=attempts), ""
    except (InductoscopeError, IndexError, OSError) as error:
        return None, str(error)


# --- workarounds ----------------------------------------------------------------------------------


def _find_filter(
    known: Analysis, rerun: Rerun, folder: Path
) -> tuple[Workaround | None, list[str]]:
    """Exclude stuck choices by the narrowest condition, and try that on the program.

    Choices that waited for a thread before may then hang; the next condition covers them, too.
    """
    told: list[str] = []
    tried: set[str] = set()
    while len(tried) < _MOST_FILTERS:
        condition = next((c for c in known.conditions if c.text not in tried), None)
        if condition is None:
            break
        tried.add(condition.text)
        snippet = snippet_for(condition)
        run = rerun(
            Instructions(calls=0, workaround=snippet, investigate=False),
            f"running the program without choices that have {condition.text}",
        )
        if run.ended_well:
            told += [_remaining(run), _by_variable(known, condition, rerun)]
            # The same filter as a patch of torch, in addition to the tried snippet.
            paths = write_filter(known.filter_for(condition), folder)
            names = " and ".join(map(str, paths))
            told.append(f"the snippet, and a patch if torch has a place for it: {names}")
            text = f"leave out choices with {condition.text}, which never finish compiling"
            return Workaround(text, True, None, snippet), [line for line in told if line]
        told.append(f"the program does not end without choices that have {condition.text} either")
        more = choices_in.stuck_choices(run.folder) if run.stalled else None
        if more is not None:
            known = analyse(known.choices.joined_with(more))
    return _without_templates(rerun, told)


def _without_templates(rerun: Rerun, told: list[str]) -> tuple[Workaround | None, list[str]]:
    instructions = Instructions(calls=0, workaround=_EAGERS_KERNELS, investigate=False)
    run = rerun(instructions, "running the program with eager's kernels only")
    text = "use eager's kernels for matrix products"
    return Workaround(text, run.ended_well, None, _EAGERS_KERNELS), told


def _remaining(run: ProgramRun) -> str:
    """Describe the choices that were compiled instead."""
    choices = choices_in.compiled_choices(run.folder)
    if not choices:
        return ""
    differing = _differing(choices)
    texts = [_values(choice, differing) for choice in choices]
    listed = "; ".join(texts[:6]) + ("; …" if len(texts) > 6 else "")
    return f"{count_of(len(choices), 'choice')} left, which finish with it: {listed}"


def _by_variable(known: Analysis, condition: ChoiceCondition, rerun: Rerun) -> str:
    """Return the filter as an environment variable, which needs no change of the program."""
    stuck = [suspect.configuration for suspect in known.stuck]
    pattern = pattern_for(condition, stuck)
    run = rerun(
        Instructions(calls=0, investigate=False, variables={VARIABLE: pattern}),
        f"running the program with {VARIABLE}",
    )
    said = f"{assignment_for(condition, stuck)} does the same: the program ends with it"
    return said if run.ended_well else ""


# --- the verdict ----------------------------------------------------------------------------------


def _verdict_on_stuck(known: Analysis, trial: KernelTrial | None, why_not: str) -> Verdict:
    """Make the verdict: stuck choices, their common condition, and whether one hangs alone."""
    choices = known.choices
    hangs_alone = trial is not None and trial.outcome == _STUCK
    best = known.conditions[0] if known.conditions else None
    names = [choice.short_name or choice.kind for choice in choices.stuck]
    culprit = Culprit(
        op=choices.operation or None,
        kernel=", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else ""),
        function=_unfinished(trial),
        config=best.text if best is not None else None,
    )
    confidence: v.Confidence = "proven" if hangs_alone else "likely"
    result = Verdict(v.HANG, stages.AUTOTUNE, _summary(known, best), confidence, culprit)
    _add_evidence(result, known)
    if trial is None:
        result.add(f"no kernel was compiled alone: {why_not}")
    else:
        result.add(_alone_text(trial), "in a fresh process, with an empty cache")
    return result


def _summary(known: Analysis, best: ChoiceCondition | None) -> str:
    choices = known.choices
    doing = "time" if choices.while_timed else "compile"
    of = f" for {choices.operation}" if choices.operation else ""
    share = f": all have {best.text}, {best.counts}" if best is not None and best.separates else ""
    number = len(choices.stuck)
    return (
        f"Autotuning does not end: {number} of {number + len(choices.finished)} kernels to {doing}"
        f"{of} never finish{share}."
    )


def _unfinished(trial: KernelTrial | None) -> str | None:
    """Return the step in which the kernel compiled alone hit its time limit."""
    if trial is None or trial.outcome != _STUCK:
        return None
    worst = trial.worst
    return worst.waits_for.tool if worst.waits_for is not None else worst.unfinished or None


def _alone_text(trial: KernelTrial) -> str:
    worst, name = trial.worst, trial.plan.kernel.name
    if trial.outcome == "compiles":
        return f"{name} compiles alone in {worst.seconds:.1f} s, so the hang is elsewhere"
    if trial.outcome == "fails":
        return f"{name} fails alone: {worst.message[:500]}"
    at = f" (stage {worst.unfinished})" if worst.unfinished else ""
    return f"{name} does not end alone within {trial.limits.seconds:.0f} s{at}"


def _add_evidence(result: Verdict, known: Analysis) -> None:
    for condition in known.conditions:
        result.add(f"{condition.text}: {condition.counts}", "stuck against finished choices")
        if condition.decided_by:
            result.add(f"preferred to the next condition: {condition.decided_by}")
    if not known.choices.finished:
        result.add("no choice of the operation finished, so there is nothing to compare")
    differing = _differing([*known.choices.stuck, *known.choices.finished])
    for choice in known.choices.stuck[:12]:
        values = _values(choice, differing)
        result.add(f"stuck: {choice.short_name or choice.kind} ({values})", choice.path)
    if known.choices.waiting:
        text = f"waiting for a thread, so unknown: {count_of(len(known.choices.waiting), 'choice')}"
        result.add(text, "not started")
    for cause in known.causes[:3]:
        text = f"{cause.rule.title} ({cause.evidence}). {cause.rule.reason}"
        result.add(f"a likely cause: {text}", "a rule")


def _values(choice: Choice, names: Sequence[str]) -> str:
    return ", ".join(f"{name}={choice.configuration.get(name)}" for name in names)


def _differing(choices: Sequence[Choice]) -> list[str]:
    """Return the names of values that differ between choices."""
    names = dict.fromkeys(name for choice in choices for name in choice.configuration)
    return [name for name in names if len({c.configuration.get(name) for c in choices}) > 1]
