"""What the benchmarks conclude from their turns, and when they refuse to."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from bench.adapters import measurements_of
from bench.load import QUIET, Load, watching
from bench.machine import read_commit, read_machine, read_versions
from bench.measurement import Measurement, add_up, read_measurements, write_measurements
from bench.results import BENCHES, choose, read_part, read_results, run_bench, run_to_end
from bench.summary import Result, render, show_runs, show_value, source_of

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
    assert measurements_of("logs", json.loads(path.read_text())) == [BESIDE_TLPARSE]


# --- the load -------------------------------------------------------------------------------------


def spin(seconds: float) -> list[str]:
    code = f"import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: 0"
    return [sys.executable, "-c", code]


def test_what_we_started_and_what_that_left_behind_is_ours() -> None:
    """In another process: whoever adopts orphans does so for good."""
    spinning = spin(0.3)
    code = f"""
import subprocess, time
from bench.load import adopt_orphans, cpu_of_children
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
        cwd=source_of("logs").parents[1],
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


# --- adapters -------------------------------------------------------------------------------------


def run(seconds: float, exit_code: int = 0) -> dict[str, float]:
    return {"seconds": seconds, "cpu_seconds": 0.5, "megabytes": 9.0, "exit_code": exit_code}


def test_logs_are_compared_with_tlparse_where_both_read_the_trace() -> None:
    # Reading a log that ends in a hang ends with 1: something was found.
    found = {"trace, 1 core": [run(2.0)], "trace, 2 cores": [run(1.0)], "text, 1 core": [run(3, 1)]}
    found["trace, tlparse"] = [run(20.0)]
    by_name = {m.name: m for m in measurements_of("logs", found)}
    assert by_name["trace, 2 cores: time"].values == (0.05,)
    assert by_name["text, 1 core: time"].conclude().word == "no goal"
    assert by_name["text, 1 core: time"].ours == (3,)


def test_a_tlparse_that_fails_or_is_missing_is_named() -> None:
    ours = {"trace, 2 cores": [run(1.0)]}
    for theirs, reason in (([run(0.1, 101)], "exit code 101"), (None, "not installed")):
        found = {**ours, **({"trace, tlparse": theirs} if theirs else {})}
        conclusion = measurements_of("logs", found)[0].conclude()
        assert str(conclusion) == f"not concluded: tlparse: {reason}"


PAGE = {
    "kernels": 2000,
    "goals": {"build": 0.5, "first view": 1.0, "switch": 0.2},
    "build seconds": {"inductoscope": [2.0], "tlparse": [5.0]},
    "page bytes": 0,
    "tlparse bytes": None,
    "first view seconds": [0.4],
    "switch seconds": {"graphs": [0.1, 0.1, 0.3], "kernels": [0.2, 0.2, 0.2]},
}


def test_a_page_is_built_opened_and_looked_through() -> None:
    build, view, switch = measurements_of("report", PAGE)
    assert build.values == (0.4,)
    assert view.ours == (0.4,)
    assert switch.name == "the slowest switch, to kernels"
    assert switch.goal == 0.2


def test_a_page_without_a_browser_claims_no_first_view() -> None:
    missing = {"first view seconds": None, "switch seconds": None, "browser missing": "no Chromium"}
    _, view = measurements_of("report", {**PAGE, **missing})
    assert str(view.conclude()) == "not concluded: no Chromium"


def test_both_ways_of_running_tlparse_are_compared_with() -> None:
    seconds = {"inductoscope": [2.0], "tlparse": [5.0], "tlparse --plain-text": [None]}
    coloured, plain, *_ = measurements_of("report", {**PAGE, "build seconds": seconds})
    assert coloured.values == (0.4,)
    assert str(plain.conclude()) == "not concluded: tlparse --plain-text: failed"
    logs = {"trace, 2 cores": [run(1.0)], "trace, tlparse": [run(20.0)]}
    logs["trace, tlparse --plain-text"] = [run(8.0)]
    times = [m for m in measurements_of("logs", logs) if m.unit == "s"]
    assert [m.values for m in times] == [(0.05,), (0.125,)]


def test_a_hang_counts_from_the_belief_to_the_proof() -> None:
    proven = {"belief": 20.0, "verdict": 30.0, "cpu": 50.0, "named": True, "verified": True}
    found: dict[str, Any] = {"goal_seconds": 60.0, "runs": {"sort": [{**proven, "said": "hang"}]}}
    proof, belief, cpu = measurements_of("hang", found)
    assert (proof.ours, belief.ours, cpu.ours) == ((30.0,), (20.0,), (50.0,))
    assert proof.conclude().word == "met"
    found["runs"] = {"sort": [{**proven, "named": False, "said": "clean"}]}
    assert str(measurements_of("hang", found)[0].conclude()) == "missed: ours failed: clean"


def test_commands_have_their_goals_by_the_clock() -> None:
    runs = {"python -c pass": [run(0.1)], "--help": [run(0.2)], "show": [run(0.9, 3)]}
    found = {"kernels": 1008, "goals": {"--help": 0.3, "show": 1.0}, "runs": runs}
    asked, computed, show, _ = measurements_of("cli", found)
    assert asked.conclude().word == "met"
    assert computed.values == (1.0,)
    assert str(show.conclude()) == "missed: ours failed: exit code 3"


def test_recording_is_compared_with_the_plain_run_of_the_turn() -> None:
    found: dict[str, Any] = {
        "compile": {"mlp": {"plain": [10.0], "recorded": [10.2], "TORCH_TRACE": []}}
    }
    found["recordings"] = {"mlp": {"bytes": 9000, "nodes": 3}}
    compared, size = measurements_of("capture", found)
    assert compared.values == (1.02,)
    assert compared.goal == 1.05
    assert size.ours == (3000.0,)


# --- running them, and the page -------------------------------------------------------------------


def result(bench: str, commit: str = "abc", failure: str = "") -> Result:
    found = {"trace, 2 cores": [run(1.0)], "trace, tlparse": [run(0.1, 101)]}
    return Result(
        bench, commit, "2026-11-17", read_machine(), read_versions(), QUIET, failure, found
    )


def test_an_interrupted_run_goes_on_and_what_is_named_is_measured_again() -> None:
    done = {"logs": result("logs"), "cli": result("cli", failure="exit code 3")}
    assert "logs" not in choose([], done, "abc")
    assert "cli" in choose([], done, "abc")
    assert "logs" in choose([], done, "def")
    assert choose(["logs"], done, "abc") == ["logs"]


def test_a_name_that_no_benchmark_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "log"])
    with pytest.raises(SystemExit):
        runpy.run_module("bench", run_name="__main__")
    assert "no benchmark is called log; there are doctor, " in capsys.readouterr().err


def test_a_benchmark_that_dies_is_a_failure_with_its_exit_code(tmp_path: Path) -> None:
    part = tmp_path / "part.json"
    missing = "exit code 0, and no result was written (FileNotFoundError)"
    assert read_part("logs", part, 0)[0] == missing
    part.write_text("{}")
    assert read_part("logs", part, 1) == ("", {})
    assert read_part("logs", part, -9)[0] == "exit code -9"


def test_a_result_in_a_shape_that_nobody_reads_does_not_spoil_the_page(tmp_path: Path) -> None:
    part = tmp_path / "part.json"
    part.write_text('{"seconds": [1.0]}')
    assert read_part("cli", part, 0)[0] == "no adapter reads what it found (KeyError: 'runs')"
    unreadable = {**asdict(result("logs")), "found": {"trace, 2 cores": [{"seconds": 1.0}]}}
    (tmp_path / "logs.json").write_text(json.dumps(unreadable))
    assert read_results(tmp_path) == {}


def test_an_interruption_lets_the_benchmark_end_what_it_started(tmp_path: Path) -> None:
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    code = f"""
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path({str(ended)!r}).touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
pathlib.Path({str(ready)!r}).touch()
time.sleep(60)
"""

    def interrupt(*_: object) -> None:
        if not ready.exists():
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        run_to_end([sys.executable, "-c", code])
    signal.signal(signal.SIGALRM, before)
    assert ended.exists()


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    # An option that is unknown to it: it fails at once, and that is what is kept.
    made = run_bench("logs", tmp_path, "abc", ["--no-such-option"])
    assert made.failure == "exit code 2"
    assert read_results(tmp_path) == {"logs": made}


def test_the_page_says_what_was_measured_where_and_what_follows() -> None:
    page = render(BENCHES, {"logs": result("logs"), "cli": result("cli", failure="exit code 3")})
    assert "commit abc; torch " in page
    assert "| trace, 2 cores: time | 1.00 s | tlparse: exit code 101 |" in page
    assert "not concluded: tlparse: exit code 101" in page
    assert "**Failed**: exit code 3" in page
    assert "Not measured yet." in page
    assert str(Path.home()) not in page
    assert os.uname().nodename not in page


def test_numbers_are_shown_with_three_digits() -> None:
    assert show_value(0.0000482, "s") == "0.0000482 s"
    assert show_value(1234.5, "MB") == "1,234 MB"
    assert show_runs((1.0, None, 3.0), "s") == "2.00 s (1.00 to 3.00); 1 failed"
    assert show_runs((None,), "s") == "failed"


def test_the_commit_is_known_or_said_to_be_unknown() -> None:
    assert read_commit()


@pytest.mark.parametrize("bench", [name for name in BENCHES if source_of(name).exists()])
def test_a_benchmark_takes_json_and_says_what_it_measures(bench: str) -> None:
    command = [sys.executable, "-m", f"bench.{bench}", "--help"]
    done = subprocess.run(
        command, cwd=source_of(bench).parents[1], capture_output=True, text=True, check=True
    )
    assert "--json" in done.stdout
