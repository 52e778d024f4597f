"""How changes are tried in a program: in turns, against eager, and what is said if they fail."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.hypotheses.slow import slow_function
from inductoscope.profiling.flip_trials import (
    GIVEN_UP,
    HELPS,
    NO_HELP,
    NOT_CONCLUDED,
    SAME_CODE,
    AgainstEager,
    FlipTrial,
    TrialResults,
    against_eager,
    paired_calls,
    try_cold,
    try_flips,
)
from inductoscope.profiling.flips import Flip
from inductoscope.profiling.statistics import SLOWER, TOO_FEW, compare
from inductoscope.profiling.timings import FUNCTION, CallTimes, ProcessTimes
from inductoscope.profiling.turns import ProgramRuns, TimedRun, Variant
from inductoscope.views.report.advice import advice_view, print_advice
from inductoscope.views.report.terminal import Printer
from support.examples import stored
from support.timed_runs import Calls, timed_run

CHANGE = Flip("x = 1", "why", settings={"x": 1})
SLOW = timed_run(Calls("f", "/x.py:3", 30e-3, 10e-3))
FAST = timed_run(Calls("f", "/x.py:3", 9e-3, 10e-3))
FAILS = TimedRun(1, 1.0, (), "Traceback\nValueError: 3")
REFUSED = TimedRun(0, 1.0, (ProcessTimes(1, not_applied="AttributeError: no x"),))


def tried(
    monkeypatch: pytest.MonkeyPatch,
    base: TimedRun,
    changed: TimedRun,
    flip: Flip = CHANGE,
    *,
    total: float = 100.0,
    than_eager: float = 0.0,
) -> TrialResults:
    """The outcome of a change if the program's runs end so."""

    def run_once(self: ProgramRuns, variant: Variant, *_: Any, **__: Any) -> TimedRun:
        self.made += 1
        return changed if variant.name == flip.change else base

    monkeypatch.setattr(ProgramRuns, "run_once", run_once)
    runs = ProgramRuns(["x"], Path("/nowhere"), lambda _: None, total=total)
    if flip.avoids_compiles:
        return try_cold(runs, [flip])
    return try_flips(runs, [flip], than_eager)


def test_a_change_that_helps_is_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    results = tried(monkeypatch, SLOW, FAST)
    (trial,) = results.advice
    # Seven runs show that it is slower than eager, five with the change that this helps.
    assert (round(trial.ratio, 1), results.runs) == (0.3, 7 + 5)


def test_a_change_that_is_not_faster_in_its_first_run_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = tried(monkeypatch, SLOW, SLOW)
    (trial,) = results.trials
    assert (trial.conclusion, trial.changed.count, results.runs) == (GIVEN_UP, 1, 7 + 1)


# --- what is not advised, however fast it looks ---------------------------------------------------


@pytest.mark.parametrize(
    ("name", "conclusion"), [("relu_add_sum", SAME_CODE), ("graph_breaks", HELPS)]
)
def test_a_change_that_changes_no_code_is_not_timed(
    monkeypatch: pytest.MonkeyPatch, name: str, conclusion: str
) -> None:
    """Whatever a run with it would take, for instance while nothing else runs on the machine."""
    base = replace(SLOW, recording=stored("relu_add_sum"))
    results = tried(monkeypatch, base, replace(FAST, recording=stored(name)))
    (trial,) = results.trials
    assert trial.conclusion == conclusion
    assert results.runs == 7 + (1 if conclusion == SAME_CODE else 5)
    page = io.StringIO()
    print_advice(Printer(page), advice_view(results, ["x"], "recording"))
    assert (f"{SAME_CODE}: x = 1" in page.getvalue()) is (conclusion == SAME_CODE)


@pytest.mark.parametrize(
    "flip",
    [replace(CHANGE, settings={"triton.cudagraphs": True}), replace(CHANGE, changes_eager=True)],
    ids=["CUDA graphs", "TF32 in libraries"],
)
def test_what_acts_when_the_code_runs_is_timed(monkeypatch: pytest.MonkeyPatch, flip: Flip) -> None:
    runs = [replace(run, recording=stored("relu_add_sum")) for run in (SLOW, FAST)]
    (trial,) = tried(monkeypatch, runs[0], runs[1], flip).trials
    assert trial.conclusion == HELPS


def test_a_gain_that_contradicts_the_prediction_is_not_advised(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """What its kernels lose against the machine's limit is 0.1 % of the time; it saved 70 %."""
    flip = replace(CHANGE, left=0.999, prediction="what its kernels lose")
    results = tried(monkeypatch, SLOW, FAST, flip)
    (trial,) = results.trials
    assert (trial.conclusion, results.advice) == (NOT_CONCLUDED, ())
    assert trial.how == snapshot


def test_calls_of_few_runs_show_nothing_however_many_there_are() -> None:
    """2,000 calls, a third as long with the change: but each run is one measurement."""
    calls = [Calls("f", "/x.py:3", seconds, 10e-3, 2000) for seconds in (30e-3, 9e-3)]
    base, changed = (against_eager([timed_run(each)] * 4) for each in calls)
    assert base is not None
    assert changed is not None
    assert base.compared().verdict == TOO_FEW
    comparison = compare(base.compiled, changed.compiled)
    trial = FlipTrial(CHANGE, base.compiled, changed.compiled, 1.0, comparison)
    assert (trial.conclusion, trial.helps) == (NOT_CONCLUDED, False)
    assert trial.how.endswith("too few to tell from noise")


@pytest.mark.parametrize(("seconds", "conclusion"), [(1.0, HELPS), (3.9, NO_HELP)])
def test_changes_that_shorten_compiles_are_told_from_noise(
    monkeypatch: pytest.MonkeyPatch, seconds: float, conclusion: str
) -> None:
    flip = replace(CHANGE, shortens_compiles=True)
    before, after = (
        TimedRun(0, 5.0, (ProcessTimes(1, (CallTimes("f", FUNCTION, compiling=(each,)),)),))
        for each in (4 * 10**9, round(seconds * 1e9))
    )
    (trial,) = [t for t in tried(monkeypatch, before, after, flip).trials if t.changed.count]
    assert (trial.conclusion, trial.changed.count) == (conclusion, 5)


def test_what_a_setting_saves_is_predicted_from_what_should_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20 calls of 30 ms: with half of the time left, 0.3 s should be saved; it was more."""
    flip = Flip("x = 1", "why", settings={"x": 1}, left=0.5, prediction="its kernels")
    (trial,) = tried(monkeypatch, SLOW, FAST, flip).advice
    assert trial.flip.predicted == pytest.approx(0.3, rel=0.02)
    assert trial.saved == pytest.approx(0.42, rel=0.02)
    assert trial.flip.prediction == "its kernels"


def test_what_is_left_to_eager_should_take_as_long_as_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20 calls of 30 ms, 10 ms in eager."""
    flip = Flip("x = 1", "why", code="x", leaves_to_eager=True)
    (trial,) = tried(monkeypatch, SLOW, FAST, flip).advice
    assert trial.flip.predicted == pytest.approx(0.4, rel=0.02)


@pytest.mark.parametrize(
    ("base", "changed", "error"),
    [
        (SLOW, FAILS, "not measured: with it the program ended with exit code 1: ValueError: 3"),
        (SLOW, REFUSED, "could not be applied: AttributeError: no x"),
        (SLOW, TimedRun(None, 1.0, ()), "not measured: with it the program did not end in time"),
        (SLOW, TimedRun(0, 1.0, ()), "not measured: too few calls were compiled"),
    ],
)
def test_a_change_that_was_not_measured_says_why(
    monkeypatch: pytest.MonkeyPatch, base: TimedRun, changed: TimedRun, error: str
) -> None:
    (trial,) = tried(monkeypatch, base, changed).trials
    assert (trial.helps, trial.how) == (False, error)


def test_a_program_that_fails_by_itself_is_not_blamed_on_a_change(
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    flip = Flip("x = 1", "why", avoids_compiles=True)
    (trial,) = tried(monkeypatch, FAILS, FAILS, flip).trials
    assert trial.how == snapshot


def test_a_program_that_calls_nothing_compiled_is_not_told_to_call_it_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = tried(monkeypatch, TimedRun(0, 1.0, ()), FAST)
    assert results.base is None
    assert results.error.startswith("No call of a compiled function was seen, so")


def test_a_program_with_threads_is_told_that_they_are_why(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = TimedRun(0, 1.0, (ProcessTimes(1, several_threads=True),))
    assert "from several threads" in tried(monkeypatch, threads, FAST).error


def test_no_run_is_begun_once_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    results = tried(monkeypatch, SLOW, FAST, total=-1.0)
    assert (results.runs, results.base) == (0, None)


def test_a_program_that_is_as_fast_as_eager_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    results = tried(monkeypatch, FAST, FAST, than_eager=1.2)
    assert (results.runs, results.trials) == (1, ())


def test_what_torch_calls_unsafe_is_shown_and_never_run(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    flip = Flip("x = 1", "why", warning="This flag is unsafe")
    results = tried(monkeypatch, SLOW, FAST, flip)
    (trial,) = results.trials
    assert (trial.helps, results.advice, results.runs) == (False, (), 7)
    assert trial.how == snapshot
    page = io.StringIO()
    print_advice(Printer(page), advice_view(results, ["x"], "recording"))
    assert "not tried: x = 1" in page.getvalue()
    assert "No change was tried" in page.getvalue()


def test_a_change_that_makes_eager_faster_too_counts_by_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = timed_run(Calls("f", "/x.py:3", 15e-3, 5e-3))
    assert not tried(monkeypatch, SLOW, both).advice
    (trial,) = tried(monkeypatch, SLOW, both, Flip("x = 1", "why", changes_eager=True)).advice
    assert trial.ratio == pytest.approx(0.5)


def measured(*calls: Calls, idle: float = 0.0, gpu: bool = False) -> AgainstEager:
    """Seven runs with these calls."""
    found = against_eager([timed_run(*calls, idle=idle, gpu=gpu)] * 7)
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
    """Half of the runs were made while the machine was busy: both sides took twice as long."""
    loads = (1, 2, 1, 2, 1, 2, 1)
    runs = [timed_run(Calls("f", "/x.py:3", 3e-3 * busy, 1e-3 * busy)) for busy in loads]
    found = against_eager(runs)
    assert found is not None
    assert (found.ratio, found.calls) == (pytest.approx(3.0), 20)
    assert found.compared().verdict == SLOWER


def test_thousands_of_calls_are_compared_at_once() -> None:
    run = timed_run(*(Calls(f"f{n}", "/x.py:3", 2e-3, 1e-3, 8192, f"{n}.1") for n in range(8)))
    started = time.monotonic()
    found = against_eager([run] * 7)
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

SLOW_CALLS = Calls("f", "/x.py:3", 30e-3, 10e-3)


@pytest.mark.parametrize(
    ("calls", "how"),
    [
        (Calls("f", "/x.py:3", 30e-6, 8e-6, 4000), {}),
        (Calls("f", "/x.py:3", 2.1e-3, 1.9e-3, 400), {}),
        (Calls("f", "/x.py:3", 0.9e-3, 0.5e-3, 10), {}),
        (SLOW_CALLS, {"idle": 30.0}),
    ],
    ids=["a toy with a print", "hardly slower", "a few calls", "little of the run"],
)
def test_what_does_not_matter_is_not_slow(calls: Calls, how: dict[str, Any]) -> None:
    assert slow_function(measured(SLOW_CALLS)) is not None
    assert slow_function(measured(calls, **how)) is None
