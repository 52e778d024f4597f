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
from inductoscope.doctor.instructions import CONDITIONS, VARIABLE, Instructions
from inductoscope.doctor.runs import cache_variables
from inductoscope.launch.environment import PARTS_VARIABLE
from inductoscope.views.verdict_text import worded
from support.findings import finding
from support.program_cases import End, written_case

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


def test_every_condition_of_a_checked_run_is_covered_by_a_hypothesis() -> None:
    names = {hypothesis.__name__ for hypothesis in HYPOTHESES}
    assert {condition.covered_by for condition in CONDITIONS} <= names


def test_a_checked_run_has_no_condition_that_is_not_in_the_table() -> None:
    """Variables that torch or OpenMP read; all of them go with the conditions that they impose."""
    listed = {name for condition in CONDITIONS for name in condition.variables}
    checked = Instructions().environment()
    given_back = Instructions(given_back=tuple(each.name for each in CONDITIONS)).environment()
    assert listed == set(checked) - set(given_back)
    # How torch counts GPUs; what is left is the tool's own.
    assert set(given_back) - {"PYTORCH_NVML_BASED_CUDA_CHECK"} == {VARIABLE, PARTS_VARIABLE}


def test_a_run_without_the_tool_has_no_condition_of_the_tool(tmp_path: Path) -> None:
    plain = Instructions(inside=False)
    assert not any(plain.has(condition) for condition in CONDITIONS)
    named = {**plain.environment(), **cache_variables(tmp_path, inside=False)}
    assert not [name for name in named if name.startswith("INDUCTOSCOPE")]


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
        # Who fails in eager, too, is not blamed on a condition of the tool.
        ("fails_without_the_tool", "cached_results"),
        ("cached_results", "damaged_cache"),
        ("inductor_random_numbers", "given_back"),
        ("given_back", "hidden_by_the_tool"),
        # A run with other roundings is slow, and proves nothing of a program that measures time.
        ("slower_than_it_allows", "rounding"),
        # The compiler is blamed only for what does not fail in eager.
        ("fails_in_eager", "dynamo_alone"),
        ("fails_now_and_then", "dynamo_alone"),
        # Rounding takes the fewest runs, and rules Dynamo out by itself.
        ("fails_in_eager", "rounding"),
        ("rounding", "fails_now_and_then"),
        ("package_not_compared", "rounding"),
        # What a run shows comes before what is only likely.
        ("rounding", "likely_rounding"),
        ("aot_alone", "random_numbers"),
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
