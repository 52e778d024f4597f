"""Samples of times: their spread, and whether two of them differ beyond noise. No torch."""

from __future__ import annotations

import random
import time

import pytest

from inductoscope.inside.profiling.call_clock import CallClock, Reservoir
from inductoscope.profiling.statistics import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    TOO_FEW,
    Sample,
    blocks_of,
    chance_of_ranks,
    compare,
    compare_ratios,
)
from inductoscope.profiling.timings import (
    GRAPH,
    CallTimes,
    ProcessTimes,
    read_measured,
    write_measured,
)
from inductoscope.profiling.turns import TimedRun, Variant, VariantRuns, calls_to_compare


def sample(*values: float) -> Sample:
    return Sample(tuple(values))


def test_a_sample_says_where_its_middle_half_lies() -> None:
    times = sample(1.0, 2.0, 3.0, 4.0, 100.0)
    assert times.median == 3.0
    assert times.quartiles == (2.0, 4.0)
    assert times.spread == pytest.approx(2 / 3)
    assert times.is_noisy
    assert not sample(1.0, 1.01, 1.02).is_noisy


def test_the_chance_is_that_of_the_exact_rank_test() -> None:
    # The tables of Mann and Whitney: 2 of 252 orders for 5 and 5, 2 of 20 for 3 and 3.
    assert chance_of_ranks((1, 2, 3, 4, 5), (6, 7, 8, 9, 10)) == pytest.approx(2 / 252)
    assert chance_of_ranks((1, 2, 3), (4, 5, 6)) == pytest.approx(0.1)
    assert chance_of_ranks((1, 2, 3), (1, 2, 3)) == 1.0


def test_a_clear_difference_is_named_with_its_interval() -> None:
    base, quick = sample(10.0, 10.1, 10.2, 9.9, 9.8), sample(5.0, 5.1, 4.9, 5.2, 4.8)
    found = compare(base, quick)
    assert (found.verdict, found.ratio) == (FASTER, pytest.approx(0.5, abs=0.01))
    assert found.low < found.ratio < found.high < 0.6
    assert "rank test" in found.how
    assert compare(quick, base).verdict == SLOWER


def test_noise_is_no_difference_and_few_runs_show_nothing() -> None:
    noisy, other = sample(10, 14, 9, 13, 11), sample(9, 13, 10, 12, 11.5)
    assert compare(noisy, other).verdict == NO_DIFFERENCE
    assert compare(sample(10, 10, 10), sample(5, 5, 5)).verdict == TOO_FEW
    assert compare(sample(), sample(1.0)).verdict == TOO_FEW


def test_ratios_of_the_same_runs_are_compared_by_the_exact_sign_test() -> None:
    slower = sample(1.3, 1.2, 1.4, 1.25, 1.5, 1.35, 1.1)
    found = compare_ratios(slower)
    assert (found.verdict, found.ratio, found.chance) == (SLOWER, 1.3, 2 / 2**7)
    assert (found.low, found.high) == (1.1, 1.5)
    assert "sign test" in found.certainty
    assert compare_ratios(sample(*slower.values[:6])).verdict == TOO_FEW
    assert compare_ratios(sample(*slower.values[:6], 0.9)).verdict == NO_DIFFERENCE
    assert compare_ratios(sample()).verdict == TOO_FEW


def test_the_interval_is_that_of_the_exact_rank_test() -> None:
    """The tables for 5 and 5: from the third of the 25 ratios to the third from the end."""
    base, other = sample(1, 10, 100, 1000, 10_000), sample(1.0, 1.1, 1.2, 1.3, 1.4)
    found = compare(base, other)
    assert (found.low, found.high) == (pytest.approx(1.2e-4), 1.2)


def test_a_chance_is_never_said_to_be_none() -> None:
    base = Sample(tuple(1 + n / 1000 for n in range(20)))
    assert "chance below 0.1%" in compare(base, Sample(tuple(2 * v for v in base.values))).how


def test_a_difference_that_matters_to_nobody_is_none_however_sure() -> None:
    base = sample(10.0, 10.001, 10.002, 10.003, 10.004)
    assert compare(base, Sample(tuple(v + 0.01 for v in base.values))).verdict == NO_DIFFERENCE


def test_two_samples_of_one_distribution_are_hardly_ever_called_different() -> None:
    draw = random.Random(1)
    verdicts = [
        compare(
            Sample(tuple(draw.lognormvariate(0, 0.3) for _ in range(5))),
            Sample(tuple(draw.lognormvariate(0, 0.3) for _ in range(5))),
        ).differs
        for _ in range(500)
    ]
    assert sum(verdicts) <= 0.03 * len(verdicts)


@pytest.mark.parametrize("count", [40, 600, 4096])
def test_as_many_values_as_a_run_keeps_are_compared_at_once(count: int) -> None:
    draw = random.Random(2)
    base = Sample(tuple(draw.lognormvariate(0, 0.3) for _ in range(count)))
    started = time.monotonic()
    found = compare(base, Sample(tuple(2 * draw.lognormvariate(0, 0.3) for _ in range(count))))
    assert time.monotonic() - started < 1.0
    assert found.verdict == SLOWER
    assert 1.5 < found.low < found.ratio < found.high < 2.5
    same = Sample(tuple(draw.lognormvariate(0, 0.3) for _ in range(count)))
    assert compare(base, same).verdict == NO_DIFFERENCE


def test_blocks_are_medians_of_neighbours() -> None:
    assert blocks_of((1, 2, 9, 4, 5, 6), 2) == (2, 5)
    assert blocks_of((3, 1), 20) == (3, 1)
    assert blocks_of((), 20) == ()


def test_a_reservoir_keeps_some_of_everything() -> None:
    kept = Reservoir(size=100)
    for value in range(10_000):
        kept.add(value)
    assert (kept.count, len(kept.kept)) == (10_000, 100)
    assert max(kept.kept) > 9_000
    assert min(kept.kept) < 1_000


# --- the clock inside the program -----------------------------------------------------------------


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_calls_that_compile_or_warm_up_are_kept_apart() -> None:
    now = Clock()
    clock = CallClock(now)

    def work(nanoseconds: int, compiles: bool = False) -> None:
        if compiles:
            clock.compile_begins()
        now.now += nanoseconds

    call = clock.timed(work, "work")
    call(1000, compiles=True)
    for duration in (50, 10, 11, 12):
        call(duration)
    (found,) = clock.as_data(1).calls
    assert (found.compiling, found.warming, found.sample) == ((1000,), (50,), (10, 11, 12))
    assert (found.count, found.total) == (3, 33)


def test_only_the_outermost_call_counts_and_a_clock_that_jumps_back_is_dropped() -> None:
    now = Clock()
    clock = CallClock(now)
    graph = clock.timed(lambda by: setattr(now, "now", now.now + by), "graph", GRAPH, "a.py")
    function = clock.timed(lambda by: graph(by), "function")
    for by in (5, 5, -7, 5):
        function(by)
    (found,) = clock.as_data(1).calls
    assert (found.name, found.count, found.dropped) == ("function", 2, 1)
    graph(9)
    assert [calls.name for calls in clock.as_data(1).calls] == ["function", "graph 1"]


def test_what_a_call_raises_gets_through() -> None:
    clock = CallClock(Clock())

    def fails() -> None:
        raise KeyError("x")

    call = clock.timed(fails, "fails")
    for _ in range(2):  # The second is still the outermost call.
        with pytest.raises(KeyError):
            call()
    assert clock.as_data(1).calls == ()


# --- runs in turns --------------------------------------------------------------------------------


def run_of(*calls: tuple[str, int, int], code: int = 0) -> TimedRun:
    found = tuple(
        CallTimes(name, "function", count=count, sample=(nanoseconds,) * count)
        for name, count, nanoseconds in calls
    )
    return TimedRun(code, 1.0, (ProcessTimes(1, found),))


def test_times_are_read_back_and_damage_is_left_out(tmp_path) -> None:
    times = ProcessTimes(7, (CallTimes("f", "function", "a.py:3", 2, 30, (10, 20)),), 2, "2.13")
    write_measured(times, tmp_path)
    (tmp_path / "8.ProcessTimes.json").write_text("{")
    assert read_measured(ProcessTimes, tmp_path) == (times,)


def test_variants_are_compared_by_the_same_number_of_the_same_calls() -> None:
    base = VariantRuns(Variant("as it is"), (run_of(("f", 10, 100), ("g", 5, 1000)),))
    other = VariantRuns(Variant("other"), (run_of(("f", 20, 50), ("g", 5, 1000)),))
    counts = calls_to_compare((base, other))
    assert counts == {("function", "f"): 10, ("function", "g"): 5}
    assert base.sample(counts).values == (pytest.approx(6000e-9),)
    assert other.sample(counts).values == (pytest.approx(5500e-9),)


def test_calls_that_only_warmed_up_in_the_first_run_are_not_counted() -> None:
    base = VariantRuns(Variant("as it is"), (run_of(("f", 0, 0)), run_of(("f", 3, 100))))
    assert calls_to_compare((base,)) == {}


def test_a_run_that_failed_says_nothing_about_time() -> None:
    base = VariantRuns(Variant("as it is"), (run_of(("f", 10, 100)),))
    broken = VariantRuns(Variant("broken"), (run_of(("f", 10, 1), code=1),))
    assert calls_to_compare((base, broken)) == {("function", "f"): 10}
    assert broken.sample({("function", "f"): 10}).values == ()
    assert len(broken.failed) == 1
