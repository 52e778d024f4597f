"""The answer from a TORCH_TRACE, which has phases but does not name choices."""

from __future__ import annotations

from inductoscope.hangs.logs.answer import Answer, Kind, LogLine, place_evidence
from inductoscope.hangs.logs.phases import Phase, TracedCompile
from inductoscope.hangs.logs.program import ProgramFold
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.stage_lookup import stage_of_phase
from inductoscope.vocabulary.stages import WORDS

_KINDS = {stages.DYNAMO: Kind.DYNAMO, stages.AOT: Kind.AOT}
_NAMES = 'For the names of the choices: run again with TORCH_LOGS="+inductor"'


def answer_from_trace(program: ProgramFold) -> Answer | None:
    """What the phases show; None if the program wrote no trace."""
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
