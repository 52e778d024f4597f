"""Conclusions of the benchmarks from their turns, and when they refuse to."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bench.load import QUIET, Load, watching
from bench.measurement import Measurement, add_up, read_measurements, write_measurements
from bench.peers import ROOT

LOADED = Load(average=2.0, others=0.6)
BESIDE_TLPARSE = Measurement(
    "reading a trace", "s", (1.0, 1.1, 0.9), 0.5, "tlparse", (10.0, 10.2, 9.9)
)


def test_a_ratio_is_that_of_runs_of_the_same_turn() -> None:
    drifting = replace(BESIDE_TLPARSE, ours=(1.0, 4.0, 2.0), peer=(10.0, 40.0, 20.0))
    assert drifting.values == (0.1, 0.1, 0.1)


def test_a_goal_is_met() -> None:
    assert str(BESIDE_TLPARSE.conclude()) == "met"


def test_a_goal_is_missed() -> None:
    assert str(replace(BESIDE_TLPARSE, goal=0.05).conclude()) == "missed"


def test_a_value_is_held_against_a_goal_of_its_own() -> None:
    opening = Measurement("opening", "s", (0.2, 0.21, 0.2), 0.3)
    assert str(opening.conclude()) == "met"
    assert str(replace(opening, goal=0.1).conclude()) == "missed"


@pytest.mark.parametrize(
    "ours", [(3.0, 5.5, 4.0), (4.4,), (3.0, 3.5, 4.5, 5.5, 6.5)], ids=["three", "one", "five"]
)
def test_nothing_is_concluded_from_turns_that_vary_by_more_than_the_distance(
    ours: tuple[float, ...],
) -> None:
    noisy = replace(BESIDE_TLPARSE, ours=ours, peer=(10.0,) * len(ours))
    reason = "the spread is larger than the distance to the goal"
    assert str(noisy.conclude()) == f"not concluded: {reason}"


def test_more_turns_make_the_middle_more_certain() -> None:
    few = replace(BESIDE_TLPARSE, ours=(4.0, 4.2, 4.7, 5.0, 5.3), peer=(10.0,) * 5)
    many = replace(few, ours=few.ours * 12, peer=few.peer * 12)
    assert few.conclude().word == "not concluded"
    assert many.conclude().word == "met"


def test_a_peer_that_is_missing_leaves_the_question_open() -> None:
    alone = replace(BESIDE_TLPARSE, peer=(), why_no_peer="not installed")
    assert str(alone.conclude()) == "not concluded: tlparse: not installed"


def test_a_peer_that_always_fails_leaves_the_question_open() -> None:
    failed = replace(BESIDE_TLPARSE, peer=(None, None, None), why_no_peer="exit code 101")
    assert str(failed.conclude()) == "not concluded: tlparse: exit code 101"


def test_turns_in_which_the_peer_failed_are_left_out() -> None:
    failed = replace(BESIDE_TLPARSE, peer=(10.0, None, 9.0), why_no_peer="exit code 101")
    assert failed.values == pytest.approx((0.1, 0.1))
    assert str(failed.conclude()) == "met"


def test_a_run_of_ours_that_fails_misses_the_goal() -> None:
    failed = replace(BESIDE_TLPARSE, ours=(1.0, None, 1.0), why_failed="no verdict")
    assert str(failed.conclude()) == "missed: ours failed in 1 of 3 runs: no verdict"


def test_what_could_not_be_measured_is_neither_met_nor_missed() -> None:
    missing = Measurement("opening", "s", (), 0.3, why_failed="no browser")
    assert str(missing.conclude()) == "not concluded: no browser"


def test_a_loaded_machine_says_nothing_about_ratios_by_the_clock() -> None:
    reason = "others used 60% of the processor time meanwhile"
    assert str(BESIDE_TLPARSE.conclude(LOADED)) == f"not concluded: {reason}"


def test_a_loaded_machine_disturbs_processor_seconds_only_by_their_spread() -> None:
    assert str(replace(BESIDE_TLPARSE, unit="CPU s").conclude(LOADED)) == "met"


def test_a_limit_that_is_kept_on_a_loaded_machine_is_kept_on_a_quiet_one() -> None:
    opening = Measurement("opening", "s", (0.2, 0.21, 0.2), 0.3)
    assert str(opening.conclude(LOADED)) == "met"
    assert replace(opening, goal=0.1).conclude(LOADED).word == "not concluded"


def test_parts_add_up_turn_by_turn_and_fail_together() -> None:
    whole = add_up("both", [BESIDE_TLPARSE, replace(BESIDE_TLPARSE, peer=(1.0, None, 1.0))])
    assert whole.ours == (2.0, 2.2, 1.8)
    assert whole.peer == (11.0, None, 10.9)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "logs.json"
    write_measurements([BESIDE_TLPARSE], path)
    assert read_measurements(json.loads(path.read_text())) == [BESIDE_TLPARSE]


# --- the load -------------------------------------------------------------------------------------


def spin(seconds: float) -> list[str]:
    code = f"import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: 0"
    return [sys.executable, "-c", code]


def test_what_we_started_and_what_that_left_behind_is_ours() -> None:
    """In another process: whoever adopts orphans does so for good."""
    spinning = spin(0.3)
    code = f"""
import subprocess, time
from battery.workplace import adopt_orphans
from bench.load import cpu_of_children
adopt_orphans()
subprocess.run({spinning!r}, check=True)
first = cpu_of_children()
subprocess.run(["sh", "-c", 'exec "$@" & ', "sh", *{spinning!r}], check=True)
end = time.monotonic() + 100
while cpu_of_children() < first + 0.3 and time.monotonic() < end:
    time.sleep(0.05)
print(first >= 0.3, cpu_of_children() >= first + 0.3)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "True"]


def test_what_runs_besides_is_counted_as_others() -> None:
    # Never waited for while we look, so that its time is nobody's we know of.
    other = subprocess.Popen(spin(5.0))
    with watching() as watched:
        time.sleep(1.0)
    other.kill()
    other.wait()
    assert watched.load.others > 0.1


def test_a_quiet_machine_disturbs_nothing() -> None:
    assert not QUIET.disturbs
    assert Load(stolen=0.2).disturbs
