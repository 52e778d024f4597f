"""Is it a kernel that hangs in the compiler, or something else? For each program that wrote a log.

The questions are asked in turn, and the first that applies gives the answer: each with the lines
that show it, how sure that is, and what to do. A log that ends does not prove a hang, since it
may be read too early: only a traceback, a timeout or a later line is proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from inductoscope.hangs.logs.answer import (
    Answer,
    Kind,
    LogLine,
    failure_evidence,
    line_evidence,
    present,
    shortened,
    urgency,
)
from inductoscope.hangs.logs.autotune_hangs import benchmark_hang, compile_hang, unclear_wait
from inductoscope.hangs.logs.groups import Group
from inductoscope.hangs.logs.program import CompileProgress, ProgramFold, SeenFailure
from inductoscope.hangs.logs.reading import LogReading
from inductoscope.hangs.logs.recompile_limit import recompile_limit
from inductoscope.hangs.logs.torch_trace import answer_from_trace
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.counting import count_of
from inductoscope.vocabulary.line_meanings import LineMeaning
from inductoscope.vocabulary.stage_lookup import stage_of_module
from inductoscope.vocabulary.stages import WORDS

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
