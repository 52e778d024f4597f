"""How make bench-doctor measures: what was known when, and whom it is compared with."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from bench.doctor import (
    LARGE,
    QUANTITIES,
    TURN,
    Run,
    make_faults,
    plan,
    read_program,
    read_runs,
    summarize,
    write,
)
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


def run(place: int, tool: str, seconds: float, **more: Any) -> Run:
    return Run("buckets", 0, place, tool, Measured(seconds, True, **more))


def doctor(place: int, culprit: float | None, proof: float | None) -> Run:
    return run(place, "doctor", 30.0, culprit_seconds=culprit, proof_seconds=proof, said="verdict")


BISECTED = run(2, "bisector", 100.0, named=True, said="BisectionResult(backend='inductor')")
MINIFIED = run(3, "minifier", 140.0, verified=True, nodes=1, said="repro.py")


def at_best(runs: list[Run]) -> dict[str, Measurement]:
    found = [m for m in summarize(runs) if m.compared_with.endswith("at their best")]
    return {m.name.partition(":")[0]: m for m in found}


def test_culprit_and_proof_are_compared_with_both_tools_together() -> None:
    runs = [doctor(1, 6.0, 12.0), BISECTED, MINIFIED, doctor(4, 6.6, 12.0), doctor(7, 6.0, 12.6)]
    found = at_best(runs)
    assert found["culprit"].values == pytest.approx((0.025, 0.0275, 0.025))
    assert found["culprit and reproducer"].conclude().word == "met"
    assert set(found) == set(QUANTITIES)


def test_a_minifier_without_a_reproducer_is_named_and_nothing_is_concluded() -> None:
    runs = [doctor(1, 6.0, 12.0), BISECTED, run(3, "minifier", 14.0, said="no repro.py written")]
    conclusion = at_best(runs)["culprit"].conclude()
    said = "minifier: no repro.py written"
    assert str(conclusion) == f"not concluded: bisector and minifier at their best: {said}"


def test_a_tool_that_was_ended_counts_with_the_limit() -> None:
    ended = Run("buckets", 0, 3, "minifier", Measured(600.0, False, said="no repro.py written"))
    measurement = at_best([doctor(1, 6.0, 12.0), BISECTED, ended])["culprit and reproducer"]
    assert measurement.peer == (700.0,)
    assert "minifier 600 s (ended by the limit)" in measurement.note


def test_a_culprit_that_is_never_named_misses_the_goal() -> None:
    runs = [doctor(1, None, None), BISECTED, MINIFIED]
    conclusion = at_best(runs)["culprit"].conclude()
    assert str(conclusion) == "missed: ours failed: verdict"


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "doctor.json"
    write([doctor(1, 6.0, 12.0), BISECTED], path)
    assert read_runs(path) == [doctor(1, 6.0, 12.0), BISECTED]
    path.write_text("{")
    assert read_runs(path) == []


def test_nodes_of_a_reproducer_of_the_minifier_are_counted() -> None:
    text = "class Repro:\n  def forward(self, a):\n    return torch.ops.aten.div.Tensor(a, a)\n"
    assert count_nodes(text) == 1
