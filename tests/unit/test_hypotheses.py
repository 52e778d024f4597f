"""The hypotheses on what is wrong with a program, and their order."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.finding import FailureFinding
from inductoscope.doctor.hypotheses import (
    HYPOTHESES,
    Hypothesis,
    compiler_levels,
    ends_well,
    first_verdict,
    found,
    packages,
    program_itself,
    slow,
    stalled,
)
from inductoscope.doctor.runs import fails_alike
from inductoscope.recording.location import create_recording
from inductoscope.views.verdict_text import worded
from support.findings import finding
from support.program_cases import COMMAND, End, leave_behind, written_case

# --- the table ------------------------------------------------------------------------------------

HEADINGS = ("Applies:", "Runs:", "Concludes:", "How sure:")
GROUPS = (compiler_levels, ends_well, found, packages, program_itself, slow, stalled)

every_hypothesis = pytest.mark.parametrize("hypothesis", HYPOTHESES, ids=lambda h: h.__name__)


def test_every_hypothesis_is_in_the_table_once() -> None:
    public = [
        member
        for group in GROUPS
        for name, member in vars(group).items()
        if getattr(member, "__module__", "") == group.__name__
        and not name.startswith("_")
        and "Applies:" in (member.__doc__ or "")
    ]
    assert sorted(map(str, public)) == sorted(map(str, HYPOTHESES))


@every_hypothesis
def test_a_hypothesis_is_documented_under_the_same_headings(hypothesis: Hypothesis) -> None:
    title, rest = inspect.cleandoc(hypothesis.__doc__ or "").split("\n\n")
    assert "\n" not in title
    found = [line.partition(" ")[0] for line in rest.splitlines()]
    assert [f"{word} sure:" if word == "How" else word for word in found if word in WORDS] == [
        *HEADINGS
    ]


WORDS = ("Applies:", "Runs:", "Concludes:", "How")


def place_of(name: str) -> int:
    return [hypothesis.__name__ for hypothesis in HYPOTHESES].index(name)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        # There is no graph to return to: choices are stuck while one is being lowered.
        ("stuck_choices", "died_or_stalled"),
        # What is found there is judged by those after them.
        ("died_or_stalled", "machine_cannot_compile"),
        ("unchecked_call", "machine_cannot_compile"),
        # A graph that runs for ever in eager too must not be blamed on the compiler.
        ("hangs_in_eager", "proven_failure"),
        ("proven_failure", "dies_in_eager"),
        ("dies_in_eager", "unproven_failure"),
        ("proven_failure", "only_under_the_tool"),
        ("only_under_the_tool", "unproven_failure"),
        # Whatever was found ends the examination before anybody else is blamed.
        ("unproven_failure", "unexamined_failure"),
        # A mistake of the tool must not turn what it saw into a clean bill.
        ("unexamined_failure", "clean"),
        ("wrong_capture", "clean"),
        # A function that differs because of a graph's results is not Dynamo's fault.
        ("memory_layout", "wrong_capture"),
        ("clean", "inductor_random_numbers"),
        ("inductor_random_numbers", "hidden_by_the_tool"),
        # The compiler is blamed only for what does not fail in eager.
        ("fails_in_eager", "dynamo_alone"),
        ("fails_now_and_then", "dynamo_alone"),
        # With other roundings, what Dynamo does is done too.
        ("dynamo_alone", "rounding"),
        # What a run shows comes before what is only likely.
        ("rounding", "likely_rounding"),
        ("aot_alone", "likely_random_numbers"),
        ("likely_rounding", "unknown_cause"),
    ],
)
def test_the_order_of_hypotheses(first: str, then: str) -> None:
    assert place_of(first) < place_of(then)


@pytest.mark.parametrize("stalled", [False, True], ids=["", "stalled"])
@pytest.mark.parametrize("over_time", [False, True], ids=["", "over time"])
@pytest.mark.parametrize("exit_code", [0, 1, 139])
@pytest.mark.parametrize(
    "seen", [None, finding(Failure(WRONG, "text"), reproduces=False)], ids=["", "found"]
)
def test_there_is_a_verdict_however_a_program_ends(
    tmp_path: Path, exit_code: int, over_time: bool, stalled: bool, seen: FailureFinding | None
) -> None:
    end = End(exit_code, "text", over_time, stalled, found=seen)
    case, _ = written_case(tmp_path, end)
    assert worded(first_verdict(case)).summary


# --- whether two runs failed alike ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (End(1, "step 3\nloss is 0.25"), End(1, "step 12\nloss is -1.5e-07"), True),
        (End(1, "loss is 0.25"), End(1, "loss is 0.25\n\n"), True),
        (End(1, ""), End(1, ""), True),
        (End(1, "loss is 0.25"), End(2, "loss is 0.25"), False),
        (End(1, "loss is 0.25"), End(1, "no such file"), False),
        (End(1, "loss is 0.25"), End(1, ""), False),
    ],
    ids=["other numbers", "empty lines", "silent", "other code", "other words", "no words"],
)
def test_runs_fail_alike_by_exit_code_and_last_words(
    one: End, other: End, alike: bool, tmp_path: Path
) -> None:
    runs = [
        leave_behind(end, create_recording(COMMAND, output=tmp_path / str(number)))
        for number, end in enumerate((one, other))
    ]
    assert fails_alike(*runs) is alike
