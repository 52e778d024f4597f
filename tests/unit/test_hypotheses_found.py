"""The doctor's conclusions if something was found inside the program."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from inductoscope.doctor.failure import ERROR, HANG, SIGNAL, WRONG, Failure
from inductoscope.doctor.finding import GraphWorkaround, GraphWorkarounds
from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.recording.events import StageStart
from inductoscope.views.verdict_text import worded
from support.findings import finding
from support.program_cases import (
    COMPILED,
    ENDS_WELL,
    FAILS,
    PLAIN,
    UNCHECKED,
    End,
    check,
    written_case,
)

# --- a failure that was found ---------------------------------------------------------------------


def test_what_no_reproducer_shows_is_checked_without_the_tool(tmp_path: Path) -> None:
    found = finding(Failure(ERROR, "KeyError: 1", stage="lowering"), reproduces=False)
    case, asked = written_case(tmp_path, End(75, found=found), plain=[ENDS_WELL])
    verdict = first_verdict(case)
    assert (verdict.verdict, asked) == ("unknown", [PLAIN])
    assert "KeyError: 1" in verdict.evidence[0]["what"]


def test_what_fails_without_the_tool_too_is_told_though_no_reproducer_shows_it(
    tmp_path: Path,
) -> None:
    found = finding(Failure(ERROR, "KeyError: 1", stage="lowering"), reproduces=False)
    case, asked = written_case(tmp_path, End(75, found=found))
    assert (first_verdict(case).verdict, asked) == ("crash", [PLAIN])


def test_a_wrong_result_needs_no_run_without_the_tool(tmp_path: Path) -> None:
    found = finding(Failure(WRONG, "output 0 is 2, in eager 1"), reproduces=False)
    case, asked = written_case(tmp_path, End(75, found=found))
    assert (first_verdict(case).verdict, asked) == ("wrong-result", [])


def test_workarounds_are_tried_on_the_program_until_one_works(tmp_path: Path) -> None:
    codes = [GraphWorkaround(f"way {number}", f"x = {number}") for number in range(3)]
    found = finding(Failure(WRONG, "text"), GraphWorkarounds(tuple(codes)), reproduces=False)
    helped = replace(ENDS_WELL, events=(check(),))
    still_wrong = replace(ENDS_WELL, events=(check("wrong"),))
    case, asked = written_case(tmp_path, End(75, found=found), compiled=[still_wrong, helped])
    workaround = first_verdict(case).workaround
    assert workaround is not None
    assert (workaround.text, workaround.verified, asked) == ("way 1", True, [COMPILED] * 2)


@pytest.mark.parametrize(
    ("eager", "verdict"),
    [(End(137, "", over_time=True), "not-a-bug"), (ENDS_WELL, "hang")],
    ids=["hangs in eager too", "ends in eager"],
)
def test_a_graph_that_never_ends_is_run_in_eager_as_long(
    tmp_path: Path, eager: End, verdict: str
) -> None:
    found = finding(Failure(HANG, "text", stage="runtime"), reproduces=False)
    case, asked = written_case(tmp_path, End(75, found=found), off=[eager])
    assert (first_verdict(case).verdict, asked) == (verdict, ["off"])


def test_a_machine_that_cannot_compile_is_not_examined_further(tmp_path: Path) -> None:
    failure = Failure(ERROR, "InvalidCxxCompiler: no g++", stage="cpp-compile")
    found = finding(failure, reproduces=False)
    case, asked = written_case(tmp_path, End(75, found=found))
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.confidence, asked) == ("compile-error", "proven", [])
    assert worded(verdict).summary.endswith(
        "Install g++ or clang++, or name one that works in CXX."
    )


# --- looking again --------------------------------------------------------------------------------


def test_every_call_is_checked_if_not_all_were_and_eager_ends_well(tmp_path: Path) -> None:
    found = finding(Failure(WRONG, "text"), reproduces=False)
    first = replace(FAILS, events=(check(), UNCHECKED))
    case, asked = written_case(tmp_path, first, compiled=[End(75, found=found)])
    verdict = first_verdict(case)
    assert (verdict.verdict, asked) == ("wrong-result", ["off", COMPILED])


def test_one_run_in_eager_serves_all_hypotheses(tmp_path: Path) -> None:
    first = replace(FAILS, events=(check(), UNCHECKED))
    case, asked = written_case(tmp_path, first, compiled=[FAILS])
    assert first_verdict(case).verdict == "unknown"
    assert asked == ["off", COMPILED, PLAIN, "eager", "aot_eager"]


def test_a_process_that_died_in_a_graph_is_returned_to(tmp_path: Path) -> None:
    entered = StageStart(compile="0/0", stage="lowering", detail="op3")
    found = finding(Failure("signal", "died", stage="lowering"), reproduces=False)
    first = replace(FAILS, events=(entered,), died=True)
    case, asked = written_case(tmp_path, first, compiled=[End(75, found=found)])
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.stage) == ("crash", "lowering")
    assert asked == [COMPILED, PLAIN]


@pytest.mark.parametrize(
    ("eager", "verdict", "asked_for"),
    [
        (End(139, signal=signal.SIGSEGV), "not-a-bug", ["off"]),
        (End(134, signal=signal.SIGABRT), "crash", ["off", PLAIN]),
        (ENDS_WELL, "crash", ["off", PLAIN]),
    ],
    ids=["dies in eager too", "dies otherwise", "lives in eager"],
)
def test_a_graph_that_kills_its_process_is_run_in_eager(
    tmp_path: Path, eager: End, verdict: str, asked_for: list[str]
) -> None:
    """The investigation ran the user's operator as well, and died of it."""
    found = finding(Failure(SIGNAL, "died", stage="runtime", aspect="SIGSEGV"), reproduces=False)
    case, asked = written_case(tmp_path, End(75, found=found), off=[eager], plain=[FAILS])
    assert (first_verdict(case).verdict, asked) == (verdict, asked_for)
