"""Compiled calls against the same calls in eager: what is compared, and what is called slow."""

from __future__ import annotations

import time
from typing import Any

import pytest

from inductoscope.doctor.hypotheses.slow import slow_function
from inductoscope.profiling.flip_trials import AgainstEager, against_eager, paired_calls
from inductoscope.profiling.statistics import SLOWER
from inductoscope.profiling.turns import TimedRun
from support.timed_runs import Calls, timed_run


def measured(*calls: Calls, idle: float = 0.0, gpu: bool = False) -> AgainstEager:
    """Two runs with these calls."""
    found = against_eager([timed_run(*calls, idle=idle, gpu=gpu)] * 2)
    assert found is not None
    return found


# --- what a program's calls are together ----------------------------------------------------------


def test_a_small_helper_weighs_little_beside_the_model() -> None:
    """The helper is called ten times as often and takes three times as long; the model decides."""
    helper = Calls("helper", "/x.py:3", 90e-6, 30e-6, 400, "1.1")
    model = Calls("Model", "/x.py:9", 80e-3, 100e-3, 40, "2.1")
    found = measured(helper, model)
    assert found.ratio == pytest.approx(0.8, abs=0.02)
    assert {each.name: round(each.ratio, 1) for each in found.functions} == {
        "helper": 3.0,
        "Model": 0.8,
    }
    assert slow_function(found) is None


def test_functions_with_one_name_are_told_apart() -> None:
    """Two lambdas, or two classes called Block: one is slow and one is fast."""
    one, other = (
        Calls("<lambda>", "/x.py:3", 30e-3, 10e-3),
        Calls("<lambda>", "/x.py:4", 1e-3, 5e-3),
    )
    slow = slow_function(measured(one, other))
    assert slow is not None
    assert (slow.place, round(slow.ratio)) == ("/x.py:3", 3)


def test_instances_of_one_class_are_told_apart() -> None:
    one = Calls("Block", "/x.py:3", 30e-3, 10e-3, group="1.1")
    other = Calls("Block", "/x.py:3", 1e-3, 1e-3, group="2.1")
    assert [round(each.ratio) for each in measured(one, other).functions] == [3, 1]


def test_calls_count_relative_to_eager_in_the_same_run() -> None:
    """The second run was made while the machine was busy: both sides took twice as long."""
    runs = [timed_run(Calls("f", "/x.py:3", 3e-3 * busy, 1e-3 * busy)) for busy in (1, 2)]
    found = against_eager(runs)
    assert found is not None
    assert (found.ratio, found.calls) == (pytest.approx(3.0), 20)
    assert found.compared().verdict == SLOWER


def test_thousands_of_calls_are_compared_at_once() -> None:
    run = timed_run(*(Calls(f"f{n}", "/x.py:3", 2e-3, 1e-3, 8192, f"{n}.1") for n in range(8)))
    started = time.monotonic()
    found = against_eager([run, run])
    assert found is not None
    assert found.compared().verdict == SLOWER
    assert time.monotonic() - started < 1.0


def test_groups_with_too_few_calls_are_left_out() -> None:
    run = timed_run(Calls("f", "/x.py:3", 2e-3, 1e-3, 4))
    assert (paired_calls(run), against_eager([run])) == ([], None)


def test_a_run_that_fails_is_not_compared() -> None:
    run = timed_run(Calls("f", "/x.py:3", 2e-3, 1e-3))
    assert against_eager([TimedRun(1, 1.0, run.processes)]) is None


# --- when it is called slow -----------------------------------------------------------------------

SLOW = Calls("f", "/x.py:3", 30e-3, 10e-3)


@pytest.mark.parametrize(
    ("calls", "how"),
    [
        (Calls("f", "/x.py:3", 30e-6, 8e-6, 4000), {}),
        (Calls("f", "/x.py:3", 2.1e-3, 1.9e-3, 400), {}),
        (Calls("f", "/x.py:3", 0.9e-3, 0.5e-3, 10), {}),
        (SLOW, {"idle": 30.0}),
    ],
    ids=["a toy with a print", "hardly slower", "a few calls", "little of the run"],
)
def test_what_does_not_matter_is_not_slow(calls: Calls, how: dict[str, Any]) -> None:
    assert slow_function(measured(SLOW)) is not None
    assert slow_function(measured(calls, **how)) is None
