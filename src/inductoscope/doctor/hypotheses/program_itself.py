"""The compiler is not to blame: the program fails in eager too, or asks for too much."""

from __future__ import annotations

import re

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import (
    FAILS_IN_EAGER_TOO,
    also_fails_in_eager,
    not_a_bug,
    not_always,
    other_random_numbers,
)
from inductoscope.doctor.instructions import MOVED, UNMOVED, Instructions
from inductoscope.doctor.judgement import relative_place
from inductoscope.doctor.lack_of_memory import (
    does_not_fit_with_tool,
    lack_of_memory,
    memory_is_full,
    only_compiled,
)
from inductoscope.doctor.last_position import last_position
from inductoscope.doctor.symptom import fails_alike, numbers_that_differ
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.recording.events import NAN_LIKELY, NAN_REFUSED
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import device_error, refused_variable
from inductoscope.wording import count_of


def refused_nan(case: ProgramCase) -> Verdict | None:
    """The program has asked for errors where there is NaN (`nan_asserts`), and there is.

    Applies: The last call that was checked raised the error of torch's own check, an input of it or
    its result in eager holds NaN or infinity, and this very error ended the program.
    Runs: Nothing.
    Concludes: Not a bug: which input holds it, and where.
    How sure: Proven, because the values were looked at; likely if it was not seen that these are
    the values that were refused.
    """
    check = case.checks[-1] if case.checks else None
    if not case.fails_unexplained or case.first.ending.signal is not None:
        return None
    if check is None or check.verdict not in (NAN_REFUSED, NAN_LIKELY):
        return None
    if not _ended_by_refusal(case):
        return None
    is_certain = check.verdict == NAN_REFUSED
    does = "does" if is_certain else "probably does"
    result = Verdict(
        v.NOT_A_BUG,
        stages.USER,
        f"The program has torch check for NaN (nan_asserts), and {check.text}; compiled code "
        f"{does} what it was asked to.",
        "proven" if is_certain else "likely",
    )
    place = next((c.place for c in case.recording.compiles if c.id == check.compile), None)
    result.culprit.source = relative_place(place) if place else None
    result.add(check.text, f"call {check.call} of {check.compile}")
    return result.add(
        "the NaN was there before this call: it was passed in, or eager computes it as well"
        if is_certain
        else "whether this is the NaN that was refused was not seen",
        "torch._inductor.config.nan_asserts, or TORCHINDUCTOR_NAN_ASSERTS=1",
    )


def _ended_by_refusal(case: ProgramCase) -> bool:
    """Check whether this very error ended the program, instead of being caught."""
    recording = case.recording
    ends = [e for one in recording.processes for e in one.uncaught if not e.thread]
    is_running = any(one.call for one in recording.processes)
    last_frames = (recording.payload(end.stack).rpartition('  File "')[2] for end in ends)
    return not is_running and any(
        refused_variable(end.type, end.message, frame)
        for end, frame in zip(ends, last_frames, strict=True)
    )


def input_withheld(case: ProgramCase) -> Verdict | None:
    """The program asks for input, and the doctor keeps the terminal from it.

    Applies: The program fails because `input()` finds no input, and the doctor, which runs a
    program several times, gave it neither the terminal nor a pipe.
    Runs: Nothing.
    Concludes: Not checked, and how to give the input to every run.
    How sure: Proven by the exception, and by what the doctor itself withheld.
    """
    is_asking = bool(_NO_INPUT.search(case.first.output))
    if not case.fails_unexplained or not case.runs.withholds_input or not is_asking:
        return None
    result = Verdict(
        v.NOT_CHECKED,
        stages.USER,
        "The program asks for input, and the doctor does not pass the terminal on, because it "
        "runs the program several times. Write the input to a file: inductoscope doctor SCRIPT "
        "< FILE",
        "proven",
    )
    return result.add("EOFError: EOF when reading a line", "what the program printed last")


# The exception of `input()` at the end of standard input.
_NO_INPUT = re.compile(r"^EOFError: EOF when reading a line$", re.MULTILINE)


def out_of_memory(case: ProgramCase) -> Verdict | None:
    """Memory ran out: because of another process, of the tool, or of the program itself.

    Applies: The program, or its graph in a call that was checked, fails because it cannot allocate,
    or the kernel kills it for want of memory.
    Runs: The program without the tool, unless other processes hold what it could not allocate. If
    it runs out there as well, in eager.
    Concludes: Not checked, if others hold the memory, or the tool does, and what to do. Not a bug,
    if it runs out in eager, too. A crash, if only the compiled program does, and would without the
    tool's own processes.
    How sure: Proven by these runs; likely if others hold it, and what was asked for is not known.
    """
    lack = lack_of_memory(case.first)
    if lack is None:
        return None
    if lack.is_caused_by_others:
        return memory_is_full(case.first, lack)
    plain = case.runs.without_tool_once()
    if plain.ended_well:
        return does_not_fit_with_tool(case.first, lack, plain)
    lack = lack_of_memory(plain)
    if lack is None or case.finding is not None:
        return None
    eager = case.runs.in_eager_once("it runs out of memory; running it without torch.compile")
    if eager.failed:
        return also_fails_in_eager(case, eager)
    position = last_position(case.first)
    stage = position.failure.stage if position is not None else stages.RUNTIME
    return only_compiled(plain, lack, eager, stage) if eager.ended_well else None


def undetermined_result(case: ProgramCase) -> Verdict | None:
    """The program's result is not deterministic in eager either.

    Applies: Eager gave different values when it ran a graph again, or read uninitialised memory,
    and the program fails or a function differs.
    Runs: Nothing.
    Concludes: Not a bug: uninitialised memory or other nondeterminism.
    How sure: Likely: two runs of the graph in eager differ, which may not be why the program fails.
    """
    if case.finding is not None or not case.checks_that_are("unsteady"):
        return None
    if case.first.ending.exit_code == 0 and not case.first.functions_that_differ:
        return None
    return not_a_bug(
        "Uninitialised memory or other nondeterminism: eager's result is not deterministic either",
        case.checks_that_are("unsteady"),
        "likely",
    )


def fails_in_eager(case: ProgramCase) -> Verdict | None:
    """The program fails without torch.compile too.

    Applies: The program fails with every compiled graph right.
    Runs: The program in eager, without the tool; if it loses the GPU, under compute-sanitizer.
    Concludes: Not a compiler bug, if it fails in eager.
    How sure: Proven by that run.
    """
    if not case.fails_unexplained:
        return None
    eager = case.runs.in_eager_once()
    if not eager.failed:
        return None
    result = also_fails_in_eager(case, eager)
    if device_error(eager.output):
        case.say("running it in eager under compute-sanitizer, if that is installed")
        check = case.runs.memory_check_in_eager()
        if check.access is None:
            return result.add(check.why_not, "where the access happens is not known")
        result.culprit = Culprit(kernel=check.access.kernel, source=check.access.place or None)
        result.summary = f"{result.summary.rstrip('.')}. It is in {check.access.text}."
        result.add(check.access.text, "compute-sanitizer, on the program in eager")
    return result


def fails_now_and_then(case: ProgramCase) -> Verdict | None:
    """The program fails intermittently, or only under the tool.

    Applies: The program fails with every compiled graph right, and ends well in eager.
    Runs: The program compiled, without the tool.
    Concludes: Nothing is known to be wrong, if it ends well then.
    How sure: Unknown.
    """
    if not case.fails_unexplained:
        return None
    plain = case.runs.without_tool_once("running it compiled, without the tool")
    if plain.ending.exit_code != 0:
        return None
    return not_always(case.first, plain, "one of them without the tool")


def rounding(case: ProgramCase) -> Verdict | None:
    """The program asks for more precision than floating point has.

    Applies: The program fails with every compiled graph right, some values are not the same to the
    last bit, and it ends well in eager.
    Runs: The program with Dynamo alone. Then in eager, with every inexact operation rounded
    differently by one unit in the last place; a program that reads a clock once more, as slowly,
    with eager's rounding.
    Concludes: Not a bug, if it fails the same way, with functions that differ if they do when
    compiled, but not with Dynamo alone, and not because it is slow.
    How sure: Proven by these runs.
    """
    inexact = case.checks_that_are("within-rounding") or [
        check for check in case.checks if check.is_exact is False
    ]
    if not case.fails_unexplained or not inexact:
        return None
    good = case.runs.in_eager_once()
    # With other rounding, what Dynamo does is done, too, such as side effects.
    message = "running it with Dynamo alone, each graph in eager"
    alone = case.runs.with_backend_once("eager", message)
    differs = alone.functions_that_differ or alone.functions_that_do_not_raise
    if differs or fails_alike(case.first, alone, good):
        return None
    moved = case.runs.again(
        Instructions(calls=0, backend=MOVED, investigate=False),
        "running it in eager with other rounding",
    )
    if not fails_alike(case.first, moved, good):
        return None
    if case.first.functions_that_differ and not moved.functions_that_differ:
        return None
    if case.may_fail_by_time:
        # Perturbing takes time: the program must bear that alone.
        as_slow = Instructions(calls=0, backend=UNMOVED, investigate=False)
        message = "it reads a clock; running it as slowly, with eager's rounding"
        if not case.runs.again(as_slow, message).ended_well:
            return None
    result = not_a_bug(
        "Rounding: the program also fails in eager if every inexact operation is rounded "
        "differently by one unit in the last place. It asks for more precision than floating "
        "point has (noise)",
        inexact,
    )
    return result.add(
        "fails the same way, with every graph in eager and rounded differently", "one run"
    )


def random_numbers(case: ProgramCase) -> Verdict | None:
    """Compiled and eager draw different random numbers.

    Applies: The program fails with every compiled graph right, no level of the compiler is to
    blame, its graphs draw random numbers, and it reads no clock.
    Runs: The program in eager with other random numbers, unless it calls packages.
    Concludes: Not a bug, if it fails in the same way with those.
    How sure: Likely: it also fails while compiled code draws the numbers of eager.
    """
    if not case.fails_unexplained or case.may_fail_by_time or not case.random_operations:
        return None
    result = other_random_numbers(case, is_shown=False)
    if case.runs.uses_packages:
        return result
    other = case.runs.with_other_random_numbers()
    if not fails_alike(case.first, other, case.runs.in_eager_once()):
        return None
    return result.add(FAILS_IN_EAGER_TOO, "one run")


def likely_rounding(case: ProgramCase) -> Verdict | None:
    """Compiled and eager differ within rounding, and nothing else is known to be wrong.

    Applies: The program fails with every compiled graph right, some calls differ by no more than
    rounding explains, and it reads no clock.
    Runs: Nothing.
    Concludes: Not a bug.
    How sure: Likely: no run shows it.
    """
    within = case.checks_that_are("within-rounding")
    if not case.fails_unexplained or case.may_fail_by_time or not within:
        return None
    return not_a_bug(
        "Rounding, most likely: compiled and eager differ by no more than rounding explains, "
        "judged against float64, and nothing else is known to be wrong (noise)",
        within,
        "likely",
    )


def unknown_cause(case: ProgramCase) -> Verdict | None:
    """Nothing else remains: the tool hid the failure, or something that was not compared is wrong.

    Applies: The program fails compiled and not in eager, and no other hypothesis explains it.
    Runs: Nothing.
    Concludes: That the program ends badly when compiled, without a place: a crash if a signal ended
    it, a wrong result if it prints other numbers than in eager, otherwise unknown.
    How sure: Unknown.
    """
    if not case.fails_unexplained:
        return None
    skipped = case.checks_that_are("skipped")
    compared = count_of(len(case.checks) - len(skipped), "call")
    died = case.first.ending.signal is not None
    numbers = ""
    if not died and not case.may_fail_by_time:  # What it prints may be times.
        plain = case.runs.without_tool_once()
        numbers = numbers_that_differ(case.first, case.runs.in_eager_once(), plain)
    kind, does = v.UNKNOWN, "ends badly"
    if died:
        kind, does = v.CRASH, "dies"
    elif numbers:
        kind, does = v.WRONG_RESULT, "gives wrong numbers"
    result = Verdict(
        kind,
        stages.NO_STAGE,
        f"The program {does} compiled and not in eager; the cause is unknown. Every compiled graph "
        f"matches eager (compared: {compared}).",
    )
    if numbers:
        result.add(numbers, "what the program printed")
    result.add(f"ruled out: {_RULED_OUT}", "runs of the program")
    result.add(case.first.last_words, "what the program printed")
    for check in skipped:
        result.add(f"not compared: {check.text}", check.compile)
    return result


_RULED_OUT = "Dynamo alone, AOTAutograd alone, and a failure that comes and goes without the tool"
