"""The answer of a log for each program: the outcome, the lines that prove it, the advice.

Is it a kernel that hangs in the compiler, or something else? The rules are asked in turn, and the
first that applies gives the answer. A log that ends does not prove a hang, since it may be read too
early: only a traceback, a timeout or a later line is proof.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
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
from inductoscope.torch_facts.stages import WORDS
from inductoscope.verdicts import Confidence
from inductoscope.wording import count_of

_LONGEST_EVIDENCE = 300


class Kind(str, Enum):
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
    place: str
    text: str


@dataclass(frozen=True)
class Answer:
    """The outcome of one program, with evidence and advice."""

    kind: Kind
    title: str
    confidence: Confidence
    stage: str = stages.NO_STAGE
    compile_id: str = ""
    is_problem: bool = True
    evidence: tuple[LogLine, ...] = ()
    advice: tuple[str, ...] = ()
    # The command to run.
    command: str = ""
    notes: tuple[str, ...] = ()
    groups: tuple[Group, ...] = field(default=(), compare=False)
    # Set by `judge_program`, not by the rules.
    program: Program = field(default_factory=lambda: Program(""))


_FIRST = (Kind.COMPILE_HANG, Kind.BENCHMARK_HANG, Kind.KERNELS, Kind.ERROR)


def urgency(answer: Answer) -> tuple[bool, int]:
    """Return a sort key: problems first, and of those the most telling ones."""
    kind = answer.kind
    return not answer.is_problem, _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def judge(reading: LogReading) -> list[Answer]:
    """Return an answer for every program, the most telling ones first."""
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
    """Return the first answer that applies, with logged errors that may have caused it."""
    answer = next(found for rule in _RULES if (found := rule(program)) is not None)
    notes = [*answer.notes]
    by_interrupt = program.last_interrupt is not None and program.assemblers_killed
    if answer.kind is not Kind.ERROR and program.first_error and not by_interrupt:
        first = _line(program.first_error)
        number = program.number_of_errors
        notes.append(f"{count_of(number, 'logged error')}; the first: {first.text} ({first.place})")
    if program.aside is not None:
        error, place = program.aside.failure.error, program.aside.origin.place
        notes.append(f"a thread or a child failed: {_shortened(error)} ({place})")
    if program.exit is not None and not program.has_failed:
        notes.append(f"signal {-(program.exit_code or 0)} killed it ({program.exit.origin.place})")
    return replace(answer, program=program.program, notes=tuple(notes))


# --- evidence -------------------------------------------------------------------------------------


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_EVIDENCE else text[: _LONGEST_EVIDENCE - 1] + "…"


def _at(origin: Origin, text: str) -> LogLine:
    """Return a line as evidence, quoted or in our words."""
    return LogLine(origin.place, _shortened(text))


def _line(seen: Seen) -> LogLine:
    return _at(seen.origin, seen.text.strip() or f"(a line of {seen.module})")


def _lines(found: Iterable[Seen | None]) -> tuple[LogLine, ...]:
    return tuple(_line(seen) for seen in dict.fromkeys(found) if seen is not None)


def _choice(state: ChoiceState, words: str) -> LogLine:
    return _at(state.origins[-1], f"{words} {state.choice.short_name or state.choice.text}")


def _failure(seen: SeenFailure) -> tuple[LogLine, ...]:
    """Return a traceback as evidence, with the frame that determined its stage."""
    failure, origin = seen.failure, seen.origin
    last_line = f"{origin.file}:{origin.line + failure.lines - 1}"
    error = LogLine(last_line, _shortened(failure.error or "(cut)"))
    if not failure.frames:
        return (error,)
    where = failure.frames[seen.stage[1]]
    return _at(origin, f"in {where.function}, {shorten(where.file)}:{where.line}"), error


# --- autotuning: choices that do not finish compiling, or do not return when run ------------------

# A compile logs these only after it stops waiting for choices.
_AFTER_WAITING = (
    *(stages.SCHEDULER, stages.LOWERING, stages.CODEGEN, stages.LOOP_BODY),
    *(stages.WRAPPER, stages.CPP_COMPILE),
)


def _compile_hang(program: ProgramFold) -> Answer | None:
    if program.has_failed:
        return None
    groups = [group for group in program.autotune.groups if _is_stuck(program, group)]
    if groups:
        return _waiting(program, groups, groups[-1].awaited_at, _stuck_title(groups))
    # Torch waits for one of several groups, and no line says for which.
    for origin, groups in program.autotune.unclear_waits():
        if not any(_went_on(program, group) for group in groups):
            count = sum(len(group.pending) for group in groups)
            title = (
                f"none of {count} kernels finished compiling; {len(groups)} groups of choices were "
                "submitted, and torch is waiting for one of them"
            )
            return _waiting(program, groups, origin, title)
    return None


def _waiting(
    program: ProgramFold, groups: list[Group], awaited_at: Origin | None, title: str
) -> Answer:
    group = groups[-1]
    stuck = [state for group in groups for state in group.stuck if state.origins]
    results = [s for s in (*group.finished, *group.failed) if s.origins]
    confidence, proof = _waiting_proof(program, groups)
    evidence = [_choice(stuck[0], "never finished:")] if stuck else []
    if results:
        last = max(results, key=lambda state: state.origins[-1].line)
        took = f" (took {last.seconds:.2f} s)" if last.seconds is not None else ""
        evidence.append(_choice(last, f"the last result{took}:"))
    if awaited_at is not None:
        evidence.append(_at(awaited_at, "Waiting on futures"))
    advice = ['To see which: run again with TORCH_LOGS="+inductor", until it hangs']
    return Answer(
        kind=Kind.COMPILE_HANG,
        title=title,
        confidence=confidence,
        stage=stages.AUTOTUNE,
        compile_id=group.origin.compile_id,
        evidence=(*evidence, *proof),
        advice=(
            *(advice if not group.submitted_seen else ()),
            "Workaround: turn max_autotune off for this run, or leave out the configurations that "
            "hang",
        ),
        command=_alone(groups),
        notes=_left_out(groups),
        groups=tuple(groups),
    )


def _left_out(groups: list[Group]) -> tuple[str, ...]:
    """Return notes on lines of these groups that are missing from the log or cut off."""
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
    is_open = bool(group.stuck or group.unnamed or group.is_illegible)
    return is_open and not _went_on(program, group)


def _went_on(program: ProgramFold, group: Group) -> bool:
    """Check whether a later line of the same compile shows that the wait is over."""
    for compile_ in program.compiles:
        if compile_.compile_id == group.origin.compile_id and group.last is not None:
            last = compile_.last
            later = last.origin.file != group.last.file or last.origin.line > group.last.line
            return later and stage_of_module(last.module) in _AFTER_WAITING
    return False


def _stuck_title(groups: list[Group]) -> str:
    group = groups[-1]
    operation = f" of {group.operation}" if group.operation else ""
    if group.is_illegible:
        return f"torch is waiting for choices{operation}; the lines that name them are cut off"
    if not group.stuck:
        return (
            f"up to {group.unnamed} of {group.announced} choices{operation} were not compiled "
            "when the log ended"
        )
    more = f" in the last of {len(groups)} such groups" if len(groups) > 1 else ""
    return (
        f"{len(group.stuck)} of {len(group.submitted)} kernels{operation} never finished "
        f"compiling{more}"
    )


def _waiting_proof(
    program: ProgramFold, groups: list[Group]
) -> tuple[Confidence, tuple[LogLine, ...]]:
    """Return whether it is proven that the program was still waiting, with the evidence."""
    interrupt = program.last_interrupt
    timed_out = [s for group in groups for s in group.timed_out]
    if interrupt is None:
        return (
            ("proven", (_choice(timed_out[-1], "torch gave up on"),))
            if timed_out
            else ("likely", ())
        )
    shown = _failure(interrupt)
    killed = program.assemblers_killed
    if killed:
        # The interrupt reaches every assembler that is running, and Triton says so.
        running = f"ptxas was still running for {count_of(len(killed), 'kernel')}"
        shown = (*shown, _at(killed[0].origin, running))
    is_proof = interrupt.stage[0] == stages.AUTOTUNE and interrupt.sure
    return "proven" if is_proof else "likely", shown


def _alone(groups: list[Group]) -> str:
    states = [state for group in groups for state in (*group.stuck, *group.pending)]
    paths = [s.choice.path for s in states if s.choice.path.endswith(".py")]
    return f"inductoscope kernel {shlex.quote(paths[0])} --timeout 60" if paths else ""


def _benchmark_hang(program: ProgramFold) -> Answer | None:
    interrupt = program.last_interrupt
    is_elsewhere = interrupt is not None and interrupt.stage[0] not in _AUTOTUNING
    if program.has_failed or is_elsewhere:
        return None
    states = (GroupState.BENCHMARKING, GroupState.COMPILED)
    groups = [g for g in program.autotune.groups if g.stage in states and not _went_on(program, g)]
    if not groups:
        return None
    group = groups[-1]
    has_begun = group.stage is GroupState.BENCHMARKING
    last_step = "Starting autotuning" if has_begun else "every choice was compiled or failed"
    operation = f" of {group.operation}" if group.operation else ""
    return Answer(
        kind=Kind.BENCHMARK_HANG,
        title=f"the choices{operation} are being benchmarked, but no result follows",
        confidence="proven" if interrupt is not None else "likely",
        stage=stages.AUTOTUNE,
        compile_id=group.origin.compile_id,
        evidence=(
            _at(group.last or group.origin, last_step),
            *(_failure(interrupt) if interrupt is not None else ()),
        ),
        advice=_COMPILED_AHEAD if group.submitted else _NOT_COMPILED_AHEAD,
        groups=(group,),
    )


_COMPILED_AHEAD = (
    "All choices are compiled: one of them does not return when it runs. "
    "TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC=1 runs each in a subprocess, with a timeout",
)
_NOT_COMPILED_AHEAD = (
    "Nothing was precompiled (torch does not with Python 3.11.8 and older, or a timeout of "
    "0), so each choice is compiled when it is benchmarked: a compile may hang",
    "Run with Python 3.12 or newer and TORCH_LOGS=+inductor: then the log names the choice",
)


# --- tracebacks -----------------------------------------------------------------------------------

ALL_LOGS = 'TORCH_LOGS="+dynamo,+aot,+inductor"'
_TO_FIND_THE_CAUSE = "To find the cause of the exception: inductoscope doctor SCRIPT"
_AUTOTUNING = (stages.AUTOTUNE, stages.BENCHMARK)
_STAGE_KINDS = {
    stages.DYNAMO: Kind.DYNAMO,
    stages.AOT: Kind.AOT,
    stages.TRITON_COMPILE: Kind.KERNELS,
    stages.CPP_COMPILE: Kind.KERNELS,
    stages.RUNTIME: Kind.RUN_TIME,
    stages.USER: Kind.RUN_TIME,
}


def _error(program: ProgramFold) -> Answer | None:
    error = program.last_error
    if error is None:
        return _exit(program) if program.has_failed else None
    stage = error.stage[0]
    message = error.failure.error or "a truncated traceback"
    what = "a crash" if error.is_crash else "an exception"
    return Answer(
        kind=Kind.ERROR,
        title=f"{what}, not a hang: {message[:160]}",
        confidence="proven" if error.failure.error and error.sure else "likely",
        stage=stages.NO_STAGE if stage == stages.USER else stage,
        evidence=_failure(error),
        advice=(_TO_FIND_THE_CAUSE,),
    )


def _exit(program: ProgramFold) -> Answer:
    """Report a failure that only the launcher logged."""
    last = program.compiles[-1].last if program.compiles else program.last
    return Answer(
        kind=Kind.ERROR,
        title=f"not a hang: it exited with code {program.exit_code}, and the log does not say why",
        confidence="proven",
        evidence=_lines((program.exit, last)),
        advice=("Read its stderr, or find the cause with: inductoscope doctor SCRIPT",),
    )


def _waits_for_a_rank(program: ProgramFold) -> Answer | None:
    if program.collective is None:
        return None
    return Answer(
        kind=Kind.RUN_TIME,
        title="a collective waited for another rank until it timed out",
        confidence="proven",
        stage=stages.RUNTIME,
        evidence=(_line(program.collective),),
        advice=("Check the ranks it waited for: one of them may still be compiling",),
    )


def _interrupted(program: ProgramFold) -> Answer | None:
    interrupt = program.last_interrupt
    if interrupt is None:
        return None
    stage = interrupt.stage[0]
    kind, advice, more = _STAGE_KINDS.get(stage, Kind.INDUCTOR), _stage_advice(stage), ""
    if stage in _AUTOTUNING:
        kind, more = Kind.INTERRUPTED, "; the log names no choice"
        advice = (
            f"To see which choice: run again with {ALL_LOGS}",
            "While it hangs: inductoscope attach PID shows the stack",
        )
    elif kind is Kind.RUN_TIME and not _shows_compile(program):
        kind, more = Kind.INTERRUPTED, "; the log shows no compile"
    seen_in = "a stack dump shows it in" if interrupt.failure.is_dump else "interrupted in"
    return Answer(
        kind=kind,
        title=f"{seen_in} {WORDS.get(stage, stage)}{more}",
        confidence="proven" if interrupt.sure else "likely",
        stage=stage,
        evidence=_failure(interrupt),
        advice=advice,
    )


def _shows_compile(program: ProgramFold) -> bool:
    """Check whether the log shows a compile; those of AOTInductor have no id."""
    seen = {*program.last_seen} - {LineMeaning.RUN, LineMeaning.ENDING}
    return bool(program.compiles or program.phases.records or seen)


# --- lines ----------------------------------------------------------------------------------------

_BEGINNINGS = {
    LineMeaning.TRACING: stages.DYNAMO,
    LineMeaning.TRACED: stages.DYNAMO,
    LineMeaning.BACKEND: stages.AOT,
    LineMeaning.INDUCTOR: stages.INDUCTOR,
    LineMeaning.BACKEND_DONE: stages.DYNAMO,
}
_SUBMISSIONS = (LineMeaning.GROUP, LineMeaning.SUBMITTED_TO_THREAD, LineMeaning.SUBMITTED_TO_POOL)
# A log with one of these would show that the program ended.
_OF_INDUCTOR = (
    LineMeaning.INDUCTOR_DONE,
    LineMeaning.FROM_CACHE,
    LineMeaning.RUN,
    LineMeaning.GROUP,
)


def _recompile_limit(program: ProgramFold) -> Answer | None:
    """Report that Dynamo gave up on a function; nothing else is known to be wrong."""
    seen = program.last_seen.get(LineMeaning.RECOMPILE_LIMIT)
    if seen is None or program.unfinished is not None:
        return None
    limit = seen.text.partition("config.")[2].strip() or "the recompile limit"
    functions = [f"{name} ({place})" for name, place in program.at_limit.items()] or ["a function"]
    were = "were" if len(functions) > 1 else "was"
    return Answer(
        kind=Kind.RECOMPILE_LIMIT,
        title=f"{', '.join(functions)} {were} compiled until torch reached {limit}; inputs that "
        "fit none of the compiled versions run in eager since then, the others still run compiled",
        confidence="proven",
        stage=stages.DYNAMO,
        evidence=(_line(seen),),
        advice=(
            "The lines after it name the guard that failed last",
            "All guards that fail, and what to change: inductoscope run SCRIPT",
        ),
    )


def _clean(program: ProgramFold) -> Answer | None:
    if program.ending is None or program.unfinished is not None:
        return None
    failed = sum(len(group.failed) for group in program.autotune.groups)
    compiled = " and every compile finished" if _shows_compile(program) else ""
    return Answer(
        kind=Kind.CLEAN,
        title=f"the program ended{compiled or '; the log shows no compile'}",
        confidence="proven",
        is_problem=False,
        evidence=(_line(program.ending),),
        notes=(f"{count_of(failed, 'choice')} failed to compile; that is usual",) if failed else (),
    )


def _in_a_stage(program: ProgramFold) -> Answer | None:
    compile_ = program.unfinished
    if compile_ is None:
        return _submitted(program)
    seen = list(compile_.last_seen)
    if LineMeaning.CODE in seen and LineMeaning.OUTPUT not in seen[seen.index(LineMeaning.CODE) :]:
        return _kernels(program, compile_)
    submitted = _submitted(program)
    if submitted is not None:
        return submitted
    stage = _stage_of(compile_)
    where = "the last line of its compile comes"
    if program.ending is not None:
        where = "it ended in the middle of a compile; its last line comes"
    return Answer(
        kind=_STAGE_KINDS.get(stage, Kind.INDUCTOR),
        title=f"{where} from {WORDS.get(stage, stage)}",
        confidence="likely",
        stage=stages.NO_STAGE if stage == stages.INDUCTOR else stage,
        compile_id=compile_.compile_id,
        # The user's function that is being compiled, and where it is.
        evidence=_lines((compile_.last_seen.get(LineMeaning.TRACING), compile_.last)),
        advice=_stage_advice(stage),
    )


def _submitted(program: ProgramFold) -> Answer | None:
    """Report a compile whose last step was to submit choices, without waiting for them yet."""
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
        confidence="unknown" if group.submitted_seen else "likely",
        stage=stages.AUTOTUNE,
        compile_id=compile_.compile_id,
        evidence=(_line(compile_.last),),
        advice=(
            "No line says that torch waits for them: the next step of lowering may hang instead",
            "While it hangs: inductoscope attach PID shows the stack",
        )
        if group.submitted_seen
        else (
            f"To see which choices, and whether torch waits for them: run again with {ALL_LOGS}",
        ),
        groups=(group,),
    )


def _stage_of(compile_: CompileProgress) -> str:
    """Return the stage of the last line's module, or for shared modules, of the last step begun."""
    stage = stage_of_module(compile_.last.module)
    last = next((_BEGINNINGS[s] for s in reversed(compile_.last_seen) if s in _BEGINNINGS), "")
    # The next stage has logged nothing yet, or Dynamo cleans up after an interrupt.
    handed_over = stage == stages.DYNAMO and last in (stages.AOT, stages.INDUCTOR)
    return last if last and (stage == stages.USER or handed_over) else stage


def _kernels(program: ProgramFold, compile_: CompileProgress) -> Answer:
    on = any(program.settings.get(name) for name in ("max_autotune", "max_autotune_gemm"))
    kernel = compile_.last_seen.get(LineMeaning.KERNEL)
    return Answer(
        kind=Kind.KERNELS,
        title=f"the generated kernels are being compiled{'' if on else '; autotuning is off'}",
        confidence="likely",
        # No line announces a kernel for the C++ compiler.
        stage=stages.TRITON_COMPILE if kernel is not None else stages.CPP_COMPILE,
        compile_id=compile_.compile_id,
        evidence=_lines((kernel, compile_.last_seen[LineMeaning.CODE], compile_.last)),
        advice=(
            "While it hangs: inductoscope attach PID names the kernel and the compiler",
            "Or run it again: inductoscope run SCRIPT",
        ),
    )


def _compiled(program: ProgramFold) -> Answer | None:
    """Report that all compiles finished, though no line shows that the program ended."""
    told = any(meaning in program.last_seen for meaning in _OF_INDUCTOR)
    if not program.compiles or not program.compiles[-1].done or not told:
        return None
    return Answer(
        kind=Kind.RUN_TIME,
        title="every compile finished, but the log does not show that the program ended: it hung "
        "or was killed later, or it is still running",
        confidence="likely",
        stage=stages.RUNTIME,
        evidence=_lines((program.compiles[-1].last, program.last)),
        advice=_stage_advice(stages.RUNTIME),
    )


def _cannot_tell(program: ProgramFold) -> Answer:
    return Answer(
        kind=Kind.UNKNOWN,
        title="the log does not contain enough to decide",
        confidence="unknown",
        is_problem=False,
        evidence=_lines([program.last]),
        advice=(f"Run again with {ALL_LOGS}",),
    )


_ATTACH = "While it hangs: inductoscope attach PID"
_AT_RUN_TIME = (
    "It was not compiling: if it hangs, then a kernel does not return, a collective waits "
    "for another rank, or the program itself hangs",
    _ATTACH,
)
_STAGE_ADVICE = {
    stages.DYNAMO: (
        "It is not a kernel: Dynamo does not finish tracing the Python code",
        "TORCH_LOGS=+dynamo shows the line being traced; inductoscope run SCRIPT watches it",
    ),
    stages.AOT: (
        "It is not a kernel: AOTAutograd is tracing, or Inductor's first passes are running",
        "TORCH_LOGS=+aot,+inductor shows how far it gets",
    ),
    stages.RUNTIME: _AT_RUN_TIME,
    stages.USER: _AT_RUN_TIME,
    stages.CPP_COMPILE: (
        "The C++ compiler itself does not finish, or something holds it up (memory, disk)",
        f"{_ATTACH} names the file and the compiler",
    ),
}


def _stage_advice(stage: str) -> tuple[str, ...]:
    return _STAGE_ADVICE.get(
        stage,
        (
            "No choice was being compiled; this stage itself hangs or is slow",
            f"{_ATTACH} shows the stack",
        ),
    )


# --- a TORCH_TRACE, which has phases but does not name choices ------------------------------------


def _from_trace(program: ProgramFold) -> Answer | None:
    """Judge a program by the phases in its trace; None if it wrote no trace."""
    compiles = program.phases.compiles
    if not program.phases.records:
        return None
    open_ = [compile_ for compile_ in compiles if compile_.open]
    if open_:
        compile_ = max(open_, key=lambda c: c.open[-1].began.line)
        phase = compile_.open[-1]
        return _in_phase(compile_, phase, f"the phase '{phase.name}' began and never ended")
    for compile_ in reversed(compiles):
        if compile_.cut_short and compile_.innermost:
            phase = compile_.innermost
            seconds = f" after {phase.seconds:.0f} s" if phase.seconds is not None else ""
            title = f"the compile was cut short in the phase '{phase.name}'{seconds}"
            return _in_phase(compile_, phase, title)
    failed = [compile_ for compile_ in compiles if compile_.failure]
    for compile_ in reversed(failed):
        if not compile_.falls_back and compile_.metrics_at is not None:
            reason = compile_.metrics.get("fail_reason", "")
            in_eager = "unless it is compiled with fullgraph=True, the function runs in eager now"
            return Answer(
                kind=Kind.ERROR,
                title=f"a compile failed: {compile_.failure}",
                confidence="likely" if compile_.may_fall_back else "proven",
                compile_id=compile_.compile_id,
                evidence=(_at(compile_.metrics_at, f"{compile_.failure}: {reason}"),),
                advice=(_TO_FIND_THE_CAUSE,),
                notes=(in_eager,) if compile_.may_fall_back else (),
            )
    ends = [end for c in compiles if (end := c.metrics_at or c.last) is not None]
    last = max(ends, key=lambda origin: origin.line)
    return Answer(
        kind=Kind.CLEAN,
        title=f"every compile in the trace finished ({program.phases.finished})",
        confidence="proven",
        is_problem=False,
        evidence=(_at(last, "the last compile has metrics, and no phase is open"),),
        notes=(
            *_in_eager(failed),
            "a trace does not show how the compiled code ran",
        ),
    )


def _in_eager(left: list[TracedCompile]) -> Iterator[str]:
    """Yield a note on the functions that Dynamo left to eager."""
    if left:
        found = left[0].metrics
        place = f"{found.get('co_filename', '?')}:{found.get('co_firstlineno', '?')}"
        reason = found.get("fail_reason", "").partition("\\n")[0]
        runs = "runs" if len(left) == 1 else "run"
        yield (
            f"{count_of(len(left), 'function')} {runs} in eager; the first: "
            f"{found.get('co_name', '?')} ({shorten(place)}): {_shortened(reason)}"
        )


def _in_phase(compile_: TracedCompile, phase: Phase, title: str) -> Answer:
    stage = stage_of_phase(phase.name)
    kind, advice = Kind.INDUCTOR, tuple[str, ...]()
    names = ('For the names of the choices: run again with TORCH_LOGS="+inductor"',)
    if stage in (stages.DYNAMO, stages.AOT):
        kind = _STAGE_KINDS[stage]
    if phase.name.endswith("_template_precompiling"):
        kind, advice = Kind.COMPILE_HANG, names
    elif stage == stages.AUTOTUNE:
        kind, advice = Kind.BENCHMARK_HANG, names
    elif stage in stages.NATIVE_COMPILES:
        kind = Kind.KERNELS
    evidence = [_at(phase.began, f"{phase.name} begins")]
    if phase.ended is not None:
        evidence.append(_at(phase.ended, f"{phase.name} ends, with every enclosing phase"))
    if compile_.metrics_at is not None:
        code = compile_.metrics.get("has_guarded_code", "?")
        evidence.append(_at(compile_.metrics_at, f"has_guarded_code: {code}"))
    return Answer(
        kind=kind,
        title=f"{title}: {WORDS.get(stage, 'the compiler')}",
        confidence="likely",
        stage=stage,
        compile_id=compile_.compile_id,
        evidence=tuple(evidence),
        advice=advice,
    )


_RULES: tuple[Callable[[ProgramFold], Answer | None], ...] = (
    _compile_hang,
    _benchmark_hang,
    _waits_for_a_rank,
    _error,
    _interrupted,
    _recompile_limit,
    _clean,
    _from_trace,
    _in_a_stage,
    _compiled,
    _cannot_tell,
)
