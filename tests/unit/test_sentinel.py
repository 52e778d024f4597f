"""The sentinel's statistics: when a signed error that adds up is a fault, and when it is rounding.

No torch here: errors are made up, as rounding and as faults would make them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from inductoscope.doctor.alarm import KEPT, Alarm, read_alarm, read_alarms, write_alarm
from inductoscope.doctor.common_verdicts import failure_of_alarm, verdict_on_alarm
from inductoscope.doctor.failure import WRONG
from inductoscope.doctor.sentinel_options import SentinelOptions, options_from
from inductoscope.doctor.sentinel_run import read_shadows
from inductoscope.errors import UsageError
from inductoscope.inside.sentinel.bias_test import (
    ROUNDINGS,
    Bet,
    BiasTests,
    Confirmation,
    SignedErrors,
)
from inductoscope.inside.time_share import TimeShare
from inductoscope.recording.events import CallShadowed, ShadowsEnded
from inductoscope.recording.location import create_recording
from inductoscope.recording.writer import StreamWriter, describe_process

UNIT = 1e-7
MARGIN = 64 * UNIT

# Errors of one call: compiled and eager.
Errors = Callable[[random.Random], tuple[float, float]]


def calls_until_suspicious(errors: Errors, *, seed: int, longest: int = 2000) -> int | None:
    """After how many shadowed calls a value becomes suspicious; the tenth value of a run."""
    numbers = random.Random(seed)
    tests = BiasTests(1e-6)
    test = [tests.new(f"output {n}") for n in range(10)][-1]
    for call in range(1, longest + 1):
        compiled, eager = errors(numbers)
        test.add(SignedErrors((compiled, 0.0), (eager, 0.0), MARGIN))
        if test.suspicious is not None:
            return call
    return None


# --- what is a fault ------------------------------------------------------------------------------


def test_a_gradient_that_is_too_large_by_a_thousandth_shows_within_some_dozens_of_calls() -> None:
    found = calls_until_suspicious(
        lambda r: (1e-3 + r.gauss(0, UNIT), r.gauss(0, UNIT)),
        seed=0,
    )
    assert found is not None
    assert found < 40


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bias_far_below_the_rounding_of_one_call_shows_in_time(sign: int) -> None:
    """As in bfloat16: each call is off by as much as the fault, either way."""
    found = calls_until_suspicious(
        lambda r: (sign * 1e-3 + r.gauss(0, 1e-3), r.gauss(0, 2e-4)), seed=1
    )
    assert found is not None
    assert found < 300


def test_a_fault_that_begins_late_is_found_soon_after() -> None:
    calls = 0

    def errors(r: random.Random) -> tuple[float, float]:
        nonlocal calls
        calls += 1
        return (1e-3 if calls > 1000 else 0.0) + r.gauss(0, 1e-4), r.gauss(0, 1e-4)

    found = calls_until_suspicious(errors, seed=2)
    assert found is not None
    assert 1000 < found < 1150


# --- what is not ----------------------------------------------------------------------------------

ROUNDING: dict[str, Errors] = {
    "rounding": lambda r: (r.gauss(0, 1e-3), r.gauss(0, 1e-3)),
    "rounding with rare large steps": lambda r: (
        r.choice([-1.0, 1.0]) if r.random() < 0.05 else r.gauss(0, UNIT),
        r.gauss(0, UNIT),
    ),
    "eager is biased and compiled is not": lambda r: (r.gauss(0, 1e-4), 1e-2 + r.gauss(0, 1e-4)),
    "both share a bias": lambda r: (1e-2 + r.gauss(0, 1e-4), 1e-2 + r.gauss(0, 1e-4)),
    "a bias of no practical size": lambda r: (5 * UNIT + r.gauss(0, UNIT), r.gauss(0, UNIT)),
    "exact": lambda r: (0.0, 0.0),
}


@pytest.mark.parametrize("kind", ROUNDING)
def test_rounding_is_never_suspicious(kind: str) -> None:
    found = [calls_until_suspicious(ROUNDING[kind], seed=seed, longest=1000) for seed in range(8)]
    assert found == [None] * 8


def test_fair_tosses_rarely_make_much_of_a_stake_however_often_one_looks() -> None:
    """The bound that alarms rest on, where it can be counted: n-fold in at most 1 of n runs."""
    numbers = random.Random(3)
    runs, often = 400, 0
    for _ in range(runs):
        bet, best = Bet(), 0.0
        for _ in range(300):
            bet.add(numbers.random() < 0.5)
            best = max(best, bet.log_evidence)
        often += best >= math.log(20)
    # 1 of 20 is the bound; three standard deviations more for the count itself.
    assert often / runs <= 1 / 20 + 3 * math.sqrt(1 / 20 / runs)


def test_all_tests_of_a_run_share_one_probability() -> None:
    tests = BiasTests(1e-6)
    assert sum(tests.new(str(number)).false_alarms for number in range(1000)) <= 1e-6


# --- before an alarm is raised --------------------------------------------------------------------


def confirmed_after(calls: int, bias: float, noise: float, likeness: float) -> bool:
    numbers = random.Random(4)
    found = Confirmation(direction=0)
    for _ in range(calls):
        roundings = [numbers.gauss(0, noise) for _ in range(ROUNDINGS)]
        found.add(bias, numbers.gauss(0, noise / 3), roundings)
    return found.is_beyond_rounding(likeness, MARGIN)


def test_a_bias_beyond_the_rounding_of_the_same_calls_is_confirmed() -> None:
    assert confirmed_after(4, 1e-3, UNIT, likeness=0.0)


def test_averages_over_calls_help_only_if_the_calls_are_not_alike() -> None:
    assert confirmed_after(64, 1e-3, 7e-4, likeness=0.0)
    # A program that makes the same call for ever has the same roundings for ever.
    assert not confirmed_after(64, 1e-3, 7e-4, likeness=0.8)


def test_what_eager_is_off_by_in_the_same_calls_is_no_bias() -> None:
    found = Confirmation(direction=0)
    for _ in range(32):
        found.add(1.3e-2, 1.25e-2, [1e-3, -1e-3, 5e-4, 0.0])
    assert not found.is_beyond_rounding(0.5, MARGIN)


# --- time -----------------------------------------------------------------------------------------


def test_shadowing_stays_within_its_share_of_the_programs_time() -> None:
    now = 0.0
    share = TimeShare(0.05, clock=lambda: now)
    share.start()
    for _ in range(10_000):
        now += 0.01  # A step of the program.
        if share.allows(0.2):
            with share.spending():
                now += 0.2
    assert 0.045 < share.spent / share.seen <= 0.05


# --- what is handed over --------------------------------------------------------------------------

ALARM = Alarm(
    compile="0/0",
    value="gradient of input 0 (weight)",
    direction="scale",
    bias=1e-3,
    eager_bias=1e-8,
    rounding=2e-8,
    calls=4000,
    shadowed=40,
    false_alarms=1e-6,
    sources=["train.py:9"],
)


def test_an_alarm_says_which_value_how_large_after_how_many_calls_and_how_sure() -> None:
    verdict = verdict_on_alarm(ALARM, Path("kept-1-1"))
    assert (verdict.verdict, verdict.confidence) == ("wrong-result", "likely")
    assert verdict.culprit.source == "train.py:9"
    for part in ("graph 0/0", "gradient of input 0 (weight)", "1.001", "40 shadowed calls of 4000"):
        assert part in verdict.summary
    said = " ".join(item["what"] for item in verdict.evidence)
    assert "at most 1e-06" in said
    assert "doctor --kept kept-1-1" in said
    assert failure_of_alarm(ALARM).kind == WRONG


def test_alarms_are_read_back_oldest_first_and_damaged_ones_left_out(tmp_path: Path) -> None:
    for name in ("1-1", "2-1"):
        (tmp_path / f"{KEPT}-{name}").mkdir()
    write_alarm(ALARM, tmp_path / f"{KEPT}-1-1")
    (tmp_path / f"{KEPT}-2-1" / "alarm.json").write_text('{"compile": ')
    assert read_alarms(tmp_path) == [(tmp_path / f"{KEPT}-1-1", ALARM)]
    with pytest.raises(UsageError, match="holds no call that the sentinel kept"):
        read_alarm(tmp_path / f"{KEPT}-2-1")


def test_options_reach_the_program_through_the_environment() -> None:
    asked = SentinelOptions(overhead=0.1, stop=True)
    assert options_from(asked.environment()) == asked


def test_a_recording_tells_what_was_shadowed_and_what_it_cost(tmp_path: Path) -> None:
    folder = create_recording(["train.py"], output=tmp_path / "recording")
    stream = StreamWriter(folder, first_event=describe_process)
    for call in (3, 103):
        for values in (1, 8):  # Forward and backward.
            shadow = CallShadowed(
                compile="0/0", call=call, values=values, spent=call / 100, seen=call
            )
            stream.emit(shadow)
    stream.emit(ShadowsEnded(compile="1/0", text="its inputs are too large to copy"))
    stream.close()
    shadows = read_shadows(folder)
    assert {number for _, number in shadows.shadowed["0/0"]} == {3, 103}
    assert shadows.ended == {"1/0": "its inputs are too large to copy"}
    assert shadows.spent == pytest.approx(1.03)
