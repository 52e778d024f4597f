"""The doctor's conclusions from a program that a limit or an interruption has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.common_verdicts import known_so_far
from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.verdict import exit_code
from inductoscope.recording.events import CallableCheck, NotedDifference, StageStart
from support.program_cases import (
    COMPILED,
    COMPILED_ONE,
    ENDS_WELL,
    FAILS,
    UNCHECKED,
    End,
    check,
    written_case,
)

OVER_TIME = End(137, "step 500", over_time=True)
STOPPED_AS_ASKED = End(137, "step 500", calls_done=True)
ENDED = pytest.mark.parametrize("end", [OVER_TIME, STOPPED_AS_ASKED], ids=["limit", "--stop"])
DIFFERS = CallableCheck(function="f", call=1, verdict="differs", text="value 0 is 2, in eager 1")


def test_a_limit_is_a_limit_and_not_a_hang(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """As with training that goes on for days, under --time-limit 40."""
    calls = tuple(replace(check(), call=number) for number in (1, 2, 3))
    end = replace(OVER_TIME, events=(COMPILED_ONE, *calls, UNCHECKED))
    case, asked = written_case(tmp_path, end)
    found = first_verdict(case)
    assert (found.verdict, found.confidence, asked) == ("clean", "likely", [])
    assert found.summary == snapshot
    assert any("--time-limit" in text for text in found.not_checked)


def test_a_limit_before_anything_was_compared_leaves_everything_unchecked(tmp_path: Path) -> None:
    case, _ = written_case(tmp_path, replace(OVER_TIME, events=(COMPILED_ONE,)))
    found = first_verdict(case)
    assert (found.verdict, exit_code(found.verdict)) == ("not-checked", 4)


def test_a_limit_in_the_middle_of_a_compile_does_not_prove_that_it_hangs(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    entered = StageStart(compile="0/0", stage="lowering")
    end = replace(OVER_TIME, events=(COMPILED_ONE, entered), died=True)
    case, asked = written_case(tmp_path, end, compiled=[End(137, over_time=True)])
    found = first_verdict(case)
    assert (found.verdict, asked) == ("unknown", [COMPILED])
    assert found.summary == snapshot


def test_a_program_that_was_stopped_as_asked_is_clean_so_far(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    end = replace(STOPPED_AS_ASKED, events=(COMPILED_ONE, check(), UNCHECKED))
    case, asked = written_case(tmp_path, end)
    found = first_verdict(case)
    assert (found.verdict, found.confidence, found.partial) == ("clean", "likely", False)
    assert found.summary == snapshot
    assert found.not_checked == snapshot
    assert asked == []


@ENDED
def test_what_dynamo_captures_wrongly_is_found_in_a_program_that_was_ended(
    tmp_path: Path, end: End
) -> None:
    """It is not called a hang, and the run with Dynamo alone may be ended as well."""
    first, again = (replace(end, events=events) for events in ((check(), DIFFERS), (DIFFERS,)))
    case, asked = written_case(tmp_path, first, eager=[again])
    found = first_verdict(case)
    assert (found.verdict, found.stage, asked) == ("not-inductor", "dynamo", ["eager"])


@ENDED
def test_a_function_that_differs_in_a_program_that_was_ended_is_not_forgotten(
    tmp_path: Path,
    end: End,
    snapshot: SnapshotAssertion,
) -> None:
    case, asked = written_case(tmp_path, replace(end, events=(check(), DIFFERS)), eager=[end])
    found = first_verdict(case)
    assert (found.verdict, found.confidence, asked) == ("unknown", "unknown", ["eager"])
    assert found.summary.endswith("before it was known why the program goes wrong.")
    assert found.evidence[0]["what"] == snapshot


@ENDED
def test_a_call_that_is_wrong_in_a_program_that_was_ended_is_not_forgotten(
    tmp_path: Path, end: End
) -> None:
    events = (check(), check("wrong", text="output 0 is 2, in eager 1"))
    case, asked = written_case(tmp_path, replace(end, events=events))
    assert (first_verdict(case).verdict, asked) == ("wrong-result", [])


@ENDED
def test_the_layout_of_results_is_not_tried_on_a_program_that_does_not_end(
    tmp_path: Path, end: End
) -> None:
    """Each of a dozen runs would take as long as the limit allows, and none would end well."""
    note = NotedDifference(compile="0/0", call=1, aspect="sharing", where="output 0", text="shares")
    case, asked = written_case(tmp_path, replace(end, events=(check(), DIFFERS, note)), eager=[end])
    assert (first_verdict(case).verdict, asked) == ("unknown", ["eager"])


@pytest.mark.parametrize(
    ("end", "verdict", "said"),
    [
        (End(130, over_time=True), "clean", "matches eager; the program was still running."),
        (ENDS_WELL, "clean", "matches eager, and the program has ended well."),
        (FAILS, "unknown", "before it was known why the program goes wrong."),
        (End(137, stalled=True), "unknown", "before it was known why the program goes wrong."),
    ],
    ids=["while it runs", "after it ended well", "after it failed", "after it stalled"],
)
def test_what_is_known_of_a_program_whose_examination_was_interrupted(
    tmp_path: Path, end: End, verdict: str, said: str
) -> None:
    case, _ = written_case(tmp_path, replace(end, events=(COMPILED_ONE, check())))
    found = known_so_far(case, "Interrupted")
    assert (found.verdict, found.summary[: len("Interrupted")]) == (verdict, "Interrupted")
    assert found.summary.endswith(said)


def test_an_interruption_does_not_turn_a_wrong_call_into_one_that_was_not_compared(
    tmp_path: Path,
) -> None:
    events = (COMPILED_ONE, check(), check("wrong", text="output 0 is 2, in eager 1"))
    case, _ = written_case(tmp_path, End(130, over_time=True, events=events))
    found = known_so_far(case, "Interrupted")
    assert (found.verdict, found.evidence[0]["what"]) == ("unknown", "output 0 is 2, in eager 1")


def test_a_program_that_fails_without_the_tool_is_not_called_clean_when_interrupted(
    tmp_path: Path,
) -> None:
    case, _ = written_case(tmp_path, End(events=(COMPILED_ONE, check())), plain=[End(139)])
    case.runs.without_tool_once("to see where it fails")
    found = known_so_far(case, "Interrupted")
    assert found.verdict == "unknown"
    assert "exit code 139 without this tool, and well under it" in str(found.evidence[0]["what"])
