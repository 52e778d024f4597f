"""Compiling, or what was compiled, takes longer than it should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from inductoscope import verdicts as v
from inductoscope.analysis.rules import SLOWNESS, diagnose, findings_of
from inductoscope.analysis.rules.finding import Finding as RuleFinding
from inductoscope.analysis.rules.inductor import repeated_expressions
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import nothing_found
from inductoscope.doctor.failure import SLOW, Failure
from inductoscope.doctor.finding import (
    PROGRAM,
    FailureFinding,
    GraphWorkaround,
    GraphWorkarounds,
    NotShownAgain,
    SlowInProgram,
    Workaround,
)
from inductoscope.doctor.instructions import CHECKS, Instructions
from inductoscope.doctor.judgement import relative_place, verdict_on
from inductoscope.doctor.runs import ProgramRun, every_check_passed
from inductoscope.doctor.slowness import (
    LONGEST_TO_TIME,
    TIME_FOR_TRIALS,
    WastedCompiles,
    may_be_slower,
    offer,
    trials_in,
    wasted_compiles,
)
from inductoscope.doctor.symptom import fails_alike
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.launch.users_cache import EMPTY, LEFT
from inductoscope.model.entities import Compile, Recording
from inductoscope.model.fx import read_graph
from inductoscope.profiling.compile_growth import SlowCompile, seconds_in, slow_compiles
from inductoscope.profiling.flip_trials import (
    NO_HELP,
    AgainstEager,
    FlipTrial,
    TrialResults,
    try_cold,
    try_flips,
)
from inductoscope.profiling.flips import Flip, flips_for
from inductoscope.profiling.statistics import TOO_FEW
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of


def compiled_for_every_value(case: ProgramCase) -> Verdict | None:
    """A function is compiled again for every value of something that changes in a loop.

    Applies: The program ended well. One line of it called a function that was recompiled at least 8
    times for a value, the compiled versions were hardly called, and the compiles took most of the
    run.
    Runs: The program without the tool. If torch has a setting for it, the program as it is and with
    the setting, twice each with empty caches, and once more to check its results with the setting.
    Concludes: Slow, with what changes, where, how many seconds went into the compiles, and the
    setting if the program compiled less with it.
    How sure: Proven if the setting helps; otherwise likely, because a longer run may reuse what
    this one compiled.
    """
    if not case.ends_well or case.takes_long:
        return None
    wasted = wasted_compiles(case.recording, case.first.ending.seconds)
    found = max(wasted, key=lambda one: one.seconds, default=None)
    if found is None or case.runs.without_tool_once().ending.exit_code != 0:
        return None
    result = Verdict(v.SLOW, stages.DYNAMO, _summary(found), "likely")
    result.culprit.function = found.compiles[0].function
    result.culprit.source = found.finding.source or None
    for text in found.finding.evidence:
        result.add(text, "reported by Dynamo in the first run")
    result.add(
        f"{count_of(found.recompiles, 'recompile')}: {found.seconds:.1f} s",
        "counted in the first run",
    )
    flips = [flip for flip in flips_for(case.recording) if flip.avoids_compiles]
    if flips:
        _try(case, flips, result)
    return result


def _try(case: ProgramCase, flips: Sequence[Flip], result: Verdict) -> None:
    case.say("a setting may avoid the recompiles; running the program with it")
    with trials_in(case, TIME_FOR_TRIALS) as runs:
        tried = try_cold(runs, flips)
    for trial in tried.trials:
        result.add(f"{trial.flip.change}: {trial.how}", "runs of the program in turns")
    if tried.advice:
        result.confidence = "proven"
        offer(case, tried.advice[0], result)


def _summary(found: WastedCompiles) -> str:
    limit = f" until torch's {found.limit} was reached" if found.limit else ""
    return (
        f"{found.compiles[0].function} was compiled again for "
        f"{count_of(found.recompiles, 'value')} of {found.guard.about}{limit}, in "
        f"{found.seconds:.1f} s; {count_of(found.calls, 'call')} ran compiled. "
        f"{found.guard.what_to_change}"
    )


def slow_compile(case: ProgramCase) -> Verdict | None:
    """Compiling takes out of all proportion.

    Applies: The program ended well, and a compile took so long, measured by the import of torch and
    by its other stages, that it is worth to look closer.
    Runs: The program once more, up to that graph: parts of it and plain graphs are compiled there
    in forks, in turns. If those show it, the program without the tool and the reproducer, and on
    the program what made the graph compile faster.
    Concludes: Slow, with the stage and the function, if the graph's compile takes several times as
    long as that of as many pointwise nodes, or if a stage that takes most of it grows much faster
    than the graph, and if the reproducer is slow in most fresh processes. Nothing if the program
    fails without the tool: that is graver.
    How sure: Proven if the reproducer is slow every time, likely if it is most times.
    """
    if not (case.ends_well and bool(slow_compiles(case.recording))):
        return None
    suspect = slow_compiles(case.recording)[0]
    finding = _measured_in_program(case, suspect)
    if finding is None or case.runs.without_tool_once().ending.exit_code != 0:
        return None
    return _proven_slow(case, finding, suspect)


def slower_than_eager(case: ProgramCase) -> Verdict | None:
    """Compiled code is slower than the same code in eager.

    Applies: The program ended well, and the first run makes one suspicious: a graph took longer
    than in eager, or many small parts of broken graphs are called often.
    Runs: The program without checks, half of the calls of a compiled function in eager. On a GPU a
    call counts as long as it takes to enqueue or to run, whichever is longer. If eager is clearly
    faster, the program with changes that may help, and all of it once more. Then once more with
    checks, with the change that helps.
    Concludes: Slow, if a function takes at least 1.2 times as long as in eager, beyond noise, and
    what is lost matters: per call, in the run, and in all compiled calls together. A call ends with
    its backward pass on the CPU; nothing is said about calls that share theirs, nor about a GPU's.
    How sure: Proven by seven runs, each of which is one measurement; likely if there was time for
    fewer only, in all of which it is slower. A cause is named if a change of it helps; otherwise it
    is not known, and what rules found in the function is evidence.
    """
    if not (case.ends_well and _looks_slower(case)):
        return None
    if case.runs.without_tool_once().ending.exit_code != 0:
        return None
    results, slow = _timed_against_eager(case, _LEAST_SHARE)
    return _verdict(case, results, slow) if results is not None and slow is not None else None


def _timed_against_eager(
    case: ProgramCase, least_share: float
) -> tuple[TrialResults | None, AgainstEager | None]:
    """Time calls of compiled functions and of eager in turns, if compiled ones look slower.

    A function that loses less than `least_share` of the run is not slow.
    """
    if not _looks_slower(case):
        return None, None
    case.say("compiled calls may be slower than eager; timing both in turns")
    possible = flips_for(case.recording)
    flips = [flip for flip in possible if not flip.is_tried_cold and not flip.warning]
    with trials_in(case, LONGEST_TO_TIME) as runs:
        results = try_flips(runs, flips, than_eager=_SLOW)
    if results.base is None:
        return results, None
    return results, slow_function(results.base, least_share)


def _looks_slower(case: ProgramCase) -> bool:
    return case.first.ending.seconds < LONGEST_TO_TIME and may_be_slower(case.recording)


def slower_than_it_allows(case: ProgramCase) -> Verdict | None:
    """The program fails because it takes longer compiled than it allows itself.

    Applies: The program fails with every compiled graph right, reads a clock, says nothing of
    numbers that are not close, and ends well in eager.
    Runs: The program in eager, and without the tool with empty caches; if it ends well then, under
    the tool without checks, and without the tool once more. If the first run makes its
    calls suspicious: these and eager in turns, and the program with Dynamo alone, and with
    AOTAutograd. Otherwise twice without the tool, with the caches that the run before left.
    Concludes: Slow: in its calls, if these are slower than in eager; to compile, if it ends well
    once its code is in torch's caches, and compiling took much of the time. Clean, if it is slow
    only because it is checked.
    How sure: Compiling is proven by these runs. Slow calls are likely why it fails, unless a change
    that makes them faster makes it end well.
    """
    if not case.may_fail_by_time or case.runs.in_eager_once().failed:
        return None
    clock = relative_place(case.clocks[0])
    plain = case.runs.without_tool_finding(
        EMPTY, f"it reads a clock ({clock}); running it without the tool, with empty caches"
    )
    if plain.ended_well:
        return _slow_only_if_checked(case)
    if not plain.failed:
        return None
    results, slow = _timed_against_eager(case, least_share=0.0)  # It matters to the program.
    if results is not None and slow is not None:
        return _at_level(case, _verdict(case, results, slow))
    compiling = sum(compile_.seconds for compile_ in case.recording.compiles)
    if compiling < _MUCH_OF_THE_TIME * plain.ending.seconds:
        return None
    for message in ("running it with the caches that this run left", "the same once more"):
        warm = case.runs.without_tool_finding(LEFT, message)
        if not warm.ended_well:
            return None
    return _slow_to_compile(case, plain, warm)


def _slow_only_if_checked(case: ProgramCase) -> Verdict | None:
    unchecked = case.runs.given_back((CHECKS,), "running it under the tool without checks")
    if not unchecked.ended_well or not case.runs.without_tool_once().ended_well:
        return None  # It fails for another reason, or now and then.
    result = nothing_found(case)
    result.confidence = "likely" if result.confidence == "proven" else result.confidence
    clock = relative_place(case.clocks[0])
    return result.add(
        f"checks take time, and it reads a clock at {clock}: it fails while it is checked, and "
        "ends well without checks, and without the tool",
        "four runs",
    )


# The least share of compiles in the seconds of a program that is slow because of them.
_MUCH_OF_THE_TIME = 0.3


def _slow_to_compile(case: ProgramCase, plain: ProgramRun, warm: ProgramRun) -> Verdict:
    seconds: Counter[str] = Counter()
    for compile_ in case.recording.compiles:
        seconds.update(compile_.stage_seconds)
    slowest = [stage for stage, _ in seconds.most_common() if stage in stages.VERDICT_STAGES]
    result = Verdict(
        v.SLOW,
        slowest[0] if slowest else stages.NO_STAGE,
        "The program fails because compiling takes longer than it allows (it reads a clock at "
        f"{relative_place(case.clocks[0])}): it ends well once the compiled code is in torch's "
        "caches.",
        "proven",
        Culprit(source=case.last_compiled),
    )
    _say_what_became_many(case, result)
    took = ", ".join(f"{stage} {seconds[stage]:.1f} s" for stage in slowest[:5])
    result.add(f"time by stage: {took}", "the first run of the program")
    result.add(
        f"exit code {plain.ending.exit_code} after {plain.ending.seconds:.1f} s with empty caches, "
        f"0 after {warm.ending.seconds:.1f} s with those that this run left, twice",
        "three runs without the tool",
    )
    return result.add(plain.last_words, "what the program printed")


def _at_level(case: ProgramCase, result: Verdict) -> Verdict:
    """Name the first level of the compiler with which the program fails in the same way."""
    for stage, backend in ((stages.DYNAMO, "eager"), (stages.AOT, "aot_eager")):
        run = case.runs.with_backend_once(backend, f"running it with backend='{backend}'")
        if fails_alike(case.first, run, case.runs.in_eager_once()):
            result.stage = stage
            result.add(f"as slow with backend='{backend}', without Inductor", "one run")
            break
    clock = relative_place(case.clocks[0])
    result.summary += f" That may be why the program fails: it reads a clock at {clock}."
    if result.workaround is None:
        result.confidence = "likely"  # How slow it may be is not known.
    result.add(case.first.last_words, "what the program printed")
    _say_what_became_many(case, result)
    return result


# A line of the program that became so many operations, and so much of the graph, is named.
_MANY_OPERATIONS = 50
_MOST_OF_THE_GRAPH = 0.5


def _say_what_became_many(case: ProgramCase, result: Verdict) -> None:
    """Name the line of the program that most operations of the largest graph come from."""
    recording = case.recording
    states = [state for one in recording.compiles for state in one.graphs]
    graphs = [read for state in states if (read := read_graph(recording, state.payload))]
    largest = max(graphs, key=lambda graph: len(graph.calls), default=None)
    if largest is None:
        return
    lines = Counter(node.place for node in largest.calls if node.place is not None)
    for frame, count in lines.most_common(1):
        if count >= max(_MANY_OPERATIONS, _MOST_OF_THE_GRAPH * len(largest.calls)):
            place = relative_place(str(frame))
            of = f"{count} of {len(largest.calls)} operations"
            result.culprit.source = place
            result.summary += f" {of} come from {place}: {frame.code}"


# A function is slow if it takes at least this multiple of its time in eager.
_SLOW = 1.2
# The least loss that matters: seconds per call and per run, and the share of the run.
_LEAST_PER_CALL = 200e-6
_LEAST_PER_RUN = 5e-3
_LEAST_SHARE = 0.05


def slow_function(base: AgainstEager, least_share: float = _LEAST_SHARE) -> AgainstEager | None:
    """Return the function that loses most against eager, if it does in all runs and it matters."""
    least = least_share * base.span
    if base.lost <= 0 or (least_share and not least):
        return None
    slow = [each for each in base.functions if each.lost >= least and _is_slow(each)]
    return max(slow, key=lambda function: function.lost, default=None)


def _is_slow(function: AgainstEager) -> bool:
    matters = (
        function.ratio >= _SLOW
        and function.lost >= _LEAST_PER_CALL * function.calls
        and function.lost >= _LEAST_PER_RUN
    )
    return matters and min(function.compiled.values) > 1


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
    if slow.compared().verdict == TOO_FEW:
        result.confidence = "likely"
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


def _findings(case: ProgramCase, slow: AgainstEager) -> Sequence[RuleFinding]:
    # Python reports the script's path as given, the recording an absolute path.
    place = Path(slow.place).absolute()
    compiles = [each for each in case.recording.compiles if each.place and slow.place]
    own = {each.id for each in compiles if Path(each.place).absolute() == place}
    found = [f for f in diagnose(case.recording) if f.rule in SLOWNESS and f.compile in own]
    return sorted(found, key=lambda finding: SLOWNESS.index(finding.rule))


def _cause(findings: Sequence[RuleFinding], helps: FlipTrial | None) -> RuleFinding | None:
    if helps is None:
        return None
    about = helps.flip.rule, helps.flip.source
    return next((each for each in findings if (each.rule, each.source) == about), None)


def _gain(trial: FlipTrial) -> str:
    if not trial.changed.count:
        return "not measured"
    if trial.helps:
        return f"saves {1 - trial.ratio:.0%}"
    is_known = trial.conclusion == NO_HELP
    return "does not help beyond noise" if is_known else trial.conclusion


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def slow_compile_and_failure(case: ProgramCase) -> Verdict | None:
    """A program that fails for no known reason has a compile that takes out of all proportion.

    Applies: The program fails with every compiled graph right, no level of the compiler and no
    rounding is to blame, and a compile took so long that it is worth to look closer.
    Runs: The program in eager, unless that was done. Then as for a program that ends well: its
    graph and plain graphs in turns, the reproducer, and what made the graph compile faster.
    Concludes: Slow, under the same conditions. Whether that is why the program fails stays open,
    and the verdict says so.
    How sure: Proven if the reproducer is slow every time, likely if it is most times.
    """
    is_over = case.first.ending.signal is None
    if not (case.fails_unexplained and is_over and slow_compiles(case.recording)):
        return None
    if not case.runs.in_eager_once().ended_well:
        return None  # The failure is not due to the compiler.
    suspect = slow_compiles(case.recording)[0]
    finding = _measured_in_program(case, suspect)
    return _proven_slow(case, finding, suspect) if finding is not None else None


# --- a slow compile, measured alone and tried on the program --------------------------------------

# Stages that process loop bodies operation by operation.
_WITH_LOOP_BODIES = (stages.LOWERING, stages.SCHEDULER, stages.CODEGEN, *stages.NATIVE_COMPILES)
# The most that may be left of the slow stage's time, on the program, too.
_HELPS = 0.7


def _measured_in_program(case: ProgramCase, suspect: SlowCompile) -> FailureFinding | None:
    """Measure the compile of the graph alone; None if it is in proportion."""
    text = f"compile {suspect.compile} took {suspect.of:.1f} s, {suspect.seconds:.1f} s of it in "
    failure = Failure(SLOW, f"{text}{suspect.stage}", stage=suspect.stage)
    stop = replace(
        case.instructions,
        stop_at=suspect.compile,
        failure=failure,
        calls=0,
        lowered=suspect.nodes,
    )
    run = case.runs.again(stop, f"{failure.text}; running it again up to there", seconds=1800.0)
    finding = run.finding
    if finding is None or finding.reproduces:
        return finding
    if instead := finding.fact(NotShownAgain).instead:
        case.say(f"compile time is not judged: {instead}")
    return None


def _proven_slow(
    case: ProgramCase, finding: FailureFinding, suspect: SlowCompile
) -> Verdict | None:
    """Return the verdict if the reproducer is slow in most fresh processes; otherwise None.

    A graph that is slow only inside the program, or intermittently, is not blamed.
    """
    case.proof.prove(finding)
    repro = case.proof.repro
    if repro is None or 2 * repro.failed <= repro.of:
        case.proof.forget()
        case.say("no reproducer is slow in most fresh processes: compile time is not judged")
        return None
    seen = _seen_in_program(case, finding, suspect)
    workarounds = finding.fact(GraphWorkarounds).found
    if workarounds and case.instructions.with_workaround:
        seen = _help_with_slow_compile(case, workarounds[0], seen, suspect)
    case.finding = case.proof.added_to(finding).claimed(seen, PROGRAM)
    return verdict_on(case.finding)


def _seen_in_program(
    case: ProgramCase, finding: FailureFinding, suspect: SlowCompile
) -> SlowInProgram:
    """Return the seconds of the slow stage in the program, where another may have looked slow.

    Code generation looks slow in the first compile, because torch probes the C++ compiler in it.
    """
    stage, seconds = finding.failure.stage, suspect.seconds
    compile_ = _compile_of(case.recording, suspect)
    if compile_ is not None and stage != suspect.stage:
        seconds = seconds_in(case.recording, compile_, stage)
    seen = SlowInProgram(stage, seconds, suspect.of)
    if case.first.failed:
        code, output = case.first.ending.exit_code, case.first.last_words
        seen = replace(seen, exit_code=code, output=output)
    # Loop bodies far larger than the graph slow down every stage that processes them.
    rules = findings_of(repeated_expressions, case.recording) if stage in _WITH_LOOP_BODIES else ()
    for rule in rules:
        if rule.compile == suspect.compile:
            return replace(seen, repeated=rule.title, repeated_evidence=tuple(rule.evidence))
    return seen


def _compile_of(recording: Recording, suspect: SlowCompile) -> Compile | None:
    return next((each for each in recording.compiles if each.id == suspect.compile), None)


def _help_with_slow_compile(
    case: ProgramCase, tried: GraphWorkaround, seen: SlowInProgram, suspect: SlowCompile
) -> SlowInProgram:
    instructions = Instructions(
        calls=case.instructions.calls, workaround=tried.code, investigate=False
    )
    run = case.runs.again(instructions, f"trying on the program: {tried.text}")
    recording = run.recording
    changed = _compile_of(recording, suspect)
    share = 1 - (tried.after or 0.0) / tried.before if tried.before else 0.0
    found = Workaround(tried.text, False, tried.slowdown, tried.code, seen.seconds * share)
    if changed is not None:
        # Only the slow stage is compared: the others vary with the machine's load.
        left = seconds_in(recording, changed, seen.stage)
        helps = left < _HELPS * seen.seconds and every_check_passed(run)
        found = replace(found, verified=helps, saved=seen.seconds - left)
        seen = replace(seen, left=left, whole_left=changed.seconds)
    case.proof.workaround = found
    return seen
