"""The doctor's conclusions from a program that fails with every graph right."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.failure import LOST_CHECK, WRONG, Failure
from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.instructions import MOVED
from inductoscope.doctor.verdict import Verdict
from inductoscope.recording.events import (
    CallableCheck,
    CompileFailed,
    CompileStart,
    Event,
    NotedDifference,
)
from inductoscope.views.verdict_text import worded
from support.findings import finding
from support.program_cases import (
    COMPILED,
    COMPILED_ONE,
    ENDS_WELL,
    FAILS,
    FAILS_OTHERWISE,
    PLAIN,
    End,
    check,
    written_case,
)

# --- a program that fails with every graph right --------------------------------------------------

Decide = Callable[..., tuple[Verdict, list[str]]]


@pytest.fixture
def decide(tmp_path: Path) -> Decide:
    """The verdict on a program that failed with these checks, and the runs that it took."""

    def decide(*checks: Event, **ends: list[End]) -> tuple[Verdict, list[str]]:
        case, asked = written_case(tmp_path, replace(FAILS, events=checks), **ends)
        return first_verdict(case), asked

    return decide


def test_a_program_that_fails_in_eager_too_is_its_own_fault(
    decide: Decide, snapshot: SnapshotAssertion
) -> None:
    verdict, asked = decide(check(), off=[FAILS])
    assert (verdict.verdict, verdict.stage) == ("not-a-bug", "user")
    assert verdict.summary == snapshot
    assert asked == ["off"]


def test_the_rank_that_failed_first_is_the_reason(decide: Decide) -> None:
    printed = (
        "[rank1]: ValueError: bad batch\n[rank0]: RuntimeError: Connection closed by peer\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    verdict, _ = decide(check(), off=[End(1, printed)])
    assert verdict.summary.endswith("not to blame: ValueError: bad batch (rank 1)")


def test_a_program_that_somebody_killed_says_so(tmp_path: Path) -> None:
    killed = End(137, signal=signal.SIGKILL, events=(check(),))
    case, _ = written_case(tmp_path, killed, plain=[ENDS_WELL])
    verdict = first_verdict(case)
    assert verdict.verdict == "unknown"
    assert verdict.summary.startswith("SIGKILL ended the program in one run and not in another")


def test_a_program_that_ends_well_without_the_tool_blames_nobody(decide: Decide) -> None:
    verdict, asked = decide(check(), plain=[ENDS_WELL])
    assert (verdict.verdict, verdict.confidence) == ("unknown", "unknown")
    assert asked == ["off", PLAIN]


def strides(number: int) -> NotedDifference:
    text = f"output {number} has strides (1, 2), in eager (2, 1)"
    where = f"output {number}"
    return NotedDifference(compile="0/0", call=1, aspect="stride", where=where, text=text)


def test_other_strides_are_to_blame_if_the_program_ends_well_with_those_of_eager(
    decide: Decide,
    snapshot: SnapshotAssertion,
) -> None:
    found = finding(Failure(WRONG, strides(1).text, aspect="stride"))
    runs = [ENDS_WELL, FAILS, ENDS_WELL, End(75, found=found)]  # All of them, each, what does it.
    verdict, asked = decide(check(), strides(0), strides(1), compiled=runs)
    verdict = worded(verdict)
    assert verdict.verdict == "wrong-result"
    assert verdict.summary == snapshot
    said = [item["what"] for item in verdict.evidence]
    assert said == snapshot
    assert asked == ["off", PLAIN, COMPILED, COMPILED, COMPILED, COMPILED]


def test_rounding_is_shown_in_eagers_layout_so_other_strides_do_not_matter(decide: Decide) -> None:
    verdict, asked = decide(check(is_exact=False), strides(0), compiled=[FAILS], moved=[FAILS])
    assert (verdict.verdict, verdict.summary[:9]) == ("not-a-bug", "Rounding:")
    assert asked == ["off", "eager", MOVED]


@pytest.mark.parametrize("ends", [{"off": [FAILS]}, {"plain": [ENDS_WELL]}], ids=["eager", "plain"])
def test_strides_are_not_to_blame_where_eager_fails_or_compiled_does_not_always(
    decide: Decide, ends: dict[str, list[End]]
) -> None:
    verdict, asked = decide(check(), strides(0), **ends)
    assert verdict.verdict in ("not-a-bug", "unknown")
    assert COMPILED not in asked


def test_other_strides_in_a_program_that_ends_well_are_no_failure(tmp_path: Path) -> None:
    events = (COMPILED_ONE, check(), strides(0))
    case, asked = written_case(tmp_path, End(events=events), plain=[ENDS_WELL])
    assert (first_verdict(case).verdict, asked) == ("clean", [PLAIN])
    assert [note.where for note in case.noted] == ["output 0"]


def test_a_function_that_differs_because_of_shared_memory(tmp_path: Path) -> None:
    """The program does not look at the result, so it ends well, and is not clean."""
    differs = CallableCheck(function="f", call=1, verdict="differs", text="value 0 is 2")
    shares = replace(strides(0), aspect="sharing", text="output 0 shares memory with nothing")
    found = finding(Failure(WRONG, shares.text, aspect="sharing"))
    first = End(events=(COMPILED_ONE, check(), differs, shares))
    case, asked = written_case(tmp_path, first, compiled=[ENDS_WELL, End(75, found=found)])
    assert (first_verdict(case).verdict, asked) == ("wrong-result", [COMPILED] * 2)


NOT_RAISED = CallableCheck(function="f", call=1, verdict="not-raised", text="returns")


def test_dynamo_is_to_blame_for_a_lost_error_if_the_program_ends_otherwise_in_eager(
    tmp_path: Path,
) -> None:
    """The compiled program ends well; in eager it fails."""
    first = End(events=(COMPILED_ONE, check(), NOT_RAISED))
    alone = End(events=(COMPILED_ONE, NOT_RAISED))
    case, asked = written_case(tmp_path, first, off=[FAILS], eager=[alone])
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.stage, asked) == ("not-inductor", "dynamo", ["off", "eager"])


def test_an_error_that_only_the_fork_has_is_not_held_against_dynamo(tmp_path: Path) -> None:
    first = End(events=(COMPILED_ONE, check(), NOT_RAISED))
    case, asked = written_case(tmp_path, first, plain=[ENDS_WELL])
    assert (first_verdict(case).verdict, asked) == ("clean", ["off", PLAIN])


OTHER_ERROR = check("other-error", text="eager raises IndexError; compiled code raises ValueError")


def test_an_error_of_another_type_is_examined_if_the_program_depends_on_it(decide: Decide) -> None:
    lost = Failure(LOST_CHECK, OTHER_ERROR.text, eager_error="IndexError", aspect="ValueError")
    verdict, asked = decide(OTHER_ERROR, compiled=[End(75, found=finding(lost))])
    assert (verdict.verdict, asked[:2]) == ("wrong-result", ["off", COMPILED])


def test_an_error_of_another_type_that_the_program_caught_is_not_examined(decide: Decide) -> None:
    """Nothing in what the program says comes from it."""
    caught = check("other-error", text="eager raises IndexError; compiled code raises KeyError: 7a")
    _, asked = decide(caught, compiled=[FAILS])
    assert COMPILED not in asked


def test_an_error_of_another_type_is_no_bug_if_the_program_fails_in_eager(decide: Decide) -> None:
    verdict, asked = decide(OTHER_ERROR, off=[FAILS])
    assert (verdict.verdict, asked) == ("not-a-bug", ["off"])


def test_a_check_that_rounding_explains_makes_rounding_likely(decide: Decide) -> None:
    verdict, asked = decide(check("right"), check("within-rounding", is_exact=False))
    assert (verdict.verdict, verdict.stage, verdict.confidence) == ("not-a-bug", "none", "likely")
    assert verdict.summary.startswith("Rounding, most likely: ")
    # Those that could be shown to do it were asked first.
    assert asked == ["off", "eager", MOVED, PLAIN, "aot_eager"]


def test_rounding_elsewhere_does_not_acquit_dynamo(decide: Decide) -> None:
    # With other roundings it fails as well, because of Dynamo.
    verdict, _ = decide(
        check("within-rounding", is_exact=False), eager=[FAILS, FAILS], moved=[FAILS]
    )
    assert (verdict.verdict, verdict.stage) == ("not-inductor", "dynamo")


def test_a_run_that_was_ended_has_not_failed(decide: Decide) -> None:
    """Eager may take much longer than a program that fails at once."""
    verdict, _ = decide(check(), off=[End(137, "", over_time=True)])
    assert (verdict.verdict, verdict.confidence) == ("unknown", "unknown")


def test_a_program_that_fails_in_eager_with_other_roundings_asks_for_too_much(
    decide: Decide,
) -> None:
    verdict, asked = decide(check(is_exact=False), moved=[FAILS])
    assert (verdict.verdict, verdict.confidence) == ("not-a-bug", "proven")
    assert verdict.summary.startswith("Rounding: ")
    assert asked == ["off", "eager", MOVED]


def test_rounding_is_asked_about_after_dynamo(decide: Decide) -> None:
    """Also where each function agrees with its Python code: a side effect may be lost."""
    right = CallableCheck(function="f", call=1, verdict="right", text="2 values")
    verdict, asked = decide(check(is_exact=False), right, moved=[FAILS])
    assert (verdict.verdict, verdict.confidence) == ("not-a-bug", "proven")
    assert asked == ["off", "eager", MOVED]


def test_other_roundings_that_make_it_fail_otherwise_explain_nothing(decide: Decide) -> None:
    verdict, _ = decide(check(is_exact=False), moved=[FAILS_OTHERWISE])
    assert (verdict.verdict, verdict.confidence) == ("unknown", "unknown")


def test_where_every_value_is_eagers_rounding_is_not_asked_about(decide: Decide) -> None:
    verdict, asked = decide(check(is_exact=True), moved=[FAILS])
    assert verdict.verdict == "unknown"
    assert asked == ["off", PLAIN, "eager", "aot_eager"]


@pytest.mark.parametrize(("backend", "stage"), [("eager", "dynamo"), ("aot_eager", "aot")])
def test_a_level_is_blamed_by_two_runs_in_a_row(decide: Decide, backend: str, stage: str) -> None:
    verdict, asked = decide(check(), **{backend: [FAILS, FAILS]})
    assert (verdict.verdict, verdict.stage) == ("not-inductor", stage)
    assert asked[-3:] == [backend, backend, "off"]


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
    decide: Decide, ends: dict[str, list[End]]
) -> None:
    verdict, _ = decide(check(), **ends)
    assert (verdict.verdict, verdict.stage, verdict.culprit.function) == ("unknown", "none", None)


def test_the_run_that_ended_well_is_told(decide: Decide) -> None:
    verdict, _ = decide(check(), eager=[FAILS, FAILS], off=[ENDS_WELL, FAILS])
    assert verdict.evidence[0] == {
        "what": "exit code 1 in one, 0 in the other",
        "where": "two runs of the program, both without torch.compile",
    }


def test_a_level_that_fails_otherwise_is_not_blamed(
    decide: Decide, snapshot: SnapshotAssertion
) -> None:
    verdict, _ = decide(
        check(), check("skipped"), eager=[FAILS_OTHERWISE], aot_eager=[FAILS_OTHERWISE]
    )
    assert (verdict.verdict, verdict.confidence) == ("unknown", "unknown")
    assert verdict.summary == snapshot
    assert "not compared: 2 values" in [item["what"] for item in verdict.evidence]


# --- operators of the program ---------------------------------------------------------------------

MAKING = """RuntimeError when making fake tensor call
  Explanation: Dynamo failed to run FX node with fake tensors: call_function \
mine.pick.default(*(FakeTensor(..., size=(8,)),), **{}): got %s
  Hint: Your code may result in an error when running in eager."""


def refused(message: str, place: Path) -> Verdict:
    error = CompileFailed(
        compile="0/0", stage="dynamo", type="TorchRuntimeError", message=message, traceback=""
    )
    first = replace(FAILS, events=(CompileStart(compile="0/0", function="f"), error))
    return first_verdict(written_case(place, first)[0])


def test_a_fake_implementation_that_raises_is_the_programs_own(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    found = refused(MAKING % "AssertionError('rows must come in threes')", tmp_path)
    assert (found.verdict, found.stage) == ("not-a-bug", "user")
    assert found.culprit.op == "mine.pick.default"
    assert found.summary == snapshot


def test_an_operator_without_a_fake_implementation_is_refused_by_dynamo(tmp_path: Path) -> None:
    missing = "RuntimeError('There was no fake impl registered. Please use `pick.register_fake`')"
    found = refused(MAKING % missing, tmp_path)
    assert (found.verdict, found.stage) == ("not-inductor", "dynamo")
    assert found.summary.endswith("use register_fake)")


def test_a_program_that_asks_for_a_gpu_where_none_is(tmp_path: Path) -> None:
    """Its failure in eager says nothing about the compiler."""
    end = End(1, "AssertionError: Torch not compiled with CUDA enabled")
    found = first_verdict(written_case(tmp_path, end, off=[end], plain=[end])[0])
    assert (found.verdict, found.stage) == ("not-a-bug", "user")
    assert found.summary.startswith("The program asks for a GPU that this machine (")


# --- a program that asks for input ----------------------------------------------------------------

ASKS = End(1, "name? Traceback\nEOFError: EOF when reading a line")


@pytest.mark.parametrize("withholds", [True, False])
def test_input_that_the_doctor_withheld_is_no_mistake_of_the_program(
    tmp_path: Path,
    withholds: bool,
    snapshot: SnapshotAssertion,
) -> None:
    case, _ = written_case(tmp_path, ASKS, off=[ASKS])
    case.runs.withholds_input = withholds
    verdict = first_verdict(case)
    if withholds:
        assert verdict.verdict == "not-checked"
        assert verdict.summary == snapshot
    else:  # Standard input was /dev/null, as for a job: so it is for the program without the tool.
        assert (verdict.verdict, verdict.stage) == ("not-a-bug", "user")
