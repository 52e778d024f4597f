"""A failure was found inside the program, or is looked for there once more."""

from __future__ import annotations

from dataclasses import replace

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import also_fails_in_eager, ends_well_without_tool
from inductoscope.doctor.compute_sanitizer import check_script
from inductoscope.doctor.failure import ERROR, HANG, LOST_CHECK, NAN, SIGNAL, WRONG, Failure
from inductoscope.doctor.finding import CheckedAccess
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.judgement import verdict_on
from inductoscope.doctor.last_position import last_position
from inductoscope.doctor.runs import ProgramRun
from inductoscope.doctor.verdict import Verdict
from inductoscope.model.entities import Recording
from inductoscope.recording.events import OTHER_ERROR
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import device_error


def died_or_stalled(case: ProgramCase) -> None:
    """A process died, stalled or lost the GPU inside the compiler, or inside a compiled graph.

    Applies: Nothing was found inside the program, and it did not end well, nor was it ended because
    all calls that were to be checked had been made.
    Runs: The program once more, up to the graph it was in; the search starts there.
    Concludes: Nothing by itself: the next hypotheses judge what is found.
    How sure: As sure as those are.
    """
    if case.finding is not None or case.first.ending.exit_code == 0 or case.first.calls_done:
        return
    lost = _gpu_lost_in_compile(case.recording)
    if lost is None:
        _return_to_last_position(case, case.first, case.instructions)
    else:
        compile_id, failure = lost
        text = f"compile {compile_id} lost the GPU ({failure.aspect}); running it again up to there"
        _return_to(case, case.instructions, compile_id, failure, text)


def _gpu_lost_in_compile(recording: Recording) -> tuple[str, Failure] | None:
    """Find a compile in which a kernel lost the GPU; no graph is called after that."""
    for compile_ in recording.compiles:
        for error in compile_.errors:
            said = device_error("\n".join((error.message, *error.cause)))
            if said and error.stage != stages.DYNAMO:
                text = f"CUDA error: {said}"
                return compile_.id, Failure(ERROR, text, error.stage, said, message=said)
    return None


def _return_to_last_position(
    case: ProgramCase, run: ProgramRun, instructions: Instructions
) -> None:
    """If a run died or hung in a graph, run the program up to that graph and investigate there."""
    position = last_position(run)
    # In Dynamo, there is no graph to stop at.
    if position is not None and position.failure.stage != stages.DYNAMO:
        text = f"{position.failure.text}; running it again up to there"
        _return_to(case, instructions, position.compile, position.failure, text)


def _return_to(
    case: ProgramCase, instructions: Instructions, compile_id: str, failure: Failure, text: str
) -> None:
    stop = replace(instructions, stop_at=compile_id, failure=failure, calls=0)
    case.finding = case.runs.again(stop, text).finding


def other_error(case: ProgramCase) -> None:
    """A graph raises an error of another type than eager, and the program fails because of it.

    Applies: A call raised another error than eager, and the program, which prints what that error
    says, failed; nothing was found.
    Runs: The program in eager and, if it ends well there, once more, up to that graph.
    Concludes: Nothing by itself: the next hypotheses judge what is found.
    How sure: As sure as those are.
    """
    checks = case.checks_that_are(OTHER_ERROR)
    if not case.fails_unexplained or not checks:
        return
    compile_id, text = checks[0].compile, checks[0].text
    said = text.rpartition("compiled code raises ")[2].partition(": ")[2]
    if said not in case.first.output or case.runs.in_eager_once().failed:
        return
    failure = Failure(LOST_CHECK, text, eager_error=text)
    _return_to(case, case.instructions, compile_id, failure, f"{text}; running it up to there")


_EVERY_CALL = 1_000_000


def unchecked_call(case: ProgramCase) -> None:
    """A graph is wrong in a call that was not checked.

    Applies: The program failed, nothing was found, and some graphs were called more often than
    calls are checked, or ranks have shared the checks.
    Runs: The program in eager and, if it ends well there, once more with every call checked.
    Concludes: Nothing by itself: the next hypotheses judge what is found.
    How sure: As sure as those are.
    """
    recording = case.recording
    if not case.fails_unexplained or not (recording.unchecked or recording.shared):
        return
    if case.runs.in_eager_once().ending.exit_code != 0:
        return
    instructions = replace(case.instructions, calls=_EVERY_CALL, saves_time=False)
    run = case.runs.again(
        instructions, "nothing is wrong in the calls that were checked; checking every call"
    )
    case.finding = run.finding
    if case.finding is None and run.ending.exit_code != 0:
        _return_to_last_position(case, run, instructions)


def machine_cannot_compile(case: ProgramCase) -> Verdict | None:
    """The machine cannot compile: no compiler, Triton, space or memory, or a flag unknown to torch.

    Applies: The failure that was found says so.
    Runs: Nothing. If the full disk is the examination's own, it ends with a message.
    Concludes: A compile error that is not a bug in torch, and what to do about it.
    How sure: Proven by what the compiler or the system said.
    """
    if case.finding is None or not case.finding.advice:
        return None
    failure = case.finding.failure
    case.runs.refuse_lack_of_space(f"{failure.text} {failure.message}")
    return verdict_on(case.finding)


_LEAST_SECONDS = 60.0


def hangs_in_eager(case: ProgramCase) -> Verdict | None:
    """A graph does not end when it runs, compiled or not.

    Applies: A hang was found while a graph ran, and the graph alone does not show it.
    Runs: The program in eager, for as long as the first run took, at least a minute.
    Concludes: Not a bug, if the program does not end in eager either.
    How sure: Likely: it may only be slow.
    """
    finding = case.finding
    if finding is None or finding.reproduces or case.runs.uses_packages:
        return None
    if finding.kind != HANG or finding.failure.stage != stages.RUNTIME:
        return None
    seconds = max(_LEAST_SECONDS, case.first.ending.seconds)
    eager = case.runs.in_eager_once("running it without torch.compile for as long", seconds)
    if not eager.over_time:
        return None
    result = Verdict(
        v.NOT_A_BUG,
        stages.USER,
        "The program does not end without torch.compile either, so the compiler is not to blame.",
        "likely",
    )
    result.add(finding.failure.text, "with torch.compile")
    return result.add(f"still running after {eager.ending.seconds:.0f} s", "without torch.compile")


def quick_answer(case: ProgramCase) -> Verdict | None:
    """A compiled graph fails, and the user asked for the culprit alone.

    Applies: A failure was found inside the program, it shows again in a fork, and --quick was
    given.
    Runs: Nothing.
    Concludes: The failure that was found.
    How sure: Likely, since no script has shown it without the tool.
    """
    if not case.instructions.quick or case.finding is None or not case.finding.reproduces:
        return None
    return verdict_on(case.finding)


def proven_failure(case: ProgramCase) -> Verdict | None:
    """A compiled graph fails, and a script shows it without the tool.

    Applies: A failure was found inside the program.
    Runs: The reproducer in fresh processes and, in parallel, the program with each workaround that
    helps the graph, until one helps the program. If the GPU is lost, the reproducer under
    compute-sanitizer.
    Concludes: The failure that was found, with the reproducer and the workaround, if every run of
    the reproducer fails.
    How sure: That it fails is proven. The place is as sure as the way in which it was found.
    """
    if case.finding is None:
        return None
    case.prove_and_help()
    if not case.proof.is_verified:
        return None
    if device_error(case.finding.failure.text):
        case.say("running the reproducer under compute-sanitizer, if that is installed")
        check = check_script(case.proof.script, case.proof.fresh.environment)
        text = check.access.text if check.access is not None else check.why_not
        case.finding = case.finding.claimed(CheckedAccess(text))
    return verdict_on(case.finding)


def dies_in_eager(case: ProgramCase) -> Verdict | None:
    """A graph kills the process that runs it, compiled or not.

    Applies: A process died while a graph ran, and no reproducer shows it.
    Runs: The program in eager, without the tool.
    Concludes: Not a compiler bug, if the same signal kills the program in eager.
    How sure: Proven by that run.
    """
    finding = case.finding
    if finding is None or case.proof.is_verified:
        return None
    if finding.kind != SIGNAL or finding.failure.stage != stages.RUNTIME:
        return None
    eager = case.runs.in_eager_once("no script shows it; running the program without torch.compile")
    number = eager.ending.signal
    if not number or not eager.failed or signal_name(number) != finding.failure.aspect:
        return None
    return also_fails_in_eager(case, eager)


# Kinds of failure that a call of the program itself has shown, beside eager.
_SEEN_IN_PROGRAM = (WRONG, NAN, LOST_CHECK, HANG)


def only_under_the_tool(case: ProgramCase) -> Verdict | None:
    """The tool itself makes the program fail.

    Applies: An error or a crash was found that no reproducer shows.
    Runs: The program without the tool.
    Concludes: Nothing is known to be wrong, if the program ends well without the tool.
    How sure: Unknown.
    """
    finding = case.finding
    if finding is None or case.proof.is_verified or finding.kind in _SEEN_IN_PROGRAM:
        return None
    if case.runs.without_tool_once().ending.exit_code != 0:
        return None
    return ends_well_without_tool(finding.failure.text)


def unproven_failure(case: ProgramCase) -> Verdict | None:
    """A compiled graph fails in the program, and no script shows it.

    Applies: A failure was found inside the program, and the reproducer did not fail every time, or
    none could be written.
    Runs: Nothing more.
    Concludes: The failure that was found, with everything that was tried.
    How sure: As sure as the way in which the place was found; the reproducer is not called
    verified.
    """
    return None if case.finding is None else verdict_on(case.finding)
