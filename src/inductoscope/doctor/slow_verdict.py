"""The verdict on a compile that takes too long, and what was tried against it."""

from __future__ import annotations

from dataclasses import replace

from inductoscope import verdicts as v
from inductoscope.analysis.rules import findings_of
from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.inductor import repeated_expressions
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.failure import SLOW, Failure
from inductoscope.doctor.finding import Found, GraphWorkaround, read_found
from inductoscope.doctor.finding_verdict import add_replaced_parts, own_part, relative_place
from inductoscope.doctor.instructions import FOLDER, Instructions
from inductoscope.doctor.runs import every_check_passed
from inductoscope.doctor.verdict import (
    Culprit,
    Repro,
    Verdict,
    Workaround,
)
from inductoscope.model.fold import load
from inductoscope.profiling.compile_growth import Explosion, SlowCompile, seconds_in
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

# Stages that go through loop bodies, operation by operation.
_WITH_LOOP_BODIES = (stages.LOWERING, stages.SCHEDULER, stages.CODEGEN, *stages.NATIVE_COMPILES)
# What is left of the slow stage must be clearly less, on the program too.
_HELPS = 0.7


def measured_in_program(case: ProgramCase, suspect: SlowCompile) -> Found | None:
    """What compiling the graph alone shows; None if it is in proportion."""
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
    found = read_found(run.folder / FOLDER)
    if found is not None and not found.reproduces and found.alone:
        case.say(f"compile time is not judged: {found.alone}")
    return found if found is not None and found.reproduces else None


def proven_slow(case: ProgramCase, found: Found, suspect: SlowCompile) -> Verdict | None:
    """The verdict, if the reproducer is slow in most fresh processes; otherwise none.

    A graph that is slow only inside the program, or now and then, accuses nobody.
    """
    case.proof.prove(found)
    proof = case.proof.verification
    if proof is None or 2 * proof.failed <= proof.of:
        case.proof.forget()
        case.say("no reproducer is slow in most fresh processes: compile time is not judged")
        return None
    case.found = found
    suspect = _in_proven_stage(case, found, suspect)
    workaround = _help_with_slow_compile(case, found, suspect)
    return _verdict_on_slow_compile(case, found, suspect, workaround)


def _in_proven_stage(case: ProgramCase, found: Found, suspect: SlowCompile) -> SlowCompile:
    """What the stage took in the program that is slow; another one may have looked so.

    Code generation does in a program's first compile: torch asks what the C++ compiler can do.
    """
    recording, stage = case.recording, found.failure.stage
    compile_ = next((each for each in recording.compiles if each.id == suspect.compile), None)
    if compile_ is None or stage == suspect.stage:
        return suspect
    return replace(suspect, stage=stage, seconds=seconds_in(recording, compile_, stage))


def _help_with_slow_compile(
    case: ProgramCase, found: Found, suspect: SlowCompile
) -> tuple[Workaround, str] | None:
    """What made the graph compile faster, tried on the program; with predicted and measured."""
    if not found.workarounds or not case.proof.with_workaround:
        return None
    tried = found.workarounds[0]
    instructions = Instructions(
        calls=case.instructions.calls, workaround=tried.code, investigate=False
    )
    run = case.runs.again(instructions, f"trying on the program: {tried.text}")
    recording = load(run.folder)
    changed = next((each for each in recording.compiles if each.id == suspect.compile), None)
    predicted = suspect.seconds * _saved(tried)
    result = Workaround(tried.text, False, tried.slowdown, tried.code, predicted)
    text = f"compile {suspect.compile} spent {suspect.seconds:.1f} s in {suspect.stage}; "
    text += f"predicted with it: {suspect.seconds - predicted:.1f} s, measured: "
    if changed is None:
        return result, f"{text}it did not compile"
    # Stage against stage: the others vary with what else the machine does.
    left = seconds_in(recording, changed, suspect.stage)
    result.saved = suspect.seconds - left
    result.verified = left < _HELPS * suspect.seconds and every_check_passed(run)
    whole = f"the whole compile took {suspect.of:.1f} s, with it {changed.seconds:.1f} s"
    return result, f"{text}{left:.1f} s (one run); {whole}"


def _saved(tried: GraphWorkaround) -> float:
    """The share of the slow stage that it saved where it was measured."""
    return 1 - (tried.after or 0.0) / tried.before if tried.before else 0.0


def _verdict_on_slow_compile(
    case: ProgramCase,
    found: Found,
    suspect: SlowCompile,
    helped: tuple[Workaround, str] | None,
) -> Verdict:
    """The verdict, with everything that was measured."""
    slow = found.slow
    assert slow is not None
    assert slow.explosion is not None
    explosion = slow.explosion
    repeated = _repeated_expressions(case, explosion, suspect)
    summary = _summary(found, explosion) + (f" {repeated.title}." if repeated else "")
    result = Verdict(v.SLOW, explosion.stage, summary, culprit=_culprit(found))
    proof = case.proof.verification
    result.confidence = "proven" if proof is not None and proof.is_verified else "likely"
    result.partial = not found.is_complete
    result.add(
        f"compile {suspect.compile} took {suspect.of:.1f} s in the program, "
        f"{suspect.seconds:.1f} s of it in {suspect.stage}",
        "the first run, under the tool",
    )
    result.add(
        _against_plain(explosion),
        "compiled alone in forks, several times in turns with plain graphs",
    )
    for text in repeated.evidence if repeated else ():
        result.add(text, "the loop bodies that were recorded")
    if explosion.growth is not None:
        result.add(_growth(explosion), f"sizes: {slow.sizes_by}")
    if slow.functions:
        share = f"{100 * slow.share:.0f} % of {slow.samples} stacks"
        result.add(f"{share} that were sampled in the stage are in {slow.functions[0]}")
        for function in slow.functions[1:6]:
            result.add(f"called from {function}")
    add_replaced_parts(result, found)
    for part in (*slow.passes, *slow.lowered):
        result.add(f"{part.name}: {part.seconds:.2f} s")
    if slow.smallest is not None:
        result.add(
            _against_plain(slow.smallest), f"the smallest graph, {count_of(found.nodes, 'node')}"
        )
    if proof is not None:
        path = str(case.proof.script)
        result.repro = Repro(path, proof.is_verified, proof.failed, proof.of, found.nodes)
    elif found.no_script:
        result.add(f"no script could be written: {found.no_script}")
    if helped is not None:
        result.workaround, text = helped
        result.add(text, "the workaround, on the program")
    if case.first.failed:
        result.add(
            f"the program ended with exit code {case.first.ending.exit_code}; "
            "in eager it ends well",
            "whether compile time is why is not known",
        )
        result.add(case.first.output[-800:], "what the program printed")
    return result


def _repeated_expressions(
    case: ProgramCase, explosion: Explosion, suspect: SlowCompile
) -> Finding | None:
    """That its loop bodies are far larger than the graph, which every stage after it pays for."""
    if explosion.stage not in _WITH_LOOP_BODIES:
        return None
    found = findings_of(repeated_expressions, case.recording)
    return next((finding for finding in found if finding.compile == suspect.compile), None)


def _summary(found: Found, explosion: Explosion) -> str:
    where = stages.WORDS.get(explosion.stage, explosion.stage)
    more = "more than " if explosion.is_at_least else ""
    text = (
        f"Compiling takes far too long, in {where}: {more}{explosion.seconds:.1f} s for "
        f"{count_of(explosion.nodes, 'node')}, {explosion.times:.1f} times what is expected for "
        "the whole compile of as many pointwise nodes."
    )
    if explosion.waits:
        text += " It waits there for something and hardly computes."
    function = found.location.function
    if found.location.pass_name:
        text += f" The pass {found.location.pass_name} takes most of it."
    elif found.location.operation:
        operation = found.location.operation
        own = own_part(found, operation)
        text += f" Lowering {operation}{own}{',' * bool(own)} takes most of it."
    if function:
        text += f" The time is spent in {function}."
    if explosion.growth is not None and explosion.growth.low > 1.2:
        text += f" It {_grows(explosion)}."
    return text


def _grows(explosion: Explosion) -> str:
    growth = explosion.growth
    assert growth is not None
    power = f"n^{growth.exponent:.1f} (±{growth.half_width:.1f})"
    return f"grows with {power}, where n is the number of nodes"


def _growth(explosion: Explosion) -> str:
    assert explosion.growth is not None
    points = explosion.growth.points
    sizes = ", ".join(f"{p.nodes} nodes {p.seconds:.2f} s" for p in points)
    return f"{explosion.stage} {_grows(explosion)}: {sizes}"


def _against_plain(explosion: Explosion) -> str:
    more = "more than " if explosion.is_at_least else ""
    return (
        f"{explosion.stage} takes {more}{explosion.seconds:.2f} s for "
        f"{count_of(explosion.nodes, 'node')}; the whole compile of as many pointwise nodes is "
        f"expected to take {explosion.plain_seconds:.2f} s, from the slowest that were measured"
    )


def _culprit(found: Found) -> Culprit:
    location = found.location
    operations = location.operation or ", ".join(found.operations[:6])
    return Culprit(
        op=operations or None,
        pass_=location.pass_name or None,
        function=location.function or None,
        source=relative_place(found.sources[-1]) if found.sources else None,
    )
