"""The answer of a log for each program: the outcome, the lines that prove it, the advice."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from inductoscope.hangs.logs.lines import Origin, Program
from inductoscope.hangs.logs.program import (
    ChoiceState,
    CompileProgress,
    Group,
    GroupState,
    Phase,
    ProgramFold,
    Seen,
    SeenFailure,
    TracedCompile,
)
from inductoscope.hangs.logs.reading import LogReading
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import shorten
from inductoscope.torch_facts.log_lines import LineMeaning
from inductoscope.torch_facts.stage_lookup import stage_of_module, stage_of_phase
from inductoscope.torch_facts.stages import (
    AUTOTUNE,
    BENCHMARK,
    CODEGEN,
    CPP_COMPILE,
    LOOP_BODY,
    LOWERING,
    SCHEDULER,
    WORDS,
    WRAPPER,
)
from inductoscope.verdicts import Confidence
from inductoscope.wording import count_of

_LONGEST_EVIDENCE = 300


class Kind(str, Enum):
    """Outcome of a program."""

    COMPILE_HANG = "kernel compile hang"
    BENCHMARK_HANG = "benchmark hang"
    KERNELS = "kernel compiler"
    RUN_TIME = "after compilation"
    ERROR = "error"
    DYNAMO = "Dynamo"
    AOT = "AOTAutograd"
    INDUCTOR = "Inductor before autotuning"
    RECOMPILE_LIMIT = "recompile limit"
    INTERRUPTED = "interrupted"
    CLEAN = "clean"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class LogLine:
    """A line of a log."""

    place: str
    text: str


@dataclass(frozen=True)
class Answer:
    """Outcome of one program, with evidence and advice."""

    kind: Kind
    title: str
    program: Program
    confidence: Confidence
    stage: str = stages.NO_STAGE
    compile_id: str = ""
    is_problem: bool = True
    evidence: tuple[LogLine, ...] = ()
    advice: tuple[str, ...] = ()
    # The command to type.
    command: str = ""
    notes: tuple[str, ...] = ()
    groups: tuple[Group, ...] = field(default=(), compare=False)


_FIRST = (Kind.COMPILE_HANG, Kind.BENCHMARK_HANG, Kind.KERNELS, Kind.ERROR)


def urgency(answer: Answer) -> tuple[bool, int]:
    """To sort by: problems first, and of those the most telling ones."""
    kind = answer.kind
    return not answer.is_problem, _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def line_evidence(seen: Seen) -> LogLine:
    """A torch line."""
    return LogLine(seen.origin.place, shortened(seen.text.strip() or f"(a line of {seen.module})"))


def place_evidence(origin: Origin, text: str) -> LogLine:
    """A line, quoted or in our words."""
    return LogLine(origin.place, shortened(text))


def choice_evidence(state: ChoiceState, words: str) -> LogLine | None:
    """The last line about a choice."""
    if not state.origins:
        return None
    return LogLine(
        state.origins[-1].place,
        shortened(f"{words} {state.choice.short_name or state.choice.text}"),
    )


def failure_evidence(seen: SeenFailure, frame: int = -1) -> tuple[LogLine, ...]:
    """The traceback, with the frame that shows where it was."""
    failure, origin = seen.failure, seen.origin
    last_line = origin.line + failure.lines - 1
    found = [LogLine(f"{origin.file}:{last_line}", shortened(failure.error or "(cut)"))]
    if failure.frames:
        where = failure.frames[frame]
        text = f"in {where.function}, {shorten(where.file)}:{where.line}"
        found.insert(0, LogLine(origin.place, shortened(text)))
    return tuple(found)


def present(items: Iterable[LogLine | None]) -> tuple[LogLine, ...]:
    """Those that exist."""
    return tuple(item for item in items if item is not None)


def shortened(text: str) -> str:
    """A text cut to a readable length."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_EVIDENCE else text[: _LONGEST_EVIDENCE - 1] + "…"


# --- The answer for a program in which Dynamo gave up on a function -------------------------------


def recompile_limit(program: ProgramFold) -> Answer | None:
    """Dynamo gave up on a function; nothing else is known to be wrong."""
    seen = program.last_seen.get(LineMeaning.RECOMPILE_LIMIT)
    if seen is None or program.unfinished is not None:
        return None
    limit = seen.text.partition("config.")[2].strip() or "the recompile limit"
    return Answer(
        kind=Kind.RECOMPILE_LIMIT,
        title=f"{_functions(program)} compiled until torch reached {limit}; inputs that fit none "
        "of the compiled versions run in eager since then, the others still run compiled",
        program=program.program,
        confidence="proven",
        stage=stages.DYNAMO,
        evidence=(line_evidence(seen),),
        advice=(
            "The lines after it name the guard that failed last",
            "All guards that fail, and what to change: inductoscope run SCRIPT",
        ),
    )


def _functions(program: ProgramFold) -> str:
    """The function that reached it, as the log has it, with its place."""
    places = [f"{name} ({place})" for name, place in program.at_limit.items()]
    if not places:
        return "a function was"
    return f"{places[0]} was" if len(places) == 1 else f"{', '.join(places)} were"


# --- The answer from a TORCH_TRACE, which has phases but does not name choices --------------------

_KINDS = {stages.DYNAMO: Kind.DYNAMO, stages.AOT: Kind.AOT}
_NAMES = 'For the names of the choices: run again with TORCH_LOGS="+inductor"'


def answer_from_trace(program: ProgramFold) -> Answer | None:
    """Judge a program by the phases in its trace; None if it wrote no trace."""
    compiles = program.phases.compiles
    if not program.phases.records:
        return None
    failed = [compile_ for compile_ in compiles if compile_.failure]
    open_ = [compile_ for compile_ in compiles if compile_.open]
    cut = [compile_ for compile_ in compiles if compile_.cut_short and compile_.innermost]
    if open_:
        return _open(program, max(open_, key=lambda c: c.open[-1].began.line))
    if cut:
        return _cut(program, cut[-1])
    if failed:
        return _failed(program, failed[-1])
    return _done(program, compiles)


def _open(program: ProgramFold, compile_: TracedCompile) -> Answer:
    phase = compile_.open[-1]
    return _at(program, compile_, phase, f"the phase '{phase.name}' began and never ended")


def _cut(program: ProgramFold, compile_: TracedCompile) -> Answer:
    phase = compile_.innermost
    assert phase is not None
    seconds = f" after {phase.seconds:.0f} s" if phase.seconds is not None else ""
    return _at(
        program, compile_, phase, f"the compile was cut short in the phase '{phase.name}'{seconds}"
    )


def _at(program: ProgramFold, compile_: TracedCompile, phase: Phase, title: str) -> Answer:
    stage = stage_of_phase(phase.name)
    kind = _KINDS.get(stage, Kind.INDUCTOR)
    advice: tuple[str, ...] = ()
    if phase.name.endswith("_template_precompiling"):
        kind, advice = Kind.COMPILE_HANG, (_NAMES,)
    elif stage == stages.AUTOTUNE:
        kind, advice = Kind.BENCHMARK_HANG, (_NAMES,)
    elif stage in stages.NATIVE_COMPILES:
        kind = Kind.KERNELS
    return Answer(
        kind=kind,
        title=f"{title}: {WORDS.get(stage, 'the compiler')}",
        program=program.program,
        confidence="likely",
        stage=stage,
        compile_id=compile_.compile_id,
        evidence=_phase_evidence(compile_, phase),
        advice=advice,
    )


def _phase_evidence(compile_: TracedCompile, phase: Phase) -> tuple[LogLine, ...]:
    found = [place_evidence(phase.began, f"{phase.name} begins")]
    if phase.ended is not None:
        found.append(place_evidence(phase.ended, f"{phase.name} ends, with every enclosing phase"))
    if compile_.metrics_at is not None:
        code = compile_.metrics.get("has_guarded_code", "?")
        found.append(place_evidence(compile_.metrics_at, f"has_guarded_code: {code}"))
    found += [
        place_evidence(phase.began, f"compiled before: {name}") for name in compile_.outputs[-2:]
    ]
    return tuple(found)


def _failed(program: ProgramFold, compile_: TracedCompile) -> Answer:
    reason = compile_.metrics.get("fail_reason", "")
    origin = compile_.metrics_at
    assert origin is not None
    return Answer(
        kind=Kind.ERROR,
        title=f"a compile failed: {compile_.failure}",
        program=program.program,
        confidence="proven",
        compile_id=compile_.compile_id,
        evidence=(place_evidence(origin, f"{compile_.failure}: {reason}"),),
        advice=("To find the cause of the exception: inductoscope doctor SCRIPT",),
    )


def _done(program: ProgramFold, compiles: list[TracedCompile]) -> Answer:
    ends = [end for c in compiles if (end := c.metrics_at or c.last) is not None]
    last = max(ends, key=lambda origin: origin.line)
    return Answer(
        kind=Kind.CLEAN,
        title=f"every compile in the trace finished ({program.phases.finished})",
        program=program.program,
        confidence="proven",
        is_problem=False,
        evidence=(place_evidence(last, "the last compile has metrics, and no phase is open"),),
        notes=("a trace does not show how the compiled code ran",),
    )


# --- Answers about autotuning: choices that do not finish compiling, or do not return when run ----

# A compile logs these only after it stops waiting for choices.
_AFTER_WAITING = (SCHEDULER, LOWERING, CODEGEN, LOOP_BODY, WRAPPER, CPP_COMPILE)


def compile_hang(program: ProgramFold) -> Answer | None:
    if program.has_failed:
        return None
    groups = [group for group in program.autotune.groups if _is_stuck(program, group)]
    if not groups:
        return None
    stuck = [state for group in groups for state in group.stuck]
    group = groups[-1]
    confidence, proof = _waiting_proof(program, groups)
    return Answer(
        kind=Kind.COMPILE_HANG,
        title=_stuck_title(group, len(groups)),
        program=program.program,
        confidence=confidence,
        stage=AUTOTUNE,
        compile_id=group.origin.compile_id,
        evidence=present(
            (
                choice_evidence(stuck[0], "never finished:") if stuck else None,
                _last_result(group),
                place_evidence(group.awaited_at, "Waiting on futures")
                if group.awaited_at
                else None,
                *proof,
            )
        ),
        advice=_compile_advice(group),
        command=_alone(groups),
        notes=_left_out(groups),
        groups=tuple(groups),
    )


def _left_out(groups: list[Group]) -> tuple[str, ...]:
    """Notes on lines of these groups that are missing from the log or cut off."""
    notes = []
    if any(group.announced is None for group in groups):
        notes.append(
            "the log starts in the middle of this: more choices may be stuck than it names"
        )
    cut = sum(group.cut for group in groups)
    if cut:
        notes.append(f"ignored {count_of(cut, 'line')} cut off inside the name of a choice")
    return tuple(notes)


def _is_stuck(program: ProgramFold, group: Group) -> bool:
    if not group.stuck and not group.unnamed and not group.is_illegible:
        return False
    return not _went_on(program, group)


def _went_on(program: ProgramFold, group: Group) -> bool:
    """Whether a later line of the same compile shows that the wait is over."""
    for compile_ in program.compiles:
        if compile_.compile_id == group.origin.compile_id and group.last is not None:
            last = compile_.last
            later = last.origin.file != group.last.file or last.origin.line > group.last.line
            return later and stage_of_module(last.module) in _AFTER_WAITING
    return False


def _stuck_title(group: Group, groups: int) -> str:
    operation = f" of {group.operation}" if group.operation else ""
    if group.is_illegible:
        return f"torch is waiting for choices{operation}; the lines that name them are cut off"
    if not group.stuck:
        return (
            f"up to {group.unnamed} of {group.announced} choices{operation} were not compiled "
            "when the log ended"
        )
    more = f" in the last of {groups} such groups" if groups > 1 else ""
    return (
        f"{len(group.stuck)} of {len(group.submitted)} kernels{operation} never finished "
        f"compiling{more}"
    )


def _last_result(group: Group) -> LogLine | None:
    done = [s for s in (*group.finished, *group.failed) if s.origins]
    if not done:
        return None
    last = max(done, key=lambda state: state.origins[-1].line)
    took = f" (took {last.seconds:.2f} s)" if last.seconds is not None else ""
    return choice_evidence(last, f"the last result{took}:")


def _waiting_proof(
    program: ProgramFold, groups: list[Group]
) -> tuple[Confidence, tuple[LogLine | None, ...]]:
    """Whether something shows that the program was still waiting, and for how long."""
    interrupt = program.last_interrupt
    if interrupt is not None:
        stage, frame = interrupt.stage
        shown = (*failure_evidence(interrupt, frame), _assemblers(program))
        return ("proven" if stage == AUTOTUNE and interrupt.sure else "likely"), shown
    timed_out = [s for group in groups for s in group.timed_out]
    if timed_out:
        return "proven", (choice_evidence(timed_out[-1], "torch gave up on"),)
    return "likely", ()


def _assemblers(program: ProgramFold) -> LogLine | None:
    """The interrupt reaches every assembler that is running, and Triton says so."""
    killed = program.assemblers_killed
    if not killed:
        return None
    return place_evidence(
        killed[0].origin, f"ptxas was still running for {count_of(len(killed), 'kernel')}"
    )


def _compile_advice(group: Group) -> tuple[str, ...]:
    advice = (
        "Workaround: turn max_autotune off for this run, or leave out the configurations that hang",
    )
    if group.submitted_seen:
        return advice
    return ('To see which: run again with TORCH_LOGS="+inductor", until it hangs', *advice)


def _alone(groups: list[Group]) -> str:
    """The command that compiles one of them alone."""
    states = [state for group in groups for state in (*group.stuck, *group.pending)]
    paths = [s.choice.path for s in states if s.choice.path.endswith(".py")]
    return f"inductoscope kernel {shlex.quote(paths[0])} --timeout 60" if paths else ""


def unclear_wait(program: ProgramFold) -> Answer | None:
    """A wait for one of several groups, where no line says which."""
    if program.has_failed:
        return None
    for origin, groups in program.autotune.unclear_waits():
        if any(_went_on(program, group) for group in groups):
            continue
        count = sum(len(group.pending) for group in groups)
        confidence, proof = _waiting_proof(program, [])
        return Answer(
            kind=Kind.COMPILE_HANG,
            title=f"none of {count} kernels finished compiling; {len(groups)} groups of "
            "choices were submitted, and torch is waiting for one of them",
            program=program.program,
            confidence="likely" if confidence == "likely" else "proven",
            stage=AUTOTUNE,
            compile_id=origin.compile_id,
            evidence=present((place_evidence(origin, "Waiting on futures"), *proof)),
            advice=_compile_advice(groups[0]),
            command=_alone(groups),
            groups=tuple(groups),
        )
    return None


def benchmark_hang(program: ProgramFold) -> Answer | None:
    if program.has_failed:
        return None
    stages = (GroupState.BENCHMARKING, GroupState.COMPILED)
    groups = [g for g in program.autotune.groups if g.stage in stages and not _went_on(program, g)]
    interrupt = program.last_interrupt
    if interrupt is not None and interrupt.stage[0] not in (BENCHMARK, AUTOTUNE):
        groups = []
    if not groups:
        return None
    group = groups[-1]
    ahead = bool(group.submitted)
    title = (
        f"the choices{' of ' + group.operation if group.operation else ''} are being benchmarked"
    )
    proof = failure_evidence(interrupt, interrupt.stage[1]) if interrupt is not None else ()
    return Answer(
        kind=Kind.BENCHMARK_HANG,
        title=f"{title}, but no result follows",
        program=program.program,
        confidence="proven" if interrupt is not None else "likely",
        stage=AUTOTUNE,
        compile_id=group.origin.compile_id,
        evidence=present((place_evidence(group.last or group.origin, _last_step(group)), *proof)),
        advice=_benchmark_advice(ahead),
        groups=(group,),
    )


def _last_step(group: Group) -> str:
    if group.stage is GroupState.BENCHMARKING:
        return "Starting autotuning"
    return "every choice was compiled or failed"


def _benchmark_advice(ahead: bool) -> tuple[str, ...]:
    if ahead:
        return (
            "All choices are compiled: one of them does not return when it runs. "
            "TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC=1 runs each in a subprocess, with a timeout",
        )
    return (
        "Nothing was precompiled (torch does not with Python 3.11.8 and older, or a timeout of "
        "0), so each choice is compiled when it is benchmarked: a compile may hang",
        "Run with Python 3.12 or newer and TORCH_LOGS=+inductor: then the log names the choice",
    )


# --------------------------------------------------------------------------------------------------
# Is it a kernel that hangs in the compiler, or something else? For each program that wrote a log.
#
# The questions are asked in turn, and the first that applies gives the answer: each with the lines
# that show it, how sure that is, and what to do. A log that ends does not prove a hang, since it
# may be read too early: only a traceback, a timeout or a later line is proof.

ALL_LOGS = 'TORCH_LOGS="+dynamo,+aot,+inductor"'
_BEGINNINGS = {
    LineMeaning.TRACING: stages.DYNAMO,
    LineMeaning.TRACED: stages.DYNAMO,
    LineMeaning.BACKEND: stages.AOT,
    LineMeaning.INDUCTOR: stages.INDUCTOR,
    LineMeaning.BACKEND_DONE: stages.DYNAMO,
}
_AUTOTUNING = (stages.AUTOTUNE, stages.BENCHMARK)
_SUBMISSIONS = (LineMeaning.GROUP, LineMeaning.SUBMITTED_TO_THREAD, LineMeaning.SUBMITTED_TO_POOL)
# A log with one of these would show that the program ended.
_OF_INDUCTOR = (
    LineMeaning.INDUCTOR_DONE,
    LineMeaning.FROM_CACHE,
    LineMeaning.RUN,
    LineMeaning.GROUP,
)
_STAGE_KINDS = {
    stages.DYNAMO: Kind.DYNAMO,
    stages.AOT: Kind.AOT,
    stages.TRITON_COMPILE: Kind.KERNELS,
    stages.CPP_COMPILE: Kind.KERNELS,
    stages.RUNTIME: Kind.RUN_TIME,
    stages.USER: Kind.RUN_TIME,
}


def judge(reading: LogReading) -> list[Answer]:
    """An answer for every program, the most telling ones first."""
    judged = [(judge_program(program), program) for program in reading.programs]
    one_file = len({p.last_error.origin.file for _, p in judged if p.last_error is not None}) == 1

    def order(pair: tuple[Answer, ProgramFold]) -> tuple[bool, int, int, str]:
        answer, program = pair
        error = program.last_error if one_file else None
        # A rank that dies makes the others fail later.
        line = error.origin.line if error is not None else 0
        return (*urgency(answer), line, answer.program.label)

    return [answer for answer, _ in sorted(judged, key=order)]


def judge_program(program: ProgramFold) -> Answer:
    """The first answer that applies."""
    for rule in _RULES:
        answer = rule(program)
        if answer is not None:
            return _with_errors(program, answer)
    return _with_errors(program, _cannot_tell(program))


def _with_errors(program: ProgramFold, answer: Answer) -> Answer:
    """Add what else was logged: it may have caused the hang."""
    notes = [*answer.notes]
    by_interrupt = program.last_interrupt is not None and program.assemblers_killed
    if answer.kind is not Kind.ERROR and program.errors and not by_interrupt:
        first = line_evidence(program.errors[0])
        number = program.number_of_errors
        notes.append(f"{count_of(number, 'logged error')}; the first: {first.text} ({first.place})")
    notes += [
        f"a thread or a child failed: {shortened(seen.failure.error)} ({seen.origin.place})"
        for seen in program.asides[-1:]
    ]
    if program.exit is not None and not program.has_failed:
        notes.append(f"signal {-(program.exit_code or 0)} killed it ({program.exit.origin.place})")
    return replace(answer, notes=tuple(notes))


# --- tracebacks -----------------------------------------------------------------------------------


def _error(program: ProgramFold) -> Answer | None:
    error = program.last_error
    if error is None:
        return _exit(program) if program.has_failed else None
    stage, frame = error.stage
    message = error.failure.error or "a truncated traceback"
    what = "a crash" if error.is_crash else "an exception"
    return Answer(
        kind=Kind.ERROR,
        title=f"{what}, not a hang: {message[:160]}",
        program=program.program,
        confidence="proven" if error.failure.error and error.sure else "likely",
        stage=stages.NO_STAGE if stage == stages.USER else stage,
        evidence=failure_evidence(error, frame),
        advice=("To find the cause of the exception: inductoscope doctor SCRIPT",),
    )


def _exit(program: ProgramFold) -> Answer:
    """Only the launcher says that it failed."""
    last = program.compiles[-1].last if program.compiles else program.last
    return Answer(
        kind=Kind.ERROR,
        title=f"not a hang: it exited with code {program.exit_code}, and the log does not say why",
        program=program.program,
        confidence="proven",
        evidence=tuple(line_evidence(seen) for seen in (program.exit, last) if seen is not None),
        advice=("Read its stderr, or find the cause with: inductoscope doctor SCRIPT",),
    )


def _waits_for_a_rank(program: ProgramFold) -> Answer | None:
    if program.collective is None:
        return None
    return Answer(
        kind=Kind.RUN_TIME,
        title="a collective waited for another rank until it timed out",
        program=program.program,
        confidence="proven",
        stage=stages.RUNTIME,
        evidence=(line_evidence(program.collective),),
        advice=("Check the ranks it waited for: one of them may still be compiling",),
    )


def _interrupted(program: ProgramFold) -> Answer | None:
    interrupt = program.last_interrupt
    if interrupt is None:
        return None
    stage, frame = interrupt.stage
    if stage in _AUTOTUNING:
        kind = Kind.INTERRUPTED
        title = f"{_seen_in(interrupt)} {WORDS[stage]}; the log names no choice"
    elif stage in (stages.RUNTIME, stages.USER) and not _shows_compile(program):
        kind = Kind.INTERRUPTED
        title = f"{_seen_in(interrupt)} {WORDS.get(stage, stage)}; the log shows no compile"
    else:
        kind = _STAGE_KINDS.get(stage, Kind.INDUCTOR)
        title = f"{_seen_in(interrupt)} {WORDS.get(stage, stage)}"
    return Answer(
        kind=kind,
        title=title,
        program=program.program,
        confidence="proven" if interrupt.sure else "likely",
        stage=stage,
        evidence=failure_evidence(interrupt, frame),
        advice=_stage_advice(stage) if stage not in _AUTOTUNING else _CHOICE_ADVICE,
    )


def _shows_compile(program: ProgramFold) -> bool:
    """AOTInductor compiles under no id, but begins and ends as any other compile does."""
    seen = {*program.last_seen} - {LineMeaning.RUN, LineMeaning.ENDING}
    return bool(program.compiles or program.phases.records or seen)


_CHOICE_ADVICE = (
    f"To see which choice: run again with {ALL_LOGS}",
    "While it hangs: inductoscope attach PID shows the stack",
)


def _seen_in(stack: SeenFailure) -> str:
    return "a stack dump shows it in" if stack.failure.is_dump else "interrupted in"


# --- lines ----------------------------------------------------------------------------------------


def _clean(program: ProgramFold) -> Answer | None:
    if program.ending is None:
        return None
    compile_ = program.unfinished
    if compile_ is not None:
        return None
    return Answer(
        kind=Kind.CLEAN,
        title="the program ended and every compile finished"
        if _shows_compile(program)
        else "the program ended; the log shows no compile",
        program=program.program,
        confidence="proven",
        is_problem=False,
        evidence=(line_evidence(program.ending),),
        notes=_notes(program),
    )


def _notes(program: ProgramFold) -> tuple[str, ...]:
    failed = sum(len(group.failed) for group in program.autotune.groups)
    return (f"{count_of(failed, 'choice')} failed to compile; that is usual",) if failed else ()


def _in_a_stage(program: ProgramFold) -> Answer | None:
    compile_ = program.unfinished
    if compile_ is None:
        return _submitted(program)
    if LineMeaning.CODE in compile_.last_seen and LineMeaning.OUTPUT not in _after(
        compile_, LineMeaning.CODE
    ):
        return _kernels(program, compile_)
    stage = _stage_of(compile_)
    submitted = _submitted(program)
    if submitted is not None:
        return submitted
    kind = _STAGE_KINDS.get(stage, Kind.INDUCTOR)
    ended = program.ending is not None
    return Answer(
        kind=kind,
        title=_stage_title(stage, ended),
        program=program.program,
        confidence="likely",
        stage=stages.NO_STAGE if stage == stages.INDUCTOR else stage,
        compile_id=compile_.compile_id,
        evidence=present((_function(compile_), line_evidence(compile_.last))),
        advice=_stage_advice(stage),
    )


def _submitted(program: ProgramFold) -> Answer | None:
    """Its last step was to submit choices to the compilers; it does not wait for them yet."""
    compile_ = program.compiles[-1] if program.compiles else None
    if compile_ is None or next(reversed(compile_.last_seen), None) not in _SUBMISSIONS:
        return None
    groups = program.autotune.groups
    if stage_of_module(compile_.last.module) != stages.AUTOTUNE or not groups:
        return None
    group = groups[-1]
    return Answer(
        kind=Kind.COMPILE_HANG,
        title="choices were submitted to the compilers, and this compile logged nothing more",
        program=program.program,
        confidence="likely" if not group.submitted_seen else "unknown",
        stage=stages.AUTOTUNE,
        compile_id=compile_.compile_id,
        evidence=(line_evidence(compile_.last),),
        advice=_submitted_advice(group),
        groups=(group,),
    )


def _submitted_advice(group: Group) -> tuple[str, ...]:
    if not group.submitted_seen:
        return (
            f"To see which choices, and whether torch waits for them: run again with {ALL_LOGS}",
        )
    return (
        "No line says that torch waits for them: the next step of lowering may hang instead",
        "While it hangs: inductoscope attach PID shows the stack",
    )


def _function(compile_: CompileProgress) -> LogLine | None:
    """The user's function that is being compiled."""
    begun = compile_.last_seen.get(LineMeaning.TRACING)
    return line_evidence(begun) if begun is not None else None


def _stage_title(stage: str, ended: bool) -> str:
    words = WORDS.get(stage, stage)
    if ended:
        return f"it ended in the middle of a compile; its last line comes from {words}"
    return f"the last line of its compile comes from {words}"


def _after(compile_: CompileProgress, meaning: LineMeaning) -> list[LineMeaning]:
    meanings = list(compile_.last_seen)
    return meanings[meanings.index(meaning) :]


def _stage_of(compile_: CompileProgress) -> str:
    """The stage of its last line's module, or, if every stage uses that module, what began last."""
    stage = stage_of_module(compile_.last.module)
    last = next((_BEGINNINGS[s] for s in reversed(compile_.last_seen) if s in _BEGINNINGS), "")
    # What comes next writes nothing so far; or Dynamo cleans up after it was interrupted.
    handed_over = stage == stages.DYNAMO and last in (stages.AOT, stages.INDUCTOR)
    return last if last and (stage == stages.USER or handed_over) else stage


def _kernels(program: ProgramFold, compile_: CompileProgress) -> Answer:
    on = any(program.settings.get(name) for name in ("max_autotune", "max_autotune_gemm"))
    why = "the generated kernels are being compiled"
    if not on:
        why += "; autotuning is off"
    last_kernel = compile_.last_seen.get(LineMeaning.KERNEL)
    seen = (last_kernel, compile_.last_seen[LineMeaning.CODE], compile_.last)
    return Answer(
        kind=Kind.KERNELS,
        title=why,
        program=program.program,
        confidence="likely",
        # A kernel for the C++ compiler is generated without a line that says so.
        stage=stages.TRITON_COMPILE if last_kernel is not None else stages.CPP_COMPILE,
        compile_id=compile_.compile_id,
        evidence=present(line_evidence(line) for line in dict.fromkeys(seen) if line is not None),
        advice=(
            "While it hangs: inductoscope attach PID names the kernel and the compiler",
            "Or run it again: inductoscope run SCRIPT",
        ),
    )


def _compiled(program: ProgramFold) -> Answer | None:
    """Every compile that the log holds is done, but no line says that the program ended."""
    told = any(meaning in program.last_seen for meaning in _OF_INDUCTOR)
    if not program.compiles or not program.compiles[-1].done or not told:
        return None
    seen = dict.fromkeys((program.compiles[-1].last, program.last))
    return Answer(
        kind=Kind.RUN_TIME,
        title="every compile finished, but the log does not show that the program ended: it hung "
        "or was killed later, or it is still running",
        program=program.program,
        confidence="likely",
        stage=stages.RUNTIME,
        evidence=tuple(line_evidence(line) for line in seen if line is not None),
        advice=_stage_advice(stages.RUNTIME),
    )


def _cannot_tell(program: ProgramFold) -> Answer:
    return Answer(
        kind=Kind.UNKNOWN,
        title="the log does not contain enough to decide",
        program=program.program,
        confidence="unknown",
        is_problem=False,
        evidence=(line_evidence(program.last),) if program.last else (),
        advice=(f"Run again with {ALL_LOGS}",),
    )


def _stage_advice(stage: str) -> tuple[str, ...]:
    if stage == stages.DYNAMO:
        return (
            "It is not a kernel: Dynamo does not finish tracing the Python code",
            "TORCH_LOGS=+dynamo shows the line being traced; inductoscope run SCRIPT watches it",
        )
    if stage == stages.AOT:
        return (
            "It is not a kernel: AOTAutograd is tracing, or Inductor's first passes are running",
            "TORCH_LOGS=+aot,+inductor shows how far it gets",
        )
    if stage in (stages.RUNTIME, stages.USER):
        return (
            "It was not compiling: if it hangs, then a kernel does not return, a collective waits "
            "for another rank, or the program itself hangs",
            "While it hangs: inductoscope attach PID",
        )
    if stage == stages.CPP_COMPILE:
        return (
            "The C++ compiler itself does not finish, or something holds it up (memory, disk)",
            "While it hangs: inductoscope attach PID names the file and the compiler",
        )
    return (
        "No choice was being compiled; this stage itself hangs or is slow",
        "While it hangs: inductoscope attach PID shows the stack",
    )


_RULES: tuple[Callable[[ProgramFold], Answer | None], ...] = (
    compile_hang,
    unclear_wait,
    benchmark_hang,
    _waits_for_a_rank,
    _error,
    _interrupted,
    recompile_limit,
    _clean,
    answer_from_trace,
    _in_a_stage,
    _compiled,
)
