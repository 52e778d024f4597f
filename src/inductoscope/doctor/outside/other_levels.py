"""Verdicts on programs that fail although every compiled graph does what eager does.

What a run of the whole program shows is weak evidence: it may fail for a reason of its own, now and
then, or because it is watched. So a part of torch is blamed only by two runs in a row, and what is
not shown by a run is called likely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inductoscope.doctor.instructions import MOVED, Instructions
from inductoscope.doctor.outside.program import Watched
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.entities import Check, Recording
from inductoscope.model.fx import read_graph
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v

Rerun = Callable[[Instructions, str], Watched]

# The program as it is, without the tool and without torch.compile.
IN_EAGER = Instructions(backend="off", inside=False)

_RANDOM = re.compile(
    r"(inductor_)?rand.*|\w*dropout\w*|bernoulli_?|(log_)?normal_?|multinomial|poisson|exponential_?"
    r"|uniform_?|cauchy_?|geometric_?|rrelu.*"
)


def failed_elsewhere(
    run: Watched, recording: Recording, checks: Sequence[Check], rerun: Rerun
) -> Verdict:
    """The program fails, yet every compiled graph does what eager does."""
    eager = run_in_eager(
        rerun, "the program failed with every graph right; running it without torch.compile"
    )
    if eager.failed:
        return fails_in_eager(run, eager, recording)
    plain = rerun(Instructions(inside=False), "running it compiled, without the tool")
    if plain.ending.exit_code == 0:
        return _not_always(run, plain, "one of them without the tool")
    # First, for with other roundings what Dynamo does is done too.
    if (blamed := _blamed_level(_DYNAMO, run, eager, recording, rerun)) is not None:
        return blamed
    rounding = [check for check in checks if check.verdict == "within-rounding"]
    inexact = [check for check in checks if check.is_exact is False]
    if rounding or inexact:
        moved = rerun(
            Instructions(calls=0, backend=MOVED, investigate=False),
            "running it in eager with other roundings",
        )
        if _fails_alike(run, moved):
            return _falls_over_rounding(rounding or inexact)
    if (blamed := _blamed_level(_AOT, run, eager, recording, rerun)) is not None:
        return blamed
    if random := random_operations(recording):
        return other_random_numbers(random, checks, is_shown=False)
    return _likely_rounding(rounding) if rounding else _cause_unknown(run, checks)


def _likely_rounding(rounding: Sequence[Check]) -> Verdict:
    result = not_a_bug(
        "Rounding, most likely: compiled and eager differ by no more than rounding explains, going "
        "by float64, and nothing else is known to be wrong (noise)",
        rounding,
    )
    result.confidence = "likely"
    return result


def other_random_numbers(random: list[str], checks: Sequence[Check], *, is_shown: bool) -> Verdict:
    """Compiled code has a generator of its own, and draws in an order of its own."""
    result = not_a_bug(
        f"Unseeded randomness{'' if is_shown else ', most likely'}: compiled and eager draw "
        f"different random numbers ({', '.join(random[:4])}), also from the same seed; with the "
        "same generator they agree",
        [check for check in checks if check.verdict == "right"],
    )
    result.culprit.op = random[0]
    result.confidence = "proven" if is_shown else "likely"
    return result


def _falls_over_rounding(inexact: Sequence[Check]) -> Verdict:
    result = not_a_bug(
        "Rounding: the program fails in eager too, once every inexact operation is rounded "
        "otherwise by one unit in the last place; what it asks for, floating point does not give "
        "(noise)",
        inexact,
    )
    result.add("fails the same way, with every graph in eager and rounded otherwise", "one run")
    return result


def run_in_eager(rerun: Rerun, why: str) -> Watched:
    """Run the program in eager."""
    return rerun(IN_EAGER, why)


def never_ends_in_eager(eager: Watched, seen: str) -> Verdict:
    """The program does not end, compiled or not."""
    result = Verdict(
        v.NOT_A_BUG,
        stages.USER,
        "The program does not end without torch.compile either, so the compiler is not to blame.",
        "likely",
    )
    result.add(seen, "with torch.compile")
    result.add(f"ended after {eager.ending.seconds:.0f} s, as it went on", "without torch.compile")
    return result


def fails_in_eager(run: Watched, eager: Watched, recording: Recording) -> Verdict:
    last = [line for line in eager.output.strip().splitlines() if line.strip()][-3:]
    result = Verdict(
        v.NOT_A_BUG,
        stages.USER,
        "The program fails without torch.compile too, so the compiler is not to blame"
        + (f": {last[-1][:200]}" if last else "."),
        "proven",
    )
    result.add(
        f"exit code {run.ending.exit_code} compiled, {eager.ending.exit_code} in eager",
        "two runs of the program, the one in eager without this tool",
    )
    result.add("\n".join(last), "what the run in eager printed last")
    if random := random_operations(recording):
        result.add(
            f"it draws random numbers ({', '.join(random[:4])}); whether they are why it fails "
            "was not examined",
            "the captured graphs",
        )
    return result


def not_a_bug(summary: str, checks: Sequence[Check]) -> Verdict:
    result = Verdict(v.NOT_A_BUG, stages.NO_STAGE, summary, "proven")
    for check in checks[:4]:
        how = "eager" if check.verdict == "right" else "eager and float64"
        result.add(check.text, f"compile {check.compile}, compared with {how}")
    return result


def _not_always(failed: Watched, other: Watched, how: str) -> Verdict:
    result = Verdict(
        v.UNKNOWN,
        stages.NO_STAGE,
        "The program does not end the same way in every run: it fails now and then, or only under "
        "the tool. Nothing is known to be wrong with what was compiled.",
    )
    codes = f"exit code {failed.ending.exit_code} in one, {other.ending.exit_code} in the other"
    result.add(codes, f"two runs of the program, {how}")
    result.add(failed.output[-800:], "what the run that failed printed last")
    return result


def random_operations(recording: Recording) -> list[str]:
    """Operations in the captured graphs that draw random numbers."""
    found = []
    for compile_ in recording.compiles:
        for graph in compile_.graphs:
            read = read_graph(recording, graph.digest)
            for node in read.nodes if read is not None else ():
                # As in aten.normal.Tensor_Tensor and torch.nn.functional.dropout.
                parts = node.target.split(".")
                if any(_RANDOM.fullmatch(part) for part in parts):
                    found.append(node.target)
    return list(dict.fromkeys(found))


# --- the level that fails -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Level:
    """A part of the compiler that can be run without what comes after it."""

    stage: str
    backend: str
    function: str
    why: str
    summary: str


_DYNAMO = _Level(
    stages.DYNAMO,
    "eager",
    "torch._dynamo",
    "running it with Dynamo alone, each graph in eager",
    "Dynamo captures something else than the program computes: it fails with every graph run in "
    "eager too, and does not fail without torch.compile.",
)
_AOT = _Level(
    stages.AOT,
    "aot_eager",
    "torch._functorch.aot_autograd",
    "running it with Dynamo and AOTAutograd, without Inductor",
    "AOTAutograd alone is wrong: the program fails with backend='aot_eager' too, and does not fail "
    "with Dynamo alone or without torch.compile.",
)


def _blamed_level(
    level: _Level, run: Watched, well: Watched, recording: Recording, rerun: Rerun
) -> Verdict | None:
    """Whether the program fails with this part of the compiler and without what comes after it."""
    instructions = Instructions(calls=0, backend=level.backend, investigate=False)
    tried = rerun(instructions, level.why)
    if not _fails_alike(run, tried):
        return None
    again = rerun(instructions, f"{level.why}, once more")
    eager = run_in_eager(rerun, "running it without torch.compile once more")
    if eager.failed:
        return _not_always(eager, well, "both without torch.compile")
    if not _fails_alike(run, again):
        return _not_always(tried, again, f"both with backend='{level.backend}'")
    return _blamed(level, run, recording)


def _cause_unknown(run: Watched, checks: Sequence[Check]) -> Verdict:
    """What remains: the tool hid it, or what was not compared is wrong."""
    compared = [check for check in checks if check.verdict != "skipped"]
    died = run.ending.signal is not None
    result = Verdict(
        v.CRASH if died else v.WRONG_RESULT,
        stages.NO_STAGE,
        f"The program {'dies' if died else 'fails'} compiled and not in eager; the cause is "
        f"unknown. In the {len(compared)} calls that were compared every compiled graph does what "
        "eager does.",
    )
    result.add(run.output[-800:], "what the program printed")
    for check in checks:
        if check.verdict == "skipped":
            result.add(f"not compared: {check.text}", check.compile)
    return result


def _fails_alike(one: Watched, other: Watched) -> bool:
    """Whether two runs failed with the same exit code and the same last words."""
    if one.ending.exit_code != other.ending.exit_code:
        return False
    return _last_words(one) == _last_words(other)


def _last_words(run: Watched) -> str:
    """The last line that was printed, without numbers, which may differ."""
    lines = run.output.strip().splitlines()
    return re.sub(r"[-+.\d]+(e[-+]?\d+)?", "#", lines[-1]) if lines else ""


def _blamed(level: _Level, run: Watched, recording: Recording) -> Verdict:
    """The level below which nothing is wrong."""
    culprit = Culprit(function=level.function, source=last_place(recording))
    result = Verdict(v.NOT_INDUCTOR, level.stage, level.summary, "proven", culprit)
    result.add(
        f"fails with backend='{level.backend}' in two runs, not without torch.compile in two",
        "runs of the program",
    )
    result.add(run.output[-800:], "what the program printed")
    return result


def last_place(recording: Recording) -> str | None:
    """The function that was compiled last."""
    return recording.compiles[-1].place if recording.compiles else None
