"""When the doctor suspects that compiled code is slow, and what it says once that is measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inductoscope.doctor.outside.hypotheses import slower_than_eager, verdict_of_first
from inductoscope.doctor.outside.slowness import may_be_slower, wasted_compiles
from inductoscope.doctor.verdict import exit_code
from inductoscope.profiling.advice.flip import Flip
from inductoscope.profiling.advice.trials import (
    AgainstEager,
    FlipTrial,
    TrialResults,
    against_eager,
)
from inductoscope.profiling.statistics import Sample, compare
from inductoscope.profiling.timings import FUNCTION, CallTimes, ProcessTimes
from inductoscope.profiling.turns import TimedRun
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.checking import CallChecked, CallsUnchecked
from inductoscope.recording.events.compiling import (
    CompileEnd,
    CompileStart,
    GraphBroke,
    Recompiled,
    RecompileLimitHit,
)
from support.program_cases import COMPILED_ONE, ENDS_WELL, End, written_case


def calls(eager: float, compiled: float, count: int = 8) -> tuple[Event, ...]:
    """A graph whose checked calls took so many seconds each."""
    return tuple(
        CallChecked(compile="0/0", call=number, verdict="right", text="", eager=eager,
                    compiled=compiled)
        for number in range(1, count + 1)
    )  # fmt: skip


def suspected(place: Path, *events: Event) -> bool:
    """Whether the first run of a program makes the doctor measure it."""
    case, _ = written_case(place, End(events=events), plain=[ENDS_WELL])
    return may_be_slower(case.recording)


# --- suspicion: nothing is run --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eager", "compiled", "count", "expected"),
    [
        (0.002, 0.006, 8, True),
        (0.002, 0.002, 8, False),
        (0.006, 0.002, 8, False),
        (0.000010, 0.000050, 8, False),  # Five times as long, and nobody would notice.
        (0.002, 0.006, 1, False),  # Only the first call, which warms up.
        (0.002, 0.006, 3, False),  # Two calls say nothing.
    ],
)
def test_a_graph_is_suspected_that_is_clearly_slower_on_several_calls(
    tmp_path: Path, eager: float, compiled: float, count: int, expected: bool
) -> None:
    assert suspected(tmp_path, COMPILED_ONE, *calls(eager, compiled, count)) is expected


def test_a_broken_graph_is_suspected_if_it_is_called_often(tmp_path: Path) -> None:
    broken = GraphBroke(compile="0/0", reason="print", source="/x.py:3")
    often = CallsUnchecked(compile="0/0")
    fine = calls(0.00002, 0.00002)
    assert suspected(tmp_path / "often", COMPILED_ONE, broken, *fine, often)
    assert not suspected(tmp_path / "seldom", COMPILED_ONE, broken, *fine)


def test_a_program_that_is_not_suspected_costs_no_run(tmp_path: Path) -> None:
    end = End(events=(COMPILED_ONE, *calls(0.002, 0.001)))
    case, asked = written_case(tmp_path, end, plain=[ENDS_WELL])
    assert verdict_of_first(case).verdict == "clean"
    assert asked == ["plain"]  # As before.


# --- measured: compiled and eager in turns --------------------------------------------------------

SIMD = Flip(
    "torch._inductor.config.cpp.simdlen = None",
    "A loop is not vectorized",
    "scalar_loop",
    "/x.py:3",
)


def sample(middle: float) -> Sample:
    """Calls that vary a little."""
    return Sample(tuple(middle * (1 + part / 100) for part in range(-4, 5)))


def results(ratio: float, with_change: float) -> TrialResults:
    """A program whose compiled calls take `ratio` times as long as in eager."""
    base = AgainstEager(sample(ratio), sample(1.0), seconds=0.2, calls=20)
    changed = sample(with_change)
    trial = FlipTrial(SIMD, base.compiled, changed, 0.1, compare(base.compiled, changed))
    return TrialResults((trial,), base)


@pytest.fixture
def verdict_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is concluded where the measurement comes out so."""

    def conclude(measured: TrialResults) -> Any:
        monkeypatch.setattr(slower_than_eager, "try_flips", lambda *_: measured)
        end = End(events=(COMPILED_ONE, *calls(0.002, 0.006)))
        case, _ = written_case(tmp_path, end, plain=[ENDS_WELL])
        return verdict_of_first(case)

    return conclude


def test_slower_than_eager_is_slow_with_what_helps(verdict_with: Any) -> None:
    verdict = verdict_with(results(ratio=3.0, with_change=0.9))
    assert (verdict.verdict, verdict.confidence) == ("slow", "proven")
    assert exit_code(verdict.verdict) == 1
    assert verdict.summary.startswith(
        "Compiled calls take 3.0 times as long as in eager (30 ms per call, in eager 10 ms)"
    )
    assert "A loop is not vectorized" in verdict.summary
    assert verdict.workaround.text == "torch._inductor.config.cpp.simdlen = None"
    assert verdict.workaround.slowdown == pytest.approx(0.3)
    assert any("saves 70%" in item["what"] for item in verdict.evidence)


def test_what_does_not_help_is_not_offered(verdict_with: Any) -> None:
    verdict = verdict_with(results(ratio=3.0, with_change=3.0))
    assert (verdict.verdict, verdict.workaround) == ("slow", None)
    assert any("does not help beyond noise" in item["what"] for item in verdict.evidence)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.15])
def test_what_is_not_confirmed_is_clean(verdict_with: Any, ratio: float) -> None:
    assert verdict_with(results(ratio, with_change=ratio)).verdict == "clean"


def test_a_function_that_is_called_too_seldom_is_clean(verdict_with: Any) -> None:
    assert verdict_with(TrialResults((), None, "too few")).verdict == "clean"


def test_calls_count_relative_to_eager_in_the_same_run() -> None:
    """The second run was made while the machine was busy: both sides took twice as long."""

    def run(factor: int) -> TimedRun:
        ours = CallTimes("f", FUNCTION, count=3, sample=(300 * factor,) * 3)
        theirs = CallTimes("f", "function in eager", count=3, sample=(100 * factor,) * 3)
        return TimedRun(0, 1.0, (ProcessTimes(1, (ours, theirs)),))

    found = against_eager([run(1), run(2)])
    assert found is not None
    assert found.compiled.values == (3.0,) * 6
    assert (found.ratio, found.calls) == (3.0, 6)


# --- compiled for every value ---------------------------------------------------------------------


def recompiled(
    values: int, reason: str = "k == {n}", *, limit: bool = True, caller: str = "/x.py:9"
) -> Iterator[Event]:
    """A function that is compiled again for each of so many values."""
    for number in range(values + 1):
        name = f"0/{number}"
        yield CompileStart(compile=name, function="f", file="/x.py", line=3)
        if number:
            text = f"0/{number - 1}: {reason.format(n=number - 1)}"
            callers = (caller.format(n=number),)
            yield Recompiled(compile=name, reasons=(text,), callers=callers)
        if number == values and limit:
            yield RecompileLimitHit(compile=name, limit="recompile_limit")
        yield CompileEnd(compile=name, seconds=1.5, outcome="compiled")
        yield CallChecked(compile=name, call=1, verdict="right", text="1 value")


def test_a_function_that_is_compiled_for_every_value_is_slow(tmp_path: Path) -> None:
    case, asked = written_case(tmp_path, End(events=tuple(recompiled(8))), plain=[ENDS_WELL])
    verdict = verdict_of_first(case)
    assert (verdict.verdict, verdict.stage, verdict.confidence) == ("slow", "dynamo", "proven")
    assert (
        "f is compiled again on every call until torch's recompile_limit was reached, 8 times in "
        "12.0 s, because k changes. k changes from call to call: pass it as a tensor."
    ) in verdict.summary
    assert asked == []  # What was counted needs no run.


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (3, {"limit": False}),  # A few sizes are usual.
        (8, {"reason": "tensor 'x' dtype mismatch. expected Float, actual Double"}),
        (8, {"caller": "/x.py:{n}"}),  # Eight layers call it, each with its own value.
        (5, {"reason": "mode == 'm{n}'", "limit": False}),  # A few modes, each tried once.
    ],
)
def test_functions_that_are_compiled_a_few_times_are_not_accused(
    tmp_path: Path, values: int, options: dict[str, Any]
) -> None:
    case, _ = written_case(tmp_path, End(events=tuple(recompiled(values, **options))))
    assert list(wasted_compiles(case.recording)) == []


def test_versions_that_are_called_often_pay_for_their_compile(tmp_path: Path) -> None:
    again = CallChecked(compile="0/3", call=3, verdict="right", text="1 value")
    case, _ = written_case(tmp_path, End(events=(*recompiled(8), again)))
    assert list(wasted_compiles(case.recording)) == []
