"""Answers about autotuning: choices that do not finish compiling, or do not return when run."""

from __future__ import annotations

import shlex

from inductoscope.hangs.logs.answer import (
    Answer,
    Kind,
    LogLine,
    choice_evidence,
    failure_evidence,
    place_evidence,
    present,
)
from inductoscope.hangs.logs.groups import Group, GroupState
from inductoscope.hangs.logs.program import ProgramFold
from inductoscope.vocabulary.counting import count_of
from inductoscope.vocabulary.stage_lookup import stage_of_module
from inductoscope.vocabulary.stages import (
    AUTOTUNE,
    BENCHMARK,
    CODEGEN,
    CPP_COMPILE,
    LOOP_BODY,
    LOWERING,
    SCHEDULER,
    WRAPPER,
)
from inductoscope.vocabulary.verdicts import Confidence

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
    """What the log does not show of these groups."""
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
