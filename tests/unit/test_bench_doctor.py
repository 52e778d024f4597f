"""How make bench-doctor measures: what was known when, and whom it is compared with."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.doctor import LARGE, SCRIPTS, TURN, make_faults, plan, read_program, read_runs, write
from bench.doctor_comparison import PROCESSOR, PROOF, ToolRun, summarize
from bench.measurement import Measurement
from bench.torch_tools import Measured, count_nodes
from bench.verdict_clock import Known, VerdictClock, first_for_good, is_proven, names_culprit

CULPRIT = {"stage": "lowering", "culprit": {"op": "aten.div", "kernel": None}}
PROVEN = {**CULPRIT, "repro": {"verified": True}}


# --- what was known when --------------------------------------------------------------------------


def replace_file(path: Path, verdict: object) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(verdict))
    os.replace(part, path)


def test_every_version_of_a_growing_verdict_has_its_time(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    with VerdictClock(path) as clock:
        for verdict in ({"stage": ""}, CULPRIT, PROVEN):
            time.sleep(0.3)
            replace_file(path, verdict)
    assert [known.verdict for known in clock.versions] == [{"stage": ""}, CULPRIT, PROVEN]
    culprit = first_for_good(clock.versions, names_culprit)
    proof = first_for_good(clock.versions, is_proven)
    assert culprit is not None
    assert proof is not None
    assert 0.6 <= culprit < proof


def test_a_verdict_that_is_written_once_is_known_at_the_end(tmp_path: Path) -> None:
    with VerdictClock(tmp_path / "verdict.json") as clock:
        time.sleep(0.2)
        replace_file(clock.path, PROVEN)
    assert [known.verdict for known in clock.versions] == [PROVEN]


def test_the_verdict_of_an_earlier_run_is_not_known(tmp_path: Path) -> None:
    replace_file(tmp_path / "verdict.json", PROVEN)
    with VerdictClock(tmp_path / "verdict.json") as clock:
        time.sleep(0.2)
    assert clock.versions == []


def test_a_file_that_is_cut_short_or_missing_is_no_verdict(tmp_path: Path) -> None:
    with VerdictClock(tmp_path / "verdict.json") as clock:
        clock.path.write_text('{"stage": "low')
        time.sleep(0.15)
    assert clock.versions == []


def test_what_was_taken_back_was_not_known() -> None:
    versions = [Known(1.0, CULPRIT), Known(2.0, {"stage": ""}), Known(3.0, CULPRIT)]
    assert first_for_good(versions, names_culprit) == 3.0
    assert first_for_good(versions[:2], names_culprit) is None


# --- the scripts ----------------------------------------------------------------------------------


def test_six_scripts_of_four_kinds_and_two_sizes() -> None:
    faults = make_faults(0)
    assert len(faults) == 6
    kinds = {fault.truth.kind for fault in faults}
    assert kinds == {"wrong-result", "nan", "crash", "compile-error"}
    assert sum("60 nodes" in fault.name for fault in faults) == 2


@pytest.mark.parametrize("name", LARGE)
def test_a_large_program_ends_as_those_of_the_battery_do(name: str) -> None:
    text = read_program(name)
    assert text.rstrip().endswith("sys.exit(0 if same else 1)")


def test_the_doctor_runs_before_between_and_after_the_others() -> None:
    turn = [tool for *_, tool in plan(make_faults(0)[:1], 1, TURN)]
    assert turn[1] == turn[-1] == "doctor"
    assert turn.count("doctor") == 3
    assert len([*plan(make_faults(0), 2, ["doctor"])]) == 2 * 6 * 3


# --- what follows ---------------------------------------------------------------------------------


def run(place: int, tool: str, seconds: float, **more: Any) -> ToolRun:
    return ToolRun("buckets", 0, place, tool, Measured(seconds, True, **more))


def doctor(place: int, culprit: float | None, proof: float | None) -> ToolRun:
    return run(place, "doctor", 30.0, culprit_seconds=culprit, proof_seconds=proof, said="verdict")


BISECTED = run(2, "bisector", 100.0, named=True, said="BisectionResult(backend='inductor')")
MINIFIED = run(3, "minifier", 140.0, verified=True, nodes=1, said="repro.py")
TURNS = [doctor(1, 6.0, 12.0), BISECTED, MINIFIED, doctor(4, 6.6, 12.0), doctor(7, 6.0, 12.6)]


def beside(runs: list[ToolRun], tools: str, script: str = "buckets") -> dict[str, Measurement]:
    found = summarize(runs, SCRIPTS)
    return {
        m.name.partition(":")[0]: m
        for m in found
        if m.compared_with == f"{tools}, in one process" and m.name.endswith(script)
    }


BOTH = "bisector and minifier"


def test_culprit_and_proof_are_compared_with_both_tools_together() -> None:
    found = beside(TURNS, BOTH)
    assert found["culprit"].goal == 1 / 25
    assert found["culprit"].peer == (240.0,)
    assert found[PROOF].goal == 1 / 12
    assert found[PROOF].conclude().word == "met"
    assert {*found} == {"culprit", PROOF, PROCESSOR}


def test_the_culprit_is_compared_with_the_bisector_alone_too() -> None:
    found = beside(TURNS, "bisector")
    assert {*found} == {"culprit"}
    assert found["culprit"].values == (0.06,)
    assert found["culprit"].goal is None


def test_a_turn_has_one_value_the_middle_of_the_runs_of_the_doctor() -> None:
    again = [replace(one, turn=1) for one in TURNS]
    assert beside(TURNS, BOTH)["culprit"].ours == (6.0,)
    assert beside([*TURNS, *again], BOTH)[PROOF].ours == (12.0, 12.0)


def test_a_minifier_without_a_reproducer_is_named_and_nothing_is_concluded() -> None:
    runs = [doctor(1, 6.0, 12.0), BISECTED, run(3, "minifier", 14.0, said="no repro.py written")]
    said = "bisector and minifier, in one process: minifier: no repro.py written"
    assert str(beside(runs, BOTH)["culprit"].conclude()) == f"not concluded: {said}"
    assert beside(runs, "bisector")["culprit"].values == (0.06,)


def test_a_tool_that_was_ended_counts_with_the_limit() -> None:
    ended = ToolRun("buckets", 0, 3, "minifier", Measured(600.0, False, said="no repro.py written"))
    measurement = beside([doctor(1, 6.0, 12.0), BISECTED, ended], BOTH)[PROOF]
    assert measurement.peer == (700.0,)
    assert "minifier 600 s (ended by the limit)" in measurement.note


def test_a_culprit_that_is_not_named_in_every_run_misses_the_goal() -> None:
    runs = [*TURNS[:-1], doctor(7, None, None)]
    assert str(beside(runs, BOTH)["culprit"].conclude()) == "missed: ours failed: verdict"


def of_all_scripts(*changed: list[ToolRun]) -> list[ToolRun]:
    same = [TURNS] * (SCRIPTS - len(changed))
    return [
        replace(one, script=f"script {number}")
        for number, runs in enumerate([*same, *changed])
        for one in runs
    ]


def test_goals_count_for_all_scripts_together_beside_the_tools_in_one_process() -> None:
    counted = [m for m in summarize(of_all_scripts(), SCRIPTS) if m.counts and m.goal is not None]
    assert [(m.name, m.compared_with, m.conclude().word) for m in counted] == [
        ("culprit: all of 6 scripts", f"{BOTH}, in one process", "met"),
        (f"{PROOF}: all of 6 scripts", f"{BOTH}, in one process", "met"),
    ]


def test_a_script_on_which_the_doctor_fails_is_not_left_out_of_all() -> None:
    failed = [doctor(1, None, None), BISECTED, MINIFIED]
    found = beside(of_all_scripts(failed), BOTH, "all of 6 scripts")
    assert found["culprit"].conclude().word == "missed"


def test_a_script_for_which_the_tools_have_no_result_is_left_out_of_all() -> None:
    without = [*TURNS[:2], run(3, "minifier", 14.0, said="no repro.py written")]
    found = beside(of_all_scripts(without), BOTH, "all of 5 scripts")
    assert found["culprit"].peer == (5 * 240.0,)


def test_of_a_few_scripts_nothing_follows_for_all() -> None:
    found = beside(TURNS, BOTH, "all of 6 scripts")
    said = f"{BOTH}, in one process: 1 of 6 scripts were run"
    assert str(found["culprit"].conclude()) == f"not concluded: {said}"
    assert summarize([], SCRIPTS) == []


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "doctor.json"
    write([doctor(1, 6.0, 12.0), BISECTED], path)
    assert read_runs(path) == [doctor(1, 6.0, 12.0), BISECTED]
    path.write_text("{")
    assert read_runs(path) == []


def test_nodes_of_a_reproducer_of_the_minifier_are_counted() -> None:
    text = "class Repro:\n  def forward(self, a):\n    return torch.ops.aten.div.Tensor(a, a)\n"
    assert count_nodes(text) == 1
