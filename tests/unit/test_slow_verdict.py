"""When the doctor suspects that compiled code is slow, and what it says once that is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor import slowness
from inductoscope.doctor.hypotheses import first_verdict, slow
from inductoscope.doctor.slowness import may_be_slower, wasted_compiles
from inductoscope.doctor.verdict import exit_code
from inductoscope.profiling.flip_trials import AgainstEager, FlipTrial, TrialResults, against_eager
from inductoscope.profiling.flips import Flip, flips_for
from inductoscope.profiling.statistics import compare
from inductoscope.recording.events import (
    CallsUnchecked,
    Check,
    CompileEnd,
    CompileStart,
    Event,
    GraphBreak,
    GuardsBuilt,
    InductorStart,
    Kernel,
    Recompiled,
    RecompileLimitHit,
)
from support.program_cases import COMPILED_ONE, ENDS_WELL, End, check, written_case
from support.timed_runs import Calls, timed_run


def calls(eager: float, compiled: float, count: int = 8, name: str = "0/0") -> tuple[Event, ...]:
    """A graph whose checked calls took so many seconds each."""
    return tuple(
        Check(compile=name, call=number, verdict="right", text="", eager=eager,
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


def parts(count: int, seconds: float) -> Iterator[Event]:
    """A graph that is broken into so many parts, each called more often than calls are checked."""
    for number in range(count):
        name = f"{number}/0"
        yield CompileStart(compile=name, function="f", file="/x.py", line=3)
        yield GraphBreak(compile=name, reason="print", source="/x.py:3")
        yield from calls(seconds, seconds, name=name)
        yield CallsUnchecked(compile=name)


@pytest.mark.parametrize(
    ("count", "seconds", "expected"),
    [(6, 20e-6, True), (1, 20e-6, False), (6, 5e-3, False)],
    ids=["many small parts", "one break", "parts that compute for long"],
)
def test_a_broken_graph_is_suspected_if_its_calls_may_cost_most(
    tmp_path: Path, count: int, seconds: float, expected: bool
) -> None:
    assert suspected(tmp_path, *parts(count, seconds)) is expected


@pytest.mark.parametrize(("compiled", "asked"), [(0.0021, True), (0.0019, False)])
def test_rules_are_asked_only_about_what_took_longer_than_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: float, asked: bool
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(slowness, "diagnose", lambda recording: seen.append(recording) or [])
    assert not suspected(tmp_path, COMPILED_ONE, *calls(0.002, compiled))
    assert bool(seen) is asked


def test_a_graph_on_a_gpu_is_suspected_like_any_other(tmp_path: Path) -> None:
    graph = InductorStart(compile="0/0", graph="0/0 inference", phase="inference")
    kernel = Kernel(graph="0/0 inference", name="triton_poi_0", language="Triton")
    assert suspected(tmp_path, COMPILED_ONE, graph, kernel, *calls(0.002, 0.006))


def test_a_program_that_is_not_suspected_costs_no_run(tmp_path: Path) -> None:
    end = End(events=(COMPILED_ONE, *calls(0.002, 0.001)))
    case, asked = written_case(tmp_path, end, plain=[ENDS_WELL])
    assert first_verdict(case).verdict == "clean"
    assert asked == ["plain"]  # As before.


# --- measured: compiled and eager in turns --------------------------------------------------------

SIMD = Flip(
    "torch._inductor.config.cpp.simdlen = None",
    "A loop is not vectorized",
    "scalar_loop",
    "/x.py:3",
    settings={"cpp.simdlen": None},
)
CHECKED = End(events=(COMPILED_ONE, check()))


def measured(compiled: float, runs: int = 7) -> AgainstEager:
    """Runs of a program that calls `f`, each call of so many seconds, 10 ms in eager."""
    found = against_eager([timed_run(Calls("f", "/x.py:3", compiled, 10e-3))] * runs)
    assert found is not None
    return found


def results(ratio: float, with_change: float, runs: int = 7) -> TrialResults:
    """A program whose compiled calls take `ratio` times as long as in eager."""
    base, changed = measured(ratio * 10e-3, runs), measured(with_change * 10e-3, runs).compiled
    trial = FlipTrial(SIMD, base.compiled, changed, 0.1, compare(base.compiled, changed))
    return TrialResults((trial,), base)


@pytest.fixture
def verdict_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The verdict where the measurement comes out so."""

    def conclude(measured: TrialResults, with_change: End = CHECKED) -> Any:
        monkeypatch.setattr(slow, "try_flips", lambda *_, **__: measured)
        end = End(events=(COMPILED_ONE, *calls(0.002, 0.006)))
        case, _ = written_case(tmp_path, end, plain=[ENDS_WELL], compiled=[with_change])
        return first_verdict(case)

    return conclude


def test_slower_than_eager_is_slow_with_what_helps(verdict_with: Any) -> None:
    verdict = verdict_with(results(ratio=3.0, with_change=0.9))
    assert (verdict.verdict, verdict.confidence) == ("slow", "proven")
    assert exit_code(verdict.verdict) == 1
    assert verdict.summary.startswith(
        "f takes 3.0 times as long compiled as in eager (30 ms per call, in eager 10 ms)"
    )
    assert (verdict.culprit.function, verdict.culprit.source) == ("f", "/x.py:3")
    assert verdict.workaround.text == "torch._inductor.config.cpp.simdlen = None"
    assert verdict.workaround.slowdown == pytest.approx(0.3)
    assert verdict.workaround.verified
    assert any("saves 70%" in item["what"] for item in verdict.evidence)


def test_too_few_runs_prove_nothing(verdict_with: Any) -> None:
    """Each of them has many calls, but there was no time for more runs."""
    verdict = verdict_with(results(ratio=3.0, with_change=0.9, runs=2))
    assert (verdict.verdict, verdict.confidence) == ("slow", "likely")
    assert verdict.workaround is None
    assert any(item["what"].endswith("not concluded") for item in verdict.evidence)


def test_what_torch_calls_unsafe_is_no_workaround(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with guards skipped may be wrong without a word, and so may what it writes."""
    tried: list[Flip] = []

    def try_flips(_: Any, flips: Sequence[Flip], *__: Any, **___: Any) -> TrialResults:
        tried.extend(flips)
        return results(ratio=3.0, with_change=3.0)

    monkeypatch.setattr(slow, "try_flips", try_flips)
    guards = GuardsBuilt(compile="0/0", count=748, payload="", microseconds=900.0, costly=())
    end = End(events=(COMPILED_ONE, guards, *calls(0.002, 0.006)))
    case, _ = written_case(tmp_path, end, plain=[ENDS_WELL], compiled=[])
    assert [flip.rule for flip in flips_for(case.recording)] == ["slow_guards"]
    verdict = first_verdict(case)
    assert (tried, verdict.workaround) == ([], None)


def test_a_cause_that_is_not_proven_is_not_named(
    verdict_with: Any, snapshot: SnapshotAssertion
) -> None:
    """No rule found anything in this function, so nothing is said about why."""
    assert verdict_with(results(ratio=3.0, with_change=3.0)).summary == snapshot


@pytest.mark.parametrize(
    "end", [End(1), End(events=(COMPILED_ONE, check("wrong")))], ids=["it fails", "it is wrong"]
)
def test_what_makes_the_program_wrong_is_not_offered(verdict_with: Any, end: End) -> None:
    verdict = verdict_with(results(ratio=3.0, with_change=0.9), end)
    assert (verdict.verdict, verdict.workaround) == ("slow", None)
    assert any("not all results could be confirmed" in row["what"] for row in verdict.evidence)


def test_what_does_not_help_is_not_offered(verdict_with: Any) -> None:
    verdict = verdict_with(results(ratio=3.0, with_change=3.0))
    assert (verdict.verdict, verdict.workaround) == ("slow", None)
    assert any("does not help beyond noise" in item["what"] for item in verdict.evidence)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.15])
def test_what_is_not_confirmed_is_clean(verdict_with: Any, ratio: float) -> None:
    assert verdict_with(results(ratio, with_change=ratio)).verdict == "clean"


def test_a_function_that_is_called_too_seldom_is_clean(verdict_with: Any) -> None:
    assert verdict_with(TrialResults((), None, "too few")).verdict == "clean"


def test_a_program_that_is_too_long_to_be_timed_is_clean_and_that_is_said(tmp_path: Path) -> None:
    end = End(events=(COMPILED_ONE, *calls(0.002, 0.006)), seconds=130.0)
    case, asked = written_case(tmp_path, end, plain=[ENDS_WELL])
    verdict = first_verdict(case)
    assert (verdict.verdict, asked) == ("clean", ["plain"])
    assert any("whether compiled calls are slower than eager" in x for x in verdict.not_checked)


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
        yield Check(compile=name, call=1, verdict="right", text="1 value")


def test_a_function_that_is_compiled_for_every_value_is_slow(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    case, asked = written_case(tmp_path, End(events=tuple(recompiled(8))), plain=[ENDS_WELL])
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.stage, verdict.confidence) == ("slow", "dynamo", "likely")
    assert verdict.summary == snapshot
    assert asked == ["plain"]  # What was counted needs no other run.


def test_a_program_that_fails_without_the_tool_is_not_slow(tmp_path: Path) -> None:
    case, _ = written_case(tmp_path, End(events=tuple(recompiled(8))), plain=[End(1, "Killed")])
    assert first_verdict(case).verdict != "slow"


def test_a_short_test_of_six_values_costs_no_run(tmp_path: Path) -> None:
    first = End(events=tuple(recompiled(5, limit=False)))
    case, asked = written_case(tmp_path, first, plain=[ENDS_WELL])
    assert (first_verdict(case).verdict, asked) == ("clean", ["plain"])


def test_compiles_that_are_a_small_part_of_the_run_are_not_accused(tmp_path: Path) -> None:
    first = End(events=tuple(recompiled(8)), seconds=60.0)
    case, _ = written_case(tmp_path, first, plain=[ENDS_WELL])
    assert first_verdict(case).verdict == "clean"


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
    assert list(wasted_compiles(case.recording, 1.0)) == []


def test_versions_that_are_called_often_pay_for_their_compile(tmp_path: Path) -> None:
    again = Check(compile="0/3", call=3, verdict="right", text="1 value")
    case, _ = written_case(tmp_path, End(events=(*recompiled(8), again)))
    assert list(wasted_compiles(case.recording, 1.0)) == []
