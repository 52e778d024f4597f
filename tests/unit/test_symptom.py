"""How a program ended badly: whether two runs failed alike, and whether numbers or time are why."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.instructions import CHECKS, MOVED, UNMOVED
from inductoscope.doctor.symptom import clock_reads, fails_alike, numbers_that_differ
from inductoscope.doctor.verdict import Verdict
from inductoscope.model.fold import load
from inductoscope.recording.events import CompileEnd, CompileStart
from inductoscope.recording.location import create_recording
from support.program_cases import COMMAND, PLAIN, WARM, End, check, leave_behind, written_case


def raised(line: int, message: str) -> str:
    frames = f'  File "x.py", line {line}, in <module>\n    check(x)\n'
    return f"Traceback (most recent call last):\n{frames}{message}"


def off_by(number: str) -> str:
    """What torch.testing says last of values that are off by so much."""
    return (
        f"AssertionError: Tensor-likes are not close!\nGreatest absolute difference: {number} at "
        "index (3,) (up to 1e-05 allowed)\nGreatest relative difference: 0.5 at index (3,) (up to "
        "1e-06 allowed)"
    )


GOOD = End(0, "largest difference: 0.0\nend")


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (End(1, "step 3\nloss is 0.25"), End(1, "step 12\nloss is -1.5e-07"), True),
        (End(1, "loss is 0.25"), End(1, "loss is 0.25\n\n"), True),
        (End(1, ""), End(1, ""), True),
        (End(1, "loss is 0.25"), End(2, "loss is 0.25"), False),
        (End(1, "loss is 0.25"), End(1, "no such file"), False),
        (End(1, "loss is 0.25"), End(1, ""), False),
        (End(1, raised(7, "KeyError: 1")), End(1, raised(7, "KeyError: 2")), True),
        (End(1, raised(7, "KeyError: 1")), End(1, raised(9, "KeyError: 1")), False),
        (End(1, off_by("0.003")), End(1, off_by("0.001")), True),
        (End(1, off_by("0.5")), End(1, off_by("1e-06")), False),
        (End(1, off_by("nan")), End(1, off_by("1e-06")), False),
        # Rounding that moves a number a little does not explain one that is far off.
        (
            End(1, "largest difference: 0.5\nend"),
            End(1, "largest difference: 1e-06\nend"),
            False,
        ),
        (
            End(1, "largest difference: 2e-06\nend"),
            End(1, "largest difference: 1e-06\nend"),
            True,
        ),
    ],
    ids=[
        "other numbers",
        "empty lines",
        "silent",
        "other code",
        "other words",
        "no words",
        "the same line raised",
        "another line raised",
        "about as far off",
        "far less off",
        "NaN",
        "prints that it is far less off",
        "prints that it is about as far off",
    ],
)
def test_runs_fail_alike_by_how_they_end_and_by_how_far_off_they_are(
    one: End, other: End, alike: bool, tmp_path: Path
) -> None:
    failed, trial, good = (
        leave_behind(end, create_recording(COMMAND, output=tmp_path / str(number)))
        for number, end in enumerate((one, other, GOOD))
    )
    assert fails_alike(failed, trial, good) is alike


def test_a_trial_that_the_doctor_ended_has_not_failed_alike(tmp_path: Path) -> None:
    """The system ends one for lack of memory, the doctor the other at a time limit."""
    killed, ended = (
        leave_behind(
            End(137, "", over_time=late), create_recording(COMMAND, output=tmp_path / name)
        )
        for name, late in (("killed", False), ("ended", True))
    )
    assert not fails_alike(killed, ended)


# --- numbers, or time -----------------------------------------------------------------------------


def test_a_time_of_day_is_no_wrong_number(tmp_path: Path) -> None:
    failed, good, again = (
        leave_behind(End(1, f"12:00:{second} INFO start"), create_recording(COMMAND, output=place))
        for second in ("01", "07", "30")
        for place in [tmp_path / second]
    )
    assert not numbers_that_differ(failed, good, again)


@pytest.mark.parametrize(
    ("printed", "in_eager", "line"),
    [
        ("sum 3.5\nbad", "sum 3.25\ngood", "sum 3.5 (in eager: sum 3.25)"),
        ("sum 3.25\nbad", "sum 3.25\ngood", ""),
        ("no sum", "sum 3.25", ""),
        (off_by("0.5"), "good", "Greatest absolute difference: 0.5"),
    ],
    ids=["other numbers", "the same numbers", "other words", "torch.testing"],
)
def test_numbers_that_the_program_prints_tell_a_wrong_result(
    printed: str, in_eager: str, line: str, tmp_path: Path
) -> None:
    case, _ = written_case(
        tmp_path,
        End(1, printed, events=(check(),)),
        off=[End(0, in_eager)],
        plain=[End(1, printed)],
    )
    assert numbers_that_differ(case.first, case.runs.in_eager_once(), case.first) == line
    found = first_verdict(case)
    assert found.verdict == ("wrong-result" if line else "unknown")


SCRIPTS = {
    "import time\n\nbegan = time.time()": [3],
    "from time import perf_counter as now\nprint(now())": [2],
    "import torch.utils.benchmark as b\nb.Timer('f()')": [2],
    "import time\ntime.sleep(1)": [],
    "x.time()": [],
    "not python": [],
}


@pytest.mark.parametrize("source", SCRIPTS)
def test_a_program_that_reads_a_clock_is_recognised(source: str, tmp_path: Path) -> None:
    script = tmp_path / "x.py"
    script.write_text(source)
    recording = create_recording(COMMAND, output=tmp_path / "out")
    leave_behind(End(events=(CompileStart(compile="0/0", file=str(script)),)), recording)
    found = list(clock_reads(["python", str(script)], load(recording)))
    assert found == [f"{script}:{line}" for line in SCRIPTS[source]]


def timed(place: Path, **ends: list[End]) -> tuple[Verdict, list[str]]:
    """The verdict on a program that fails, reads a clock, and compiled for 30 of 40 seconds."""
    script = place / "x.py"
    script.write_text("import time\nbegan = time.time()")
    compiled = (
        CompileStart(compile="0/0", file=str(script), line=2),
        CompileEnd(compile="0/0", outcome="compiled", seconds=30.0),
    )
    first = End(1, "took 60.2 s", events=(*compiled, check(is_exact=False)))
    usual = {"off": [QUICK], "plain": [SLOW], "moved": [SLOW], "unmoved": [SLOW]}
    case, asked = written_case(place, first, **{**usual, **ends})
    return first_verdict(case), asked


SLOW, QUICK = End(1, "took 40.1 s", seconds=40.0), End(0, "took 1.2 s")


def test_a_program_that_is_quick_enough_with_warm_caches_compiles_for_too_long(
    tmp_path: Path,
) -> None:
    verdict, asked = timed(tmp_path, warm=[QUICK])
    assert (verdict.verdict, verdict.confidence) == ("slow", "proven")
    assert "x.py:2" in verdict.summary
    assert asked == ["off", PLAIN, WARM, WARM]


def test_a_program_that_is_too_slow_only_while_it_is_checked_is_clean(tmp_path: Path) -> None:
    verdict, asked = timed(tmp_path, plain=[QUICK])
    assert (verdict.verdict, verdict.confidence) == ("clean", "likely")
    assert asked == ["off", PLAIN, CHECKS.name, PLAIN]


def test_a_program_that_fails_now_and_then_is_not_called_clean_because_it_reads_a_clock(
    tmp_path: Path,
) -> None:
    verdict, _ = timed(tmp_path, plain=[QUICK, SLOW])
    assert verdict.verdict == "unknown"


def test_warm_caches_that_help_once_prove_nothing(tmp_path: Path) -> None:
    verdict, _ = timed(tmp_path, warm=[QUICK, SLOW])
    assert verdict.verdict == "unknown"


def test_a_slow_run_with_other_roundings_proves_nothing_of_a_program_that_measures_time(
    tmp_path: Path,
) -> None:
    verdict, asked = timed(tmp_path, warm=[SLOW])
    assert verdict.verdict == "unknown"
    assert asked[-4:] == [MOVED, UNMOVED, PLAIN, "aot_eager"]


def test_rounding_is_proven_if_the_program_bears_to_be_as_slow(tmp_path: Path) -> None:
    """It reads a clock for its log; what fails is a comparison."""
    verdict, _ = timed(tmp_path, warm=[SLOW], unmoved=[QUICK])
    assert (verdict.verdict, verdict.confidence) == ("not-a-bug", "proven")
