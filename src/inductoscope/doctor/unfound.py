"""Verdicts on programs in which no compiled graph was found wrong.

Either all is well, or what goes wrong is not Inductor's: it fails in eager too, Dynamo refuses,
the result is random by itself, or the program compares rounding.
"""

from __future__ import annotations

from collections.abc import Callable

from inductoscope.diagnose import diagnose
from inductoscope.doctor import verdict as v
from inductoscope.doctor.orders import Orders
from inductoscope.doctor.program import Watched
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.entities import CompileError, Recording
from inductoscope.model.fold import load
from inductoscope.model.fx import read_graph
from inductoscope.recording.reader import Event, open_recording

Rerun = Callable[[Orders, str], Watched]

_RANDOM = (
    "rand", "bernoulli", "dropout", "normal", "multinomial", "poisson", "exponential", "uniform",
)  # fmt: skip


def checks_of(run: Watched) -> list[Event]:
    """The checks that were made inside a run."""
    return [event for event in open_recording(run.folder).events() if event.kind == "check"]


def callables_that_differ(run: Watched) -> list[Event]:
    """Compiled functions that gave something else than their Python code, as a whole."""
    return [
        event
        for event in open_recording(run.folder).events()
        if event.kind == "callable-check" and event.text("verdict") == "differs"
    ]


def verdict_without_finding(run: Watched, rerun: Rerun) -> Verdict:
    """What to say of a run in which nothing was found wrong with a compiled graph."""
    recording = load(run.folder)
    checks = checks_of(run)
    errors = [e for c in recording.compiles for e in c.errors if not e.swallowed]
    if errors:
        eager = rerun(
            Orders(calls=0, backend="off", investigate=False),
            f"{errors[0].type} before any backend ran; running the program without torch.compile",
        )
        if eager.ending.exit_code != 0:
            return _fails_in_eager(run, eager)
        return _not_inductor(recording, errors[0])
    if run.stalled or run.over_time:
        return _too_long(run)
    captured = callables_that_differ(run)
    unsteady = [check for check in checks if check.text("verdict") == "unsteady"]
    if unsteady and (captured or run.ending.exit_code != 0):
        return _not_a_bug(
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
    return _failed_elsewhere(run, recording, checks, rerun)


def _not_inductor(recording: Recording, error: CompileError) -> Verdict:
    finding = next((f for f in diagnose(recording) if f.rule == "compile_error"), None)
    stage = error.stage if error.stage in ("dynamo", "aot") else "dynamo"
    message = error.message.strip().splitlines()
    summary = f"Dynamo, not Inductor: {error.type}: {message[0] if message else ''}"
    if "fullgraph" in error.message or "Unsupported" in error.type:
        summary += " (with fullgraph=True Dynamo raises where it would otherwise break the graph)"
    result = Verdict(v.NOT_INDUCTOR, stage, summary, "proven")
    functions = [place.partition(" ")[0] for place in error.raised_in]
    source = error.source or (finding.source if finding else None)
    result.culprit = Culprit(function=functions[0] if functions else None, source=source)
    result.add("\n".join(message[:12]), "the exception, before any backend ran")
    for place in error.raised_in[:3]:
        result.add(f"raised in {place}")
    if finding is not None:
        result.add(finding.advice)
    return result


def _too_long(run: Watched) -> Verdict:
    result = Verdict(
        v.HANG, "user", "The program did not end in time; it was not inside the compiler.", "likely"
    )
    result.add(run.stacks[-1500:], "the last Python stacks")
    return result


def _clean(recording: Recording, checks: list[Event]) -> Verdict:
    compiled = len(recording.compiles)
    if not compiled:
        text = "Nothing is wrong, and nothing was compiled: torch.compile was not used."
        return Verdict(v.CLEAN, "none", text, "proven")
    right = [check for check in checks if check.text("verdict") == "right"]
    rounding = [check for check in checks if check.text("verdict") == "within-rounding"]
    result = Verdict(
        v.CLEAN,
        "none",
        f"Nothing found: {len(checks)} calls of {compiled} compiled graphs give what eager gives.",
        "proven" if checks else "unknown",
    )
    result.add(
        f"{len(right)} calls agree with eager, {len(rounding)} differ within rounding",
        "forward and backward, with types, shapes, strides, aliasing and written inputs",
    )
    for check in checks:
        if check.text("verdict") in ("skipped", "eager-fails", "unsteady"):
            result.add(f"{check.text('verdict')}: {check.text('text')}", check.text("compile"))
    return result


def _failed_elsewhere(
    run: Watched, recording: Recording, checks: list[Event], rerun: Rerun
) -> Verdict:
    """The program fails, yet every compiled graph does what eager does."""
    eager = rerun(
        Orders(calls=0, backend="off", investigate=False),
        "the program failed with every graph right; running it without torch.compile",
    )
    if eager.ending.exit_code == run.ending.exit_code or eager.ending.exit_code != 0:
        return _fails_in_eager(run, eager)
    random = random_operations(recording)
    plain = [check for check in checks if check.text("verdict") == "within-rounding"]
    if random and not plain:
        result = _not_a_bug(
            "Unseeded randomness: compiled and eager draw different random numbers "
            f"({', '.join(random[:4])}); with the same generator they agree",
            [check for check in checks if check.text("verdict") == "right"],
        )
        result.culprit.op = random[0]
        return result
    if plain:
        return _not_a_bug(
            "Rounding: the program's own comparison asks for more than floating point precision "
            "gives; the order of a reduction or the tolerance explains the difference (noise)",
            plain,
        )
    return _dynamo_or_unknown(run, recording, checks, rerun)


def _wrongly_captured(captured: list[Event], recording: Recording, rerun: Rerun) -> Verdict | None:
    """Every graph is right and the function is not: does Dynamo alone do that?"""
    again = rerun(
        Orders(calls=0, backend="eager", investigate=False),
        f"{captured[0].text('function')} differs though its graphs are right; running it with "
        "Dynamo alone, each graph in eager",
    )
    still = callables_that_differ(again)
    if not still:
        return None
    result = Verdict(
        v.NOT_INDUCTOR,
        "dynamo",
        f"Dynamo captures something else than {still[0].text('function')} computes: "
        f"{still[0].text('text')}, with every graph run in eager.",
        "proven",
    )
    result.culprit = Culprit(function=still[0].text("function"), source=_last_place(recording))
    for event in (captured[0], still[0]):
        result.add(
            f"{event.text('function')}: {event.text('text')}", "compared with a fork in eager"
        )
    return result


def _fails_in_eager(run: Watched, eager: Watched) -> Verdict:
    last = [line for line in eager.output.strip().splitlines() if line.strip()][-3:]
    result = Verdict(
        v.NOT_A_BUG,
        "user",
        "The program fails without torch.compile too, so the compiler is not to blame"
        + (f": {last[-1][:200]}" if last else "."),
        "proven",
    )
    result.add(
        f"exit code {run.ending.exit_code} compiled, {eager.ending.exit_code} in eager",
        "two runs of the program",
    )
    result.add("\n".join(last), "what the run in eager printed last")
    return result


def _not_a_bug(summary: str, checks: list[Event]) -> Verdict:
    result = Verdict(v.NOT_A_BUG, "none", summary, "proven")
    for check in checks[:4]:
        result.add(check.text("text"), f"compile {check.text('compile')}, compared with float64")
    return result


def random_operations(recording: Recording) -> list[str]:
    """Operations in the captured graphs that draw random numbers."""
    found = []
    for compile_ in recording.compiles:
        for graph in compile_.graphs:
            read = read_graph(recording, graph.digest)
            for node in read.nodes if read is not None else ():
                name = node.target.rpartition(".")[2] if "aten" not in node.target else node.target
                if any(word in name for word in _RANDOM):
                    found.append(node.target)
    return list(dict.fromkeys(found))


def _dynamo_or_unknown(
    run: Watched, recording: Recording, checks: list[Event], rerun: Rerun
) -> Verdict:
    """What remains: Dynamo captured something else than the program says, or the tool hid it."""
    with_dynamo = rerun(
        Orders(calls=0, backend="eager", investigate=False),
        "running it with Dynamo alone, each graph in eager",
    )
    if with_dynamo.ending.exit_code == run.ending.exit_code:
        return _level(
            "dynamo",
            "Dynamo captures something else than the program computes: it fails with every graph "
            "run in eager too, and does not fail without torch.compile.",
            "fails with backend='eager', not without torch.compile",
            Culprit(function="torch._dynamo", source=_last_place(recording)),
            run,
        )
    with_aot = rerun(
        Orders(calls=0, backend="aot_eager", investigate=False),
        "running it with Dynamo and AOTAutograd, without Inductor",
    )
    if with_aot.ending.exit_code == run.ending.exit_code:
        return _level(
            "aot",
            "AOTAutograd alone is wrong: the program fails with backend='aot_eager' too, and does "
            "not fail with Dynamo alone or without torch.compile.",
            "fails with backend='aot_eager', not with backend='eager'",
            Culprit(function="torch._functorch.aot_autograd", source=_last_place(recording)),
            run,
        )
    result = Verdict(
        v.WRONG_RESULT,
        "none",
        "The program fails compiled and not in eager, yet every compiled graph does what eager "
        "does on the calls that were checked; the cause is unknown.",
    )
    result.add(run.output[-800:], "what the program printed")
    result.add(f"{len(checks)} calls checked; check more with --calls")
    return result


def _level(stage: str, summary: str, shown: str, culprit: Culprit, run: Watched) -> Verdict:
    """The level below which nothing is wrong, told by runs of the program."""
    result = Verdict(v.NOT_INDUCTOR, stage, summary, "proven", culprit)
    result.add(shown, "two runs of the program")
    result.add(run.output[-800:], "what the program printed")
    return result


def _last_place(recording: Recording) -> str | None:
    return recording.compiles[-1].place if recording.compiles else None
