"""What the benchmark of hangs reads from an examination, and what it concludes."""

from __future__ import annotations

from dataclasses import replace

from bench.hang import Measured, believed_after, conclusion, report

CALM = Measured(22.0, 41.0, 50.0, True, True, 1, 30, (0.4, 1.2), "hang")


def test_the_belief_is_when_the_doctor_says_so() -> None:
    output = (
        "[  0.0 s] running the program with every compiled graph checked against eager\n"
        "[ 22.5 s] the program made no progress in stage wrapper of compile 0/0; running it again\n"
        "[ 30.0 s] found: the program made no progress in stage wrapper of compile 0/0\n"
    )
    assert believed_after(output) == 22.5
    assert believed_after("[  0.0 s] running the program\n") is None


def test_every_run_within_the_goal_reaches_it() -> None:
    assert conclusion({"first": [CALM, CALM], "second": [CALM]}).endswith(": reached")


def test_one_late_run_misses_the_goal_and_a_busy_machine_decides_nothing() -> None:
    late = replace(CALM, verdict=61.0)
    assert conclusion({"first": [CALM, late]}).endswith(": missed: first")
    busy = replace(late, load=(4.0, 4.0))
    assert "not decided" in conclusion({"first": [CALM, busy]})


def test_a_culprit_that_is_not_named_is_a_miss_however_busy_the_machine_is() -> None:
    unnamed = replace(CALM, named=False, load=(4.0, 4.0))
    assert "not named or not verified: first" in conclusion({"first": [unnamed]})


def test_a_run_without_a_verdict_has_no_time() -> None:
    none = replace(CALM, belief=None, verdict=None)
    row = next(line for line in report({"first": [none]}).splitlines() if "first" in line)
    assert row.split()[1:4] == ["-", "-", "50.0"]
