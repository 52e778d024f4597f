"""Results of each benchmark: measurements, with goals and peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import capture, cli, logs, page_speed, report
from bench.command_cost import CommandCost, run_command
from bench.figures import describe, show_runs, show_value
from bench.hang import ExaminedHang, believed_after
from bench.hang import summarize as summarize_hangs
from bench.logs import LogCost
from bench.measurement import Measurement
from bench.peers import TLPARSE, TLPARSE_AT_BEST, ways_of_tlparse


def run(seconds: float, exit_code: int = 0) -> LogCost:
    return LogCost(seconds, 0.5, exit_code, megabytes=9.0)


def goals(measurements: list[Measurement]) -> list[tuple[str, str]]:
    """Where goals are counted."""
    return [(m.name, m.compared_with) for m in measurements if m.goal is not None and m.counts]


# --- logs -----------------------------------------------------------------------------------------

LOGS = {
    "trace, 1 core": [run(2.0)],
    "trace, 2 cores": [run(1.0)],
    # Reading a log that ends in a hang ends with 1: something was found.
    "text, 1 core": [run(3.0, 1)],
    TLPARSE: [run(20.0)],
    TLPARSE_AT_BEST: [run(8.0)],
}


def test_logs_are_compared_with_tlparse_where_both_read_the_trace() -> None:
    found = logs.summarize(LOGS)
    times = {m.compared_with: m for m in found if m.name == "trace, 2 cores: time"}
    assert {peer: m.values for peer, m in times.items()} == {
        TLPARSE: (0.05,),
        TLPARSE_AT_BEST: (0.125,),
    }
    (text,) = [m for m in found if m.name == "text, 1 core: time"]
    assert text.conclude().word == "no goal"
    assert text.ours == (3.0,)


def test_each_goal_of_logs_counts_once_with_two_cores_beside_tlparse_at_its_best() -> None:
    counted = [
        ("trace, 2 cores: time", TLPARSE_AT_BEST),
        ("trace, 2 cores: memory", TLPARSE_AT_BEST),
    ]
    assert goals(logs.summarize(LOGS)) == counted
    alone = {way: runs for way, runs in LOGS.items() if way not in (TLPARSE, TLPARSE_AT_BEST)}
    assert goals(logs.summarize(alone)) == counted


def test_a_tlparse_that_fails_or_is_missing_is_named() -> None:
    ours = {"trace, 2 cores": [run(1.0)]}
    for theirs, reason in (([run(0.1, 101)], "exit code 101"), (None, "not installed")):
        found = {**ours, **({TLPARSE_AT_BEST: theirs} if theirs else {})}
        conclusion = logs.summarize(found)[0].conclude()
        assert str(conclusion) == f"not concluded: {TLPARSE_AT_BEST}: {reason}"


def test_memory_is_that_of_what_was_started(tmp_path: Path) -> None:
    cost = logs.measure(["sh", "-c", "sleep 0.3; exit 3"], tmp_path)
    assert cost.exit_code == 3
    assert cost.seconds >= 0.3
    # Far less than this process has.
    assert 0.1 < cost.megabytes < 10


# --- the page -------------------------------------------------------------------------------------

BUILT = {
    report.OURS: [CommandCost(2.0, 3.0, 0)],
    TLPARSE: [CommandCost(8.0, 8.0, 0)],
    TLPARSE_AT_BEST: [CommandCost(5.0, 5.0, 0)],
}


def test_both_ways_of_running_tlparse_are_compared_with() -> None:
    found = [*report.compare_builds(BUILT, 2000)]
    assert [(m.unit, m.compared_with, m.values) for m in found] == [
        ("s", TLPARSE, (0.25,)),
        ("s", TLPARSE_AT_BEST, (0.4,)),
        ("CPU s", TLPARSE, (0.375,)),
        ("CPU s", TLPARSE_AT_BEST, (0.6,)),
    ]
    assert goals(found) == [("building the page of 2,000 kernels", TLPARSE_AT_BEST)]


def test_a_page_that_tlparse_cannot_make_is_said() -> None:
    failed = {**BUILT, TLPARSE_AT_BEST: [CommandCost(0.1, 0.1, 101)]}
    conclusions = [str(m.conclude()) for m in report.compare_builds(failed, 2000) if m.unit == "s"]
    assert conclusions == ["met", f"not concluded: {TLPARSE_AT_BEST}: exit code 101"]
    alone = {report.OURS: BUILT[report.OURS]}
    reasons = {str(m.conclude()) for m in report.compare_builds(alone, 2000)}
    assert reasons == {f"not concluded: {TLPARSE_AT_BEST}: not installed"}


def test_tlparse_runs_as_usual_and_without_colours() -> None:
    usual, fastest = ways_of_tlparse("tlparse", Path("trace"), Path("pages")).values()
    assert fastest == [*usual, "--plain-text"]


def test_a_page_without_a_browser_claims_no_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_speed, "why_not_measured", lambda: "no Chromium")
    views = [*report.open_page(Path("page.html"), 3)]
    assert [str(view.conclude()) for view in views] == ["not concluded: no Chromium"] * 2


def test_the_slowest_switch_is_that_of_the_middle_turn() -> None:
    switches = {"graphs": [0.1, 0.1, 0.3], "kernels": [0.2, 0.2, 0.2]}
    assert report.worst_switch(switches) == ("kernels", (0.2, 0.2, 0.2))


# --- hangs ----------------------------------------------------------------------------------------

PROVEN = ExaminedHang(20.0, 30.0, 50.0, named=True, verified=True, nodes=1, said="hang")


def test_the_belief_is_when_the_doctor_says_so() -> None:
    output = (
        "[  0.0 s] running the program with every compiled graph checked against eager\n"
        "[ 22.5 s] the program made no progress in stage wrapper of compile 0/0; running it again\n"
        "[ 30.0 s] found: the program made no progress in stage wrapper of compile 0/0\n"
    )
    assert believed_after(output) == 22.5
    assert believed_after("[  0.0 s] running the program\n") is None


def test_a_hang_counts_from_the_belief_to_the_proof() -> None:
    proof, belief, cpu = summarize_hangs({"sort": [PROVEN, PROVEN]})
    assert (proof.ours, belief.ours, cpu.ours) == ((30.0,) * 2, (20.0,) * 2, (50.0,) * 2)
    assert proof.conclude().word == "met"
    assert proof.note == "nodes left: 1"


@pytest.mark.parametrize("change", [{"named": False}, {"verified": False}, {"verdict": None}])
def test_a_hang_that_is_not_explained_misses_the_goal(change: dict[str, Any]) -> None:
    unproven = ExaminedHang(**{**vars(PROVEN), "said": "clean", **change})
    proof, *_ = summarize_hangs({"sort": [PROVEN, unproven]})
    assert str(proof.conclude()) == "missed: ours failed in 1 of 2 runs: clean"


# --- commands and recording -----------------------------------------------------------------------


def test_commands_have_their_goals_by_the_clock() -> None:
    runs = {cli.BARE: [run(0.1)], "--help": [run(0.2)], cli.SHOW: [run(0.9, 3)]}
    asked, computed, show, _ = cli.summarize({**runs}, 1008)
    assert asked.conclude().word == "met"
    assert computed.values == (1.0,)
    assert show.name == "show of 1,008 kernels"
    assert str(show.conclude()) == "missed: ours failed: exit code 3"


def test_a_command_has_its_cost() -> None:
    cost = run_command(["sh", "-c", "sleep 0.2; exit 3"])
    assert cost.exit_code == 3
    assert cost.seconds >= 0.2
    assert cost.cpu_seconds < cost.seconds


def test_recording_is_compared_with_the_plain_run_of_the_turn() -> None:
    runs = {"mlp": {"plain": [10.0, 20.0], "recorded": [10.2, 20.4], "TORCH_TRACE": [11.0]}}
    recorded, traced = capture.compare("compile", runs)
    assert recorded.values == pytest.approx((1.02, 1.02))
    assert recorded.goal == 1.05
    assert traced.values == pytest.approx((1.1,))
    assert traced.goal is None
    (size,) = capture.weigh({"mlp": {"bytes": 9000, "nodes": 3}})
    assert size.ours == (3000.0,)


# --- as text --------------------------------------------------------------------------------------


def test_numbers_are_shown_with_three_digits() -> None:
    assert show_value(0.0000482, "s") == "0.0000482 s"
    assert show_value(1234.5, "MB") == "1,234 MB"
    assert show_runs((1.0, None, 3.0), "s") == "2.00 s (1.00 to 3.00); 1 failed"
    assert show_runs((None,), "s") == "failed"


def test_a_benchmark_ends_with_what_follows() -> None:
    measurement = Measurement("reading", "s", (1.0, 1.1), 0.5, "tlparse", (10.0, 10.0))
    said = "reading: 1.05 s (1.00 to 1.10), 0.105 (0.100 to 0.110) of tlparse; goal 0.500: met"
    assert describe(measurement) == said
    assert describe(Measurement("size", "MB", (3.0,))) == "size: 3.00 MB"
