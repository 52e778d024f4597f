"""Verdicts on programs in which no compiled graph was found wrong.

Either all is well, or what goes wrong is not Inductor's: it fails in eager too, Dynamo refuses,
the result is random by itself, or the program compares rounding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from inductoscope.analysis.rules import diagnose
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.outside.last_position import last_compile
from inductoscope.doctor.outside.other_levels import (
    Rerun,
    failed_elsewhere,
    fails_in_eager,
    last_place,
    not_a_bug,
    run_in_eager,
)
from inductoscope.doctor.outside.program import Watched
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.entities import CallableCheck, Check, CompileError, Recording
from inductoscope.model.fold import load
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v
from inductoscope.vocabulary.frames import is_users


def callables_that_differ(recording: Recording) -> list[CallableCheck]:
    """Compiled functions that gave something else than their Python code, as a whole."""
    return [check for check in recording.callable_checks if check.verdict == "differs"]


def verdict_without_finding(run: Watched, rerun: Rerun) -> Verdict:
    """What to say of a run in which nothing was found wrong with a compiled graph."""
    recording = load(run.folder)
    checks = recording.checks
    bad = [check for check in checks if check.verdict in ("wrong", "error")]
    if bad:
        return _seen_but_not_examined(bad, recording)
    errors = [e for c in recording.compiles for e in c.errors if not e.swallowed]
    if errors:
        eager = run_in_eager(
            rerun,
            f"{errors[0].type} before any backend ran; running the program without torch.compile",
        )
        if eager.failed:
            return fails_in_eager(run, eager, recording)
        return _refused(recording, errors[0])
    if run.stalled or run.over_time:
        return _too_long(run, recording)
    captured = callables_that_differ(recording)
    unsteady = [check for check in checks if check.verdict == "unsteady"]
    if unsteady and (captured or run.ending.exit_code != 0):
        return not_a_bug(
            "Uninitialised memory or other nondeterminism: what eager gives is not determined "
            "either",
            unsteady,
        )
    if captured:
        found = _wrongly_captured(captured, recording, rerun)
        if found is not None:
            return found
    if run.ending.exit_code == 0:
        return _clean(recording, checks)
    return failed_elsewhere(run, recording, checks, rerun)


def _seen_but_not_examined(bad: Sequence[Check], recording: Recording) -> Verdict:
    """A call was seen to be wrong, and the search for the cause broke: a mistake of this tool."""
    is_error = bad[0].verdict == "error"
    result = Verdict(
        v.CRASH if is_error else v.WRONG_RESULT,
        stages.NO_STAGE,
        f"Compile {bad[0].compile} does not do what eager does: {bad[0].text}. "
        "Looking for the cause failed, so that it is unknown.",
    )
    for check in bad[:4]:
        result.add(check.text, f"compile {check.compile}, compared with eager")
    _add_own_mistakes(result, recording)
    return result


_BEFORE_INDUCTOR = {stages.DYNAMO: "Dynamo, not Inductor", stages.AOT: "AOTAutograd, not Inductor"}


def _refused(recording: Recording, error: CompileError) -> Verdict:
    """A compile that raised where no graph could be examined."""
    finding = next((f for f in diagnose(recording) if f.rule == "compile_error"), None)
    message = error.message.strip().splitlines()
    who = _BEFORE_INDUCTOR.get(error.stage, f"Inductor, in stage {error.stage}")
    summary = f"{who}: {error.type}: {message[0] if message else ''}"
    if "fullgraph" in error.message or "Unsupported" in error.type:
        summary += " (with fullgraph=True Dynamo raises where it would otherwise break the graph)"
    if any("register_fake" in text for text in (error.message, *error.causes)):
        summary += " (an operator of the program's own has no fake implementation: register_fake)"
    kind = v.NOT_INDUCTOR if error.stage in _BEFORE_INDUCTOR else v.CRASH
    result = Verdict(kind, error.stage, summary, "proven")
    functions = [place.partition(" ")[0] for place in error.raised_in]
    source = _users_line(error.message) or error.source or (finding.source if finding else None)
    result.culprit = Culprit(function=functions[0] if functions else None, source=source)
    result.add("\n".join(message[:12]), "the exception, and the same in eager does not fail")
    for number, place in enumerate(dict.fromkeys(error.raised_in[:3])):
        result.add(f"called from {place}" if number else f"raised in {place}")
    if finding is not None:
        result.add(finding.advice)
    return result


def _users_line(message: str) -> str | None:
    """The last line of the program that Dynamo's message names."""
    _, _, user_code = message.partition("from user code:")
    places = re.findall(r'File "([^"]+)", line (\d+)', user_code)
    own = [f"{path}:{line}" for path, line in places if is_users(path)]
    return own[-1] if own else None


def _too_long(run: Watched, recording: Recording) -> Verdict:
    place = last_compile(run)
    if place is not None:
        text = (
            f"{place.text[0].upper()}{place.text[1:]}; no smaller program was found that shows it."
        )
        culprit = Culprit(function=place.function or None, source=last_place(recording))
        result = Verdict(v.HANG, place.stage, text, "likely", culprit)
        for number, function in enumerate(place.functions[:12]):
            result.add(f"called from {function}" if number else f"it was in {function}")
    else:
        text = "The program did not end within the time limit; it was not inside the compiler."
        result = Verdict(v.HANG, stages.USER, text, "likely")
    result.add(run.stacks[-1500:], "the last Python stacks")
    return result


def _clean(recording: Recording, checks: Sequence[Check]) -> Verdict:
    compiled = len(recording.compiles)
    if not compiled:
        text = "Nothing is wrong, and nothing was compiled: torch.compile was not used."
        return Verdict(v.CLEAN, stages.NO_STAGE, text, "proven")
    right = [check for check in checks if check.verdict == "right"]
    rounding = [check for check in checks if check.verdict == "within-rounding"]
    agree = len(right) + len(rounding)
    if not agree:
        return _nothing_checked(recording, checks)
    result = Verdict(
        v.CLEAN,
        stages.NO_STAGE,
        f"Nothing found: {agree} calls of {compiled} compiled graphs give what eager gives"
        + (f"; {len(checks) - agree} calls could not be compared." if len(checks) > agree else "."),
        "proven" if agree == len(checks) else "likely",
    )
    result.add(
        f"{len(right)} calls agree with eager, {len(rounding)} differ within rounding",
        "forward and backward, with types, shapes, strides, aliasing and written inputs"
        + ("; large inputs: outputs alone" if any("too large" in c.text for c in right) else ""),
    )
    _add_uncompared(result, checks)
    return result


def _nothing_checked(recording: Recording, checks: Sequence[Check]) -> Verdict:
    result = Verdict(
        v.CLEAN,
        stages.NO_STAGE,
        f"The program ends well, yet no call of its {len(recording.compiles)} compiled graphs "
        "could be compared with eager.",
    )
    _add_uncompared(result, checks)
    _add_own_mistakes(result, recording)
    return result


def _add_own_mistakes(result: Verdict, recording: Recording) -> None:
    for process in recording.processes:
        for mistake in process.hook_errors[:4]:
            result.add(mistake, "a mistake of this tool")


def _add_uncompared(result: Verdict, checks: Sequence[Check]) -> None:
    for check in checks:
        if check.verdict in ("skipped", "eager-fails", "unsteady"):
            result.add(f"{check.verdict}: {check.text}", check.compile)


def _wrongly_captured(
    captured: Sequence[CallableCheck], recording: Recording, rerun: Rerun
) -> Verdict | None:
    """Every graph is right and the function is not: does Dynamo alone do that?"""
    again = rerun(
        Instructions(calls=0, backend="eager", investigate=False),
        f"{captured[0].function} differs though its graphs are right; running it with "
        "Dynamo alone, each graph in eager",
    )
    still = callables_that_differ(load(again.folder))
    if not still:
        return None
    result = Verdict(
        v.NOT_INDUCTOR,
        stages.DYNAMO,
        f"Dynamo captures something else than {still[0].function} computes: "
        f"{still[0].text}, with every graph run in eager.",
        "proven",
    )
    result.culprit = Culprit(function=still[0].function, source=last_place(recording))
    for check, how in ((captured[0], "compiled"), (still[0], "with Dynamo alone")):
        text = f"{check.function}: {check.text}"
        result.add(text, f"{how}, compared with a fork in eager")
    return result
