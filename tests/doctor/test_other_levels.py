"""Programs that fail although every compiled graph is right: what further runs of them decide.

The runs are written down here: each is a folder with what the program printed, and an exit code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inductoscope.capture.launch import Ending
from inductoscope.doctor.compare.bug_or_rounding import Case, EagerComparison, judge
from inductoscope.doctor.compare.values import run as run_function
from inductoscope.doctor.instructions import FOLDER, MOVED, Instructions
from inductoscope.doctor.outside.other_levels import _fails_alike, failed_elsewhere
from inductoscope.doctor.outside.program import OUTPUT, Watched
from inductoscope.doctor.verdict import Verdict
from inductoscope.model.fold import load
from inductoscope.recording.location import create_recording
from inductoscope.recording.reader import Event

FAILS = (1, "step 3\nAssertionError: 0.25 is not 0.5")
FAILS_OTHERWISE = (1, "ConnectionError: the server did not answer")
ENDS_WELL = (0, "done")
Run = tuple[int, str]


@dataclass
class Runs:
    """A program whose runs end as written down, by what stands in for the backend."""

    folder: Path
    ends: dict[str, list[Run]]
    asked: list[str] = field(default_factory=list)

    def rerun(self, instructions: Instructions, why: str) -> Watched:
        """The next run of this kind; the last one is repeated."""
        kind = instructions.backend or ("compiled" if instructions.inside else "plain")
        self.asked.append(kind)
        ends = self.ends[kind]
        return self.watched(ends.pop(0) if len(ends) > 1 else ends[0])

    def watched(self, end: Run) -> Watched:
        exit_code, output = end
        folder = create_recording(["python", "x.py"], output=self.folder / str(len(self.asked)))
        (folder / FOLDER).mkdir()
        (folder / FOLDER / OUTPUT).write_text(output)
        return Watched(Ending(exit_code, None, 1.0), folder)


def check(verdict: str = "right", *, is_exact: bool = True) -> Event:
    fields = {"compile": "0/0", "verdict": verdict, "text": "2 values", "is_exact": is_exact}
    return Event("1-1", 0, 0.0, "check", fields)


def decided(runs: Runs, *checks: Event) -> Verdict:
    """The verdict on a program that failed under the doctor, after further runs."""
    first = runs.watched(FAILS)
    return failed_elsewhere(first, load(first.folder), list(checks), runs.rerun)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Runs]:
    def program(**ends: list[Run]) -> Runs:
        usual = {"off": [ENDS_WELL], "plain": [FAILS], "eager": [ENDS_WELL]}
        return Runs(tmp_path, {**usual, "aot_eager": [ENDS_WELL], MOVED: [ENDS_WELL], **ends})

    return program


# --- whether two runs failed alike ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ((1, "step 3\nloss is 0.25"), (1, "step 12\nloss is -1.5e-07"), True),
        ((1, "loss is 0.25"), (1, "loss is 0.25\n\n"), True),
        ((1, ""), (1, ""), True),
        ((1, "loss is 0.25"), (2, "loss is 0.25"), False),
        ((1, "loss is 0.25"), (1, "no such file"), False),
        ((1, "loss is 0.25"), (1, ""), False),
    ],
    ids=["other numbers", "empty lines", "silent", "other code", "other words", "no words"],
)
def test_runs_fail_alike_by_exit_code_and_last_words(
    one: Run, other: Run, alike: bool, tmp_path: Path
) -> None:
    first, second = Runs(tmp_path / "1", {}), Runs(tmp_path / "2", {})
    assert _fails_alike(first.watched(one), second.watched(other)) is alike


# --- whose fault it is ----------------------------------------------------------------------------


def test_a_program_that_fails_in_eager_too_is_its_own_fault(program: Callable[..., Runs]) -> None:
    runs = program(off=[FAILS])
    verdict = decided(runs, check())
    assert (verdict.verdict, verdict.stage) == ("not-a-bug", "user")
    assert "AssertionError: 0.25 is not 0.5" in verdict.summary
    assert runs.asked == ["off"]


def test_a_program_that_ends_well_without_the_tool_blames_nobody(
    program: Callable[..., Runs],
) -> None:
    runs = program(plain=[ENDS_WELL])
    verdict = decided(runs, check())
    assert (verdict.verdict, verdict.confidence) == ("unknown", "unknown")
    assert runs.asked == ["off", "plain"]


def test_a_check_that_rounding_explains_makes_rounding_likely(program: Callable[..., Runs]) -> None:
    runs = program()
    verdict = decided(runs, check("right"), check("within-rounding", is_exact=False))
    assert (verdict.verdict, verdict.stage, verdict.confidence) == ("not-a-bug", "none", "likely")
    assert verdict.summary.startswith("Rounding, most likely: ")
    # Those that could be shown to do it were asked first.
    assert runs.asked == ["off", "plain", "eager", MOVED, "aot_eager"]


def test_rounding_elsewhere_does_not_acquit_dynamo(program: Callable[..., Runs]) -> None:
    # With other roundings it fails as well, because of Dynamo.
    runs = program(eager=[FAILS, FAILS], moved=[FAILS])
    verdict = decided(runs, check("within-rounding", is_exact=False))
    assert (verdict.verdict, verdict.stage) == ("not-inductor", "dynamo")


def test_a_run_that_was_ended_has_not_failed(program: Callable[..., Runs]) -> None:
    """Eager may take much longer than a program that fails at once."""
    runs = program(off=[(137, "")])
    first = runs.watched(FAILS)

    def rerun(instructions: Instructions, why: str) -> Watched:
        return replace(runs.rerun(instructions, why), over_time=instructions.backend == "off")

    verdict = failed_elsewhere(first, load(first.folder), [check()], rerun)
    assert (verdict.verdict, verdict.confidence) == ("wrong-result", "unknown")


def test_a_program_that_fails_in_eager_with_other_roundings_asks_for_too_much(
    program: Callable[..., Runs],
) -> None:
    runs = program(moved=[FAILS])
    verdict = decided(runs, check(is_exact=False))
    assert (verdict.verdict, verdict.confidence) == ("not-a-bug", "proven")
    assert verdict.summary.startswith("Rounding: ")
    assert runs.asked == ["off", "plain", "eager", MOVED]


def test_other_roundings_that_make_it_fail_otherwise_explain_nothing(
    program: Callable[..., Runs],
) -> None:
    verdict = decided(program(moved=[FAILS_OTHERWISE]), check(is_exact=False))
    assert (verdict.verdict, verdict.confidence) == ("wrong-result", "unknown")


def test_where_every_value_is_eagers_rounding_is_not_asked_about(
    program: Callable[..., Runs],
) -> None:
    runs = program(moved=[FAILS])
    assert decided(runs, check(is_exact=True)).verdict == "wrong-result"
    assert runs.asked == ["off", "plain", "eager", "aot_eager"]


@pytest.mark.parametrize(("backend", "stage"), [("eager", "dynamo"), ("aot_eager", "aot")])
def test_a_level_is_blamed_by_two_runs_in_a_row(
    program: Callable[..., Runs], backend: str, stage: str
) -> None:
    runs = program(**{backend: [FAILS, FAILS]})
    verdict = decided(runs, check())
    assert (verdict.verdict, verdict.stage) == ("not-inductor", stage)
    assert runs.asked[-3:] == [backend, backend, "off"]


@pytest.mark.parametrize(
    "ends",
    [
        {"eager": [FAILS, ENDS_WELL]},
        {"eager": [FAILS, FAILS_OTHERWISE]},
        {"eager": [FAILS, FAILS], "off": [ENDS_WELL, FAILS]},
    ],
    ids=["ends well the second time", "fails otherwise then", "fails in eager then"],
)
def test_a_level_that_is_not_blamed_twice_is_not_blamed(
    program: Callable[..., Runs], ends: dict[str, list[Run]]
) -> None:
    verdict = decided(program(**ends), check())
    assert (verdict.verdict, verdict.stage, verdict.culprit.function) == ("unknown", "none", None)


def test_the_run_that_ended_well_is_told(program: Callable[..., Runs]) -> None:
    runs = program(eager=[FAILS, FAILS], off=[ENDS_WELL, FAILS])
    evidence = decided(runs, check()).evidence[0]
    assert evidence["what"] == "exit code 1 in one, 0 in the other"
    assert evidence["where"] == "two runs of the program, both without torch.compile"


def test_a_level_that_fails_otherwise_is_not_blamed(program: Callable[..., Runs]) -> None:
    runs = program(eager=[FAILS_OTHERWISE], aot_eager=[FAILS_OTHERWISE])
    verdict = decided(runs, check(), check("skipped"))
    assert (verdict.verdict, verdict.confidence) == ("wrong-result", "unknown")
    assert "In the 1 calls that were compared" in verdict.summary
    assert "not compared: 2 values" in [item["what"] for item in verdict.evidence]


# --- whether every value is eager's ---------------------------------------------------------------


def judged(
    eager: Callable[..., Any], compiled: Callable[..., Any], *inputs: Any
) -> EagerComparison:
    return judge(Case(eager, inputs), run_function(compiled, inputs, backward=False))


def test_the_same_bits_are_exact() -> None:
    x = torch.tensor([1.0, -2.5, torch.nan, torch.inf])
    assert judged(lambda x: (x * 2, x > 0, 3), lambda x: (x + x, x > 0, 3), x).is_exact


@pytest.mark.parametrize(
    "layout",
    [
        torch.sparse_coo,
        torch.sparse_csr,
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_values_can_be_exact_too(layout: torch.layout) -> None:
    def sparse(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse(layout=layout)

    assert judged(sparse, sparse, torch.eye(3)).is_exact


def test_the_last_bit_of_one_value_makes_it_inexact() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    last_bit = torch.tensor([0.0, 0.0, 2.0**-22])
    comparison = judged(lambda x: x.clone(), lambda x: x + last_bit, x)
    assert comparison.is_right
    assert not comparison.is_exact


def test_what_is_wrong_is_not_exact() -> None:
    comparison = judged(lambda x: x.clone(), lambda x: x + 1, torch.ones(3))
    assert (comparison.is_right, comparison.is_exact) == (False, False)
