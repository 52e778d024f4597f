"""Dynamo, AOTAutograd or the layout of results is to blame, and no graph that Inductor compiled."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inductoscope import verdicts as v
from inductoscope.analysis.rules import diagnose
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import (
    add_own_mistakes,
    also_fails_in_eager,
    differing_lines,
    ends_well_without_tool,
    not_always,
    verdict_at_limit,
)
from inductoscope.doctor.delta_debugging import smallest_subset
from inductoscope.doctor.finding import PROGRAM, NeededLayout
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.judgement import verdict_on
from inductoscope.doctor.runs import ProgramRun
from inductoscope.doctor.symptom import fails_alike
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.entities import Compile, CompileError, Recording
from inductoscope.recording.events import CallableCheck, NotedDifference
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import frames_in, is_users
from inductoscope.wording import count_of


def unexamined_failure(case: ProgramCase) -> Verdict | None:
    """A call is wrong, and the search for the cause failed: an error in inductoscope.

    Applies: A check failed, and nothing was handed over about it.
    Runs: Nothing.
    Concludes: A wrong result or a crash, without a place.
    How sure: Unknown.
    """
    bad = case.checks_that_are("wrong", "error")
    if case.finding is not None or not bad:
        return None
    is_error = bad[0].verdict == "error"
    result = Verdict(
        v.CRASH if is_error else v.WRONG_RESULT,
        stages.NO_STAGE,
        f"Compile {bad[0].compile} does not match eager: {bad[0].text}. "
        "The search for the cause failed, so it is unknown.",
    )
    for check in bad[:4]:
        result.add(check.text, f"compile {check.compile}, compared with eager")
    add_own_mistakes(result, case)
    return result


def compile_refused(case: ProgramCase) -> Verdict | None:
    """A compile raised before a graph could be examined: Dynamo or AOTAutograd failed.

    Applies: An exception came out of a compile, and nothing was found.
    Runs: The program in eager and without the tool, unless it is compiled ahead of time.
    Concludes: Not Inductor, if Dynamo or AOTAutograd raised, otherwise a crash; not a compiler bug,
    if the program fails in eager too; nothing, if it ends well without the tool.
    How sure: Proven by the exception, and by those runs.
    """
    errors = (e for c in case.recording.compiles for e in c.errors if not e.swallowed)
    error = next(errors, None)
    if case.finding is not None or error is None:
        return None
    if case.runs.uses_packages:
        return _refused(case, error)  # No run does without that compile.
    message = f"{error.type} before any backend ran; running the program without torch.compile"
    eager = case.runs.in_eager_once(message)
    if eager.failed:
        return also_fails_in_eager(case, eager)
    if case.first.failed and case.runs.without_tool_once().ended_well:
        return ends_well_without_tool(error.message)
    return _refused(case, error)


# Dynamo's message about a custom operator.
_FAKE_RAISED = re.compile(
    r"with fake tensors: call_function (?P<operator>(?!aten\.|prims\.|prim\.)\w+\.\w+\.\w+)\("
    r".*: got (?P<raised>\w+\(.*\))"
)


_BEFORE_INDUCTOR = {stages.DYNAMO: "Dynamo, not Inductor", stages.AOT: "AOTAutograd, not Inductor"}


def _refused(case: ProgramCase, error: CompileError) -> Verdict:
    finding = next((f for f in diagnose(case.recording) if f.rule == "compile_error"), None)
    kind = v.NOT_INDUCTOR if error.stage in _BEFORE_INDUCTOR else v.CRASH
    functions = [place.partition(" ")[0] for place in error.raised_in]
    _, _, user_code = error.message.partition("from user code:")
    own = [str(frame) for frame in frames_in(user_code) if is_users(frame.file)]
    source = own[-1] if own else error.source or (finding.source if finding else None)
    culprit = Culprit(function=functions[0] if functions else None, source=source)
    result = Verdict(kind, error.stage, _summary(error), "proven", culprit)
    fake = _FAKE_RAISED.search(error.message)
    if fake is not None and "no fake impl" not in fake["raised"]:
        # torch calls the fake implementation for shapes and dtypes only.
        culprit.op = fake["operator"]
        summary = (
            f"The fake implementation of the program's operator {fake['operator']} raises "
            f"{fake['raised'][:200]}. Eager never calls it; torch.compile asks it for shapes and "
            "types."
        )
        result = Verdict(v.NOT_A_BUG, stages.USER, summary, "proven", culprit)
    message = error.message.strip().splitlines()
    eager = "" if case.runs.uses_packages else "; the same code does not fail in eager"
    result.add("\n".join(message[:12]), f"the exception{eager}")
    for number, place in enumerate(dict.fromkeys(error.raised_in[:3])):
        result.add(f"called from {place}" if number else f"raised in {place}")
    if finding is not None:
        result.add(finding.advice)
    return result


def _summary(error: CompileError) -> str:
    message = error.message.strip().splitlines()
    who = _BEFORE_INDUCTOR.get(error.stage, f"Inductor, in stage {error.stage}")
    summary = f"{who}: {error.type}: {message[0] if message else ''}"
    if "fullgraph" in error.message or "Unsupported" in error.type:
        summary += " (with fullgraph=True Dynamo raises where it would otherwise break the graph)"
    if any("register_fake" in text for text in (error.message, *error.cause)):
        summary += " (a custom operator has no fake implementation: use register_fake)"
    return summary


def memory_layout(case: ProgramCase) -> Verdict | None:
    """The program fails because a result lies otherwise in memory than in eager.

    Applies: Some results have other strides than in eager, or share memory with other tensors,
    though every value is right; and the program fails, or a function gives a different result from
    its Python code. Not in a program that was ended: no run of it would show that it ends well.
    Runs: The program in eager, and without the tool. Then the program with those results laid out
    as in eager, all of them first, then ever fewer. If it ends well with them, once more to
    investigate the graph that gives the results that matter, and what a failure inside the program
    is proven with.
    Concludes: A wrong result, if the program ends well with the results laid out as in eager.
    How sure: That the program needs eager's layout is proven by these runs. The place is as sure as
    the way in which it was found.
    """
    fails = case.first.failed or bool(case.first.functions_that_differ)
    notes = [note for note in case.noted if note.aspect in ("stride", "sharing")]
    if case.finding is not None or not fails or case.first.was_ended or not notes:
        return None
    # The program must fail whenever it is compiled, and not in eager.
    if case.first.failed and (
        case.runs.in_eager_once().failed or not case.runs.without_tool_once().failed
    ):
        return None
    needed = _needed(case, notes)
    if not needed:
        return None
    case.needed_layout = needed
    run = case.runs.again(
        replace(case.instructions, counts=tuple(needed)),
        "it ends well with them; looking for what lays them out differently",
    )
    if run.finding is None:
        return _without_place(case, needed)
    case.finding = run.finding.claimed(NeededLayout(tuple(needed)), PROGRAM)
    case.prove_and_help()
    return verdict_on(case.finding)


# The most runs of the program to find the results that matter.
_MOST_RUNS = 12


def _needed(case: ProgramCase, notes: Sequence[NotedDifference]) -> list[NotedDifference]:
    """Return a minimal set of results that need eager's layout; [] if that does not help."""
    if not _ends_well(case, notes):
        return []
    left = _MOST_RUNS

    def first(attempts: Sequence[Sequence[NotedDifference]]) -> int | None:
        nonlocal left
        for number, attempt in enumerate(attempts):
            left -= 1
            if left >= 0 and _ends_well(case, attempt):
                return number
        return None

    return smallest_subset(notes, first)


def _ends_well(case: ProgramCase, notes: Sequence[NotedDifference]) -> bool:
    instructions = Instructions(calls=0, investigate=False, as_in_eager=tuple(notes))
    results = count_of(len(notes), "result")
    run = case.runs.again(instructions, f"running it with {results} laid out as in eager")
    return run.ending.exit_code == 0 and not run.functions_that_differ


def _without_place(case: ProgramCase, needed: Sequence[NotedDifference]) -> Verdict:
    """Make a verdict without a place: the investigation did not reproduce the difference."""
    result = Verdict(
        v.WRONG_RESULT,
        stages.NO_STAGE,
        "The program fails because a compiled result is laid out in memory differently from eager; "
        f"the cause is unknown: {needed[0].text}",
        culprit=Culprit(source=case.last_compiled),
    )
    for note in needed[:4]:
        result.add(note.text, f"compile {note.compile}, compared with eager")
    return result.add("the program ends well if these are as in eager", "a run of the program")


def wrong_capture(case: ProgramCase) -> Verdict | None:
    """Dynamo captures something other than what a function computes.

    Applies: A compiled function gave a different result from its Python code, though its graphs are
    right; or it returned where that raised, and the program ends otherwise in eager.
    Runs: The program with Dynamo alone, each graph in eager; for an error, in eager before that;
    if a graph was called again, with a new capture for each call.
    Concludes: Not Inductor, if the function differs with Dynamo alone too, and does not differ by
    itself; that guards are to blame, if new captures help. Otherwise nothing, or 'unknown' of a
    program that was ended by a limit.
    How sure: Proven by comparing the function with two forks in eager that agree.
    """
    differing = case.first.functions_that_differ or _functions_that_lose_an_error(case)
    if case.finding is not None or not differing:
        return None
    seen = differing[0]
    again = case.runs.with_backend_once(
        "eager",
        f"{seen.function} differs though its graphs are right; running it with Dynamo "
        "alone, each graph in eager",
    )
    still = again.functions_that_differ or again.functions_that_do_not_raise
    if not still:
        return verdict_at_limit(case) if case.first.was_ended else None
    result = Verdict(
        v.NOT_INDUCTOR,
        stages.DYNAMO,
        f"Dynamo captures something other than what {still[0].function} computes: "
        f"{still[0].text}, with every graph run in eager.",
        "proven",
        Culprit(function=still[0].function, source=case.last_compiled),
    )
    for event, how in ((seen, "compiled"), (still[0], "with Dynamo alone")):
        text = f"{event.function}: {event.text}"
        result.add(text, f"{how}, compared with eager in a fork")
    return _with_guards_blamed(result, again, case, still[0])


def _with_guards_blamed(
    result: Verdict, alone: ProgramRun, case: ProgramCase, seen: CallableCheck | None = None
) -> Verdict:
    """Say that guards are to blame, if what Dynamo captures is right for the call it is made for.

    `alone` is a run of the program with Dynamo alone; `seen` the call that differs; if there is
    none, the program fails.
    """
    if not case.calls_a_graph_again:
        return result
    fresh = case.runs.again(
        Instructions(calls=0, backend="eager", investigate=False, captures_every_call=True),
        "running it with Dynamo alone, with a new capture for each call",
        case.runs.usual_seconds,
    )
    if seen is None:
        what, is_right = "the program", fresh.ended_well and not fresh.functions_that_differ
    else:
        what, is_right = f"call {seen.call}", fresh.has_right_call(seen.function, seen.call)
    captured = _captured_differently(alone.recording, fresh.recording)
    if not is_right or len(captured) != 1:
        return result
    ((reused, graph),) = captured
    result.summary = (
        f"Dynamo uses what it captured for one call of {reused.function} for another, for which it "
        "is wrong, because no guard fails: with every graph run in eager and a new capture for "
        f"each call, {what} is right."
    )
    result.culprit = Culprit(function=reused.function, config="guards", source=reused.place)
    result.add(f"with a new capture for each call, {what} is right", "one run with Dynamo alone")
    text = f"no guard of compile {reused.id} tells {' and '.join(graph)} apart"
    return result.add(text, f"what is captured for two calls of {reused.function}")


def _captured_differently(
    alone: Recording, fresh: Recording
) -> list[tuple[Compile, tuple[str, ...]]]:
    """Return compiles that served all calls of their code, with how new captures differ."""

    def code_of(compile_: Compile) -> tuple[str, str | None]:
        return compile_.function, compile_.place

    counts = Counter(map(code_of, alone.compiles))
    found = []
    for reused in alone.compiles:
        captured = [each for each in fresh.compiles if code_of(each) == code_of(reused)]
        pairs = itertools.pairwise(captured if counts[code_of(reused)] == 1 else ())
        if lines := next(filter(None, (differing_lines(fresh, *pair) for pair in pairs)), None):
            found.append((reused, lines))
    return found


def _functions_that_lose_an_error(case: ProgramCase) -> list[CallableCheck]:
    """Return functions that raise in eager only, if the program as a whole shows that.

    The fork may have had a reason of its own to raise, such as threads that it does not have.
    """
    found = case.first.functions_that_do_not_raise
    if not found or case.finding is not None:
        return []
    return found if case.runs.in_eager_once().failed != case.first.failed else []


def dynamo_alone(case: ProgramCase) -> Verdict | None:
    """The program fails with Dynamo alone.

    Applies: The program fails with every compiled graph right, with and without the tool, and ends
    well in eager.
    Runs: The program with each graph in eager; if it fails the same way, that and the program in
    eager once more; if a graph was called again, with a new capture for each call.
    Concludes: Not Inductor but Dynamo, if it fails the same way twice and ends well in eager twice;
    that guards are to blame, if new captures help. If the runs disagree: nothing is known to be
    wrong.
    How sure: Proven by four or five runs.
    """
    if not case.fails_unexplained:
        return None
    result = _verdict_on_level(_DYNAMO, case)
    if result is None or result.verdict != v.NOT_INDUCTOR:
        return result
    alone = case.runs.with_backend_once(_DYNAMO.backend, _DYNAMO.message)
    return _with_guards_blamed(result, alone, case)


@dataclass(frozen=True)
class CompilerLevel:
    """A level of the compiler: how to run the program with it alone, and the texts."""

    stage: str
    backend: str
    function: str
    message: str
    summary: str


_DYNAMO = CompilerLevel(
    stage=stages.DYNAMO,
    backend="eager",
    function="torch._dynamo",
    message="running it with Dynamo alone, each graph in eager",
    summary="Dynamo captures something other than what the program computes: it also fails with "
    "every graph run in eager, and does not fail without torch.compile.",
)


def aot_alone(case: ProgramCase) -> Verdict | None:
    """The program fails with Dynamo and AOTAutograd, without Inductor.

    Applies: The program fails with every compiled graph right, and ends well in eager and with
    Dynamo alone.
    Runs: The program with backend='aot_eager'; if it fails the same way, that and the program in
    eager once more.
    Concludes: Not Inductor but AOTAutograd, if it fails the same way twice and ends well in eager
    twice. If the runs disagree: nothing is known to be wrong.
    How sure: Proven by four runs.
    """
    if not case.fails_unexplained:
        return None
    return _verdict_on_level(_AOT, case)


_AOT = CompilerLevel(
    stage=stages.AOT,
    backend="aot_eager",
    function="torch._functorch.aot_autograd",
    message="running it with Dynamo and AOTAutograd, without Inductor",
    summary="AOTAutograd alone is wrong: the program fails with backend='aot_eager' too, and does "
    "not fail with Dynamo alone or without torch.compile.",
)


# --- one level of the compiler alone --------------------------------------------------------------


def _verdict_on_level(level: CompilerLevel, case: ProgramCase) -> Verdict | None:
    """Check whether the program fails with this level of the compiler and without later ones.

    The program is known to end well in eager.
    """
    instructions = Instructions(calls=0, backend=level.backend, investigate=False)
    tried = case.runs.with_backend_once(level.backend, level.message)
    if not fails_alike(case.first, tried, case.runs.in_eager_once()):
        return None
    again = case.runs.again(instructions, f"{level.message}, once more")
    well = case.runs.in_eager_once()
    eager = case.runs.in_eager("running it without torch.compile once more")
    if eager.failed:
        return not_always(eager, well, "both without torch.compile")
    if not fails_alike(case.first, again):
        return not_always(tried, again, f"both with backend='{level.backend}'")
    culprit = Culprit(function=level.function, source=case.last_compiled)
    result = Verdict(v.NOT_INDUCTOR, level.stage, level.summary, "proven", culprit)
    result.add(
        f"fails with backend='{level.backend}' in two runs, not without torch.compile in two",
        "runs of the program",
    )
    return result.add(case.first.last_words, "what the program printed")
