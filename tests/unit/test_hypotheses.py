"""What the doctor concludes from runs of a program: the hypotheses, and their order."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from inductoscope.doctor.failure import ERROR, HANG, WRONG, Failure
from inductoscope.doctor.handover import Found, GraphWorkaround
from inductoscope.doctor.instructions import MOVED
from inductoscope.doctor.outside import hypotheses
from inductoscope.doctor.outside.hypotheses import HYPOTHESES, verdict_of_first
from inductoscope.doctor.outside.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.outside.same_failure import fails_alike
from inductoscope.doctor.verdict import Verdict, exit_code
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.checking import (
    CallableChecked,
    CallsUnchecked,
    DifferenceNoted,
)
from inductoscope.recording.events.compiling import (
    CompileFailed,
    CompileStart,
    FellBackToEager,
    GraphBroke,
    StageStart,
)
from inductoscope.recording.events.process import HookError
from inductoscope.recording.location import create_recording
from support.program_cases import (
    COMMAND,
    COMPILED,
    ENDS_WELL,
    FAILS,
    FAILS_OTHERWISE,
    PLAIN,
    End,
    check,
    leave_behind,
    written_case,
)

# --- the table ------------------------------------------------------------------------------------

FOLDER = Path(hypotheses.__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.py"))
HEADINGS = ("When it applies:", "What it runs:", "What it concludes:", "How sure:")

every_hypothesis = pytest.mark.parametrize("hypothesis", HYPOTHESES, ids=lambda h: h.name)


def test_every_file_is_in_the_table_of_hypotheses_once() -> None:
    files = [name for name in FILES if name not in ("__init__", "hypothesis")]
    assert sorted(hypothesis.name for hypothesis in HYPOTHESES) == files


@every_hypothesis
def test_a_hypothesis_is_documented_under_the_same_headings(hypothesis: Hypothesis) -> None:
    module = importlib.import_module(hypothesis.examine.__module__)
    assert module.HYPOTHESIS is hypothesis
    title, *paragraphs = (module.__doc__ or "").strip().split("\n\n")
    assert "\n" not in title
    found = [next((h for h in HEADINGS if text.startswith(h)), "") for text in paragraphs]
    assert tuple(found) == HEADINGS
    assert all(text.partition(":")[2].strip() for text in paragraphs)


def place_of(name: str) -> int:
    return [hypothesis.name for hypothesis in HYPOTHESES].index(name)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        # There is no graph to return to: choices are stuck while one is being lowered.
        ("stuck_choices", "died_or_stalled"),
        # What is found there is judged by those after them.
        ("died_or_stalled", "machine_cannot_compile"),
        ("unchecked_call", "machine_cannot_compile"),
        # A graph that runs for ever in eager too must not be blamed on the compiler.
        ("hangs_in_eager", "proven_failure"),
        ("proven_failure", "only_under_the_tool"),
        ("only_under_the_tool", "unproven_failure"),
        # Whatever was found ends the examination before anybody else is blamed.
        ("unproven_failure", "unexamined_failure"),
        # A mistake of the tool must not turn what it saw into a clean bill.
        ("unexamined_failure", "clean"),
        ("wrong_capture", "clean"),
        # A function that differs because of a graph's results is not Dynamo's fault.
        ("memory_layout", "wrong_capture"),
        ("clean", "inductor_random_numbers"),
        ("inductor_random_numbers", "hidden_by_the_tool"),
        # The compiler is blamed only for what does not fail in eager.
        ("fails_in_eager", "dynamo_alone"),
        ("fails_now_and_then", "dynamo_alone"),
        # With other roundings, what Dynamo does is done too.
        ("dynamo_alone", "rounding"),
        # What a run shows comes before what is only likely.
        ("rounding", "likely_rounding"),
        ("aot_alone", "likely_random_numbers"),
        ("likely_rounding", "unknown_cause"),
    ],
)
def test_the_order_of_hypotheses(first: str, then: str) -> None:
    assert place_of(first) < place_of(then)


@pytest.mark.parametrize("stalled", [False, True], ids=["", "stalled"])
@pytest.mark.parametrize("over_time", [False, True], ids=["", "over time"])
@pytest.mark.parametrize("exit_code", [0, 1, 139])
@pytest.mark.parametrize("found", [None, Found("0/0", Failure(WRONG, "text"))], ids=["", "found"])
def test_there_is_a_verdict_however_a_program_ends(
    tmp_path: Path, exit_code: int, over_time: bool, stalled: bool, found: Found | None
) -> None:
    end = End(exit_code, "text", over_time, stalled, found=found)
    case, _ = written_case(tmp_path, end)
    assert verdict_of_first(case).summary


# --- whether two runs failed alike ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (End(1, "step 3\nloss is 0.25"), End(1, "step 12\nloss is -1.5e-07"), True),
        (End(1, "loss is 0.25"), End(1, "loss is 0.25\n\n"), True),
        (End(1, ""), End(1, ""), True),
        (End(1, "loss is 0.25"), End(2, "loss is 0.25"), False),
        (End(1, "loss is 0.25"), End(1, "no such file"), False),
        (End(1, "loss is 0.25"), End(1, ""), False),
    ],
    ids=["other numbers", "empty lines", "silent", "other code", "other words", "no words"],
)
def test_runs_fail_alike_by_exit_code_and_last_words(
    one: End, other: End, alike: bool, tmp_path: Path
) -> None:
    runs = [
        leave_behind(end, create_recording(COMMAND, output=tmp_path / str(number)))
        for number, end in enumerate((one, other))
    ]
    assert fails_alike(*runs) is alike


# --- a failure that was found ---------------------------------------------------------------------


def test_what_no_reproducer_shows_is_checked_without_the_tool(tmp_path: Path) -> None:
    found = Found("0/0", Failure(ERROR, "KeyError: 1", stage="lowering"), is_complete=True)
    case, asked = written_case(tmp_path, End(75, found=found), plain=[ENDS_WELL])
    verdict = verdict_of_first(case)
    assert (verdict.verdict, asked) == ("unknown", [PLAIN])
    assert "KeyError: 1" in verdict.evidence[0]["what"]


def test_what_fails_without_the_tool_too_is_told_though_no_reproducer_shows_it(
    tmp_path: Path,
) -> None:
    found = Found("0/0", Failure(ERROR, "KeyError: 1", stage="lowering"), is_complete=True)
    case, asked = written_case(tmp_path, End(75, found=found))
    assert (verdict_of_first(case).verdict, asked) == ("crash", [PLAIN])


def test_a_wrong_result_needs_no_run_without_the_tool(tmp_path: Path) -> None:
    found = Found("0/0", Failure(WRONG, "output 0 is 2, in eager 1"), is_complete=True)
    case, asked = written_case(tmp_path, End(75, found=found))
    assert (verdict_of_first(case).verdict, asked) == ("wrong-result", [])


def test_workarounds_are_tried_on_the_program_until_one_works(tmp_path: Path) -> None:
    codes = [GraphWorkaround(f"way {number}", f"x = {number}") for number in range(3)]
    found = Found("0/0", Failure(WRONG, "text"), is_complete=True, workarounds=codes)
    helped = replace(ENDS_WELL, events=(check(),))
    still_wrong = replace(ENDS_WELL, events=(check("wrong"),))
    case, asked = written_case(tmp_path, End(75, found=found), compiled=[still_wrong, helped])
    workaround = verdict_of_first(case).workaround
    assert workaround is not None
    assert (workaround.text, workaround.verified, asked) == ("way 1", True, [COMPILED] * 2)


@pytest.mark.parametrize(
    ("eager", "verdict"),
    [(End(137, "", over_time=True), "not-a-bug"), (ENDS_WELL, "hang")],
    ids=["hangs in eager too", "ends in eager"],
)
def test_a_graph_that_never_ends_is_run_in_eager_as_long(
    tmp_path: Path, eager: End, verdict: str
) -> None:
    found = Found("0/0", Failure(HANG, "text", stage="runtime"), is_complete=True)
    case, asked = written_case(tmp_path, End(75, found=found), off=[eager])
    assert (verdict_of_first(case).verdict, asked) == (verdict, ["off"])


def test_a_machine_that_cannot_compile_is_not_examined_further(tmp_path: Path) -> None:
    failure = Failure(ERROR, "InvalidCxxCompiler: no g++", stage="cpp-compile")
    found = Found("0/0", failure, advice="Install g++.", is_complete=True)
    case, asked = written_case(tmp_path, End(75, found=found))
    verdict = verdict_of_first(case)
    assert (verdict.verdict, verdict.confidence, asked) == ("compile-error", "proven", [])
    assert verdict.summary.endswith("Install g++.")


# --- looking again --------------------------------------------------------------------------------

UNCHECKED = CallsUnchecked(compile="0/0")


def test_every_call_is_checked_if_not_all_were_and_eager_ends_well(tmp_path: Path) -> None:
    found = Found("0/0", Failure(WRONG, "text"), is_complete=True)
    first = replace(FAILS, events=(check(), UNCHECKED))
    case, asked = written_case(tmp_path, first, compiled=[End(75, found=found)])
    verdict = verdict_of_first(case)
    assert (verdict.verdict, asked) == ("wrong-result", ["off", COMPILED])


def test_one_run_in_eager_serves_all_hypotheses(tmp_path: Path) -> None:
    first = replace(FAILS, events=(check(), UNCHECKED))
    case, asked = written_case(tmp_path, first, compiled=[FAILS])
    assert verdict_of_first(case).verdict == "wrong-result"
    assert asked == ["off", COMPILED, PLAIN, "eager", "aot_eager"]


def test_a_process_that_died_in_a_graph_is_returned_to(tmp_path: Path) -> None:
    entered = StageStart(compile="0/0", stage="lowering", detail="op3")
    found = Found("0/0", Failure("signal", "died", stage="lowering"), is_complete=True)
    first = replace(FAILS, events=(entered,), died=True)
    case, asked = written_case(tmp_path, first, compiled=[End(75, found=found)])
    verdict = verdict_of_first(case)
    assert (verdict.verdict, verdict.stage) == ("crash", "lowering")
    assert asked == [COMPILED, PLAIN]


# --- a program that goes through ------------------------------------------------------------------

COMPILED_ONE = CompileStart(compile="0/0")


def test_a_clean_bill_is_confirmed_without_the_tool(tmp_path: Path) -> None:
    case, asked = written_case(tmp_path, End(events=(COMPILED_ONE, check())), plain=[ENDS_WELL])
    verdict = verdict_of_first(case)
    assert (verdict.verdict, verdict.confidence, asked) == ("clean", "proven", [PLAIN])
    assert verdict.evidence[-1]["what"] == "the program also ends well without the tool"


def test_a_clean_bill_says_what_was_not_checked(tmp_path: Path) -> None:
    large = replace(check("skipped"), call=2, text="its inputs are 900 MiB, too large to copy")
    events = (COMPILED_ONE, check(), large, UNCHECKED)
    case, _ = written_case(tmp_path, End(events=events), plain=[ENDS_WELL])
    verdict = verdict_of_first(case)
    assert verdict.verdict == "clean"
    assert verdict.not_checked == [
        "calls after the first 8 of graph 0/0 (--calls checks more)",
        "call 2 of graph 0/0: its inputs are 900 MiB, too large to copy",
        "whether Dynamo captured what the Python code says: only its graphs were compared",
    ]


def test_a_program_that_fails_without_the_tool_only_is_not_clean(tmp_path: Path) -> None:
    case, asked = written_case(tmp_path, End(events=(check(),)))
    assert (verdict_of_first(case).verdict, asked) == ("unknown", [PLAIN])


def test_what_was_seen_wrong_and_could_not_be_examined_is_not_clean(tmp_path: Path) -> None:
    """A mistake of the tool's own must not turn what it saw into a clean bill."""
    seen = check("wrong", text="output 0 is 2, in eager 1")
    broke = HookError(hook="inductoscope.doctor.inside", error="KeyError: 1")
    case, asked = written_case(tmp_path, End(events=(seen, broke)))
    verdict = verdict_of_first(case)
    assert (verdict.verdict, verdict.confidence, asked) == ("wrong-result", "unknown", [])
    said = json.dumps(verdict.as_data())
    assert "output 0 is 2, in eager 1" in said
    assert "KeyError: 1" in said


def test_a_call_that_was_too_large_to_check_is_not_called_right(tmp_path: Path) -> None:
    """As with inputs of several GiB, where memory does not reach for a second copy."""
    skipped = check("skipped", text="its inputs are 3072 MiB")
    case, _ = written_case(tmp_path, End(events=(COMPILED_ONE, skipped)), plain=[ENDS_WELL])
    verdict = verdict_of_first(case)
    assert (verdict.verdict, exit_code(verdict.verdict)) == ("not-checked", 4)
    assert "no call of its 1 compiled graph could be compared" in verdict.summary
    assert "3072 MiB" in json.dumps(verdict.as_data())


# --- a program that fails with every graph right --------------------------------------------------

Decide = Callable[..., tuple[Verdict, list[str]]]


@pytest.fixture
def decide(tmp_path: Path) -> Decide:
    """The verdict on a program that failed with these checks, and the runs that it took."""

    def decide(*checks: Event, **ends: list[End]) -> tuple[Verdict, list[str]]:
        case, asked = written_case(tmp_path, replace(FAILS, events=checks), **ends)
        return verdict_of_first(case), asked

    return decide


def test_a_program_that_fails_in_eager_too_is_its_own_fault(decide: Decide) -> None:
    verdict, asked = decide(check(), off=[FAILS])
    assert (verdict.verdict, verdict.stage) == ("not-a-bug", "user")
    assert "AssertionError: 0.25 is not 0.5" in verdict.summary
    assert asked == ["off"]


def test_a_program_that_ends_well_without_the_tool_blames_nobody(decide: Decide) -> None:
    verdict, asked = decide(check(), plain=[ENDS_WELL])
    assert (verdict.verdict, verdict.confidence) == ("unknown", "unknown")
    assert asked == ["off", PLAIN]


def strides(number: int) -> DifferenceNoted:
    text = f"output {number} has strides (1, 2), in eager (2, 1)"
    where = f"output {number}"
    return DifferenceNoted(compile="0/0", call=1, aspect="stride", where=where, text=text)


def test_other_strides_are_to_blame_if_the_program_ends_well_with_those_of_eager(
    decide: Decide,
) -> None:
    found = Found("0/0", Failure(WRONG, strides(1).text, aspect="stride"), is_complete=True)
    runs = [ENDS_WELL, FAILS, ENDS_WELL, End(75, found=found)]  # All of them, each, what does it.
    verdict, asked = decide(check(), strides(0), strides(1), compiled=runs)
    assert verdict.verdict == "wrong-result"
    assert "output 1 has strides (1, 2), in eager (2, 1), and the program needs" in verdict.summary
    said = [item["what"] for item in verdict.evidence]
    assert "the program ends well if output 1 of compile 0/0 gets eager's strides" in said
    assert asked == ["off", PLAIN, COMPILED, COMPILED, COMPILED, COMPILED]


def test_other_strides_that_do_not_matter_leave_the_blame_to_others(decide: Decide) -> None:
    verdict, asked = decide(check(is_exact=False), strides(0), compiled=[FAILS], moved=[FAILS])
    assert (verdict.verdict, verdict.summary[:9]) == ("not-a-bug", "Rounding:")
    assert asked == ["off", PLAIN, COMPILED, "eager", MOVED]


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
    assert (verdict_of_first(case).verdict, asked) == ("clean", [PLAIN])
    assert [note.where for note in case.noted] == ["output 0"]


def test_a_function_that_differs_because_of_shared_memory(tmp_path: Path) -> None:
    """The program does not look at the result, so it ends well, and is not clean."""
    differs = CallableChecked(function="f", call=1, verdict="differs", text="value 0 is 2")
    shares = replace(strides(0), aspect="sharing", text="output 0 shares memory with nothing")
    found = Found("0/0", Failure(WRONG, shares.text, aspect="sharing"), is_complete=True)
    first = End(events=(COMPILED_ONE, check(), differs, shares))
    case, asked = written_case(tmp_path, first, compiled=[ENDS_WELL, End(75, found=found)])
    assert (verdict_of_first(case).verdict, asked) == ("wrong-result", [COMPILED] * 2)


def test_a_check_that_rounding_explains_makes_rounding_likely(decide: Decide) -> None:
    verdict, asked = decide(check("right"), check("within-rounding", is_exact=False))
    assert (verdict.verdict, verdict.stage, verdict.confidence) == ("not-a-bug", "none", "likely")
    assert verdict.summary.startswith("Rounding, most likely: ")
    # Those that could be shown to do it were asked first.
    assert asked == ["off", PLAIN, "eager", MOVED, "aot_eager"]


def test_rounding_elsewhere_does_not_acquit_dynamo(decide: Decide) -> None:
    # With other roundings it fails as well, because of Dynamo.
    verdict, _ = decide(
        check("within-rounding", is_exact=False), eager=[FAILS, FAILS], moved=[FAILS]
    )
    assert (verdict.verdict, verdict.stage) == ("not-inductor", "dynamo")


def test_a_run_that_was_ended_has_not_failed(decide: Decide) -> None:
    """Eager may take much longer than a program that fails at once."""
    verdict, _ = decide(check(), off=[End(137, "", over_time=True)])
    assert (verdict.verdict, verdict.confidence) == ("wrong-result", "unknown")


def test_a_program_that_fails_in_eager_with_other_roundings_asks_for_too_much(
    decide: Decide,
) -> None:
    verdict, asked = decide(check(is_exact=False), moved=[FAILS])
    assert (verdict.verdict, verdict.confidence) == ("not-a-bug", "proven")
    assert verdict.summary.startswith("Rounding: ")
    assert asked == ["off", PLAIN, "eager", MOVED]


def test_other_roundings_that_make_it_fail_otherwise_explain_nothing(decide: Decide) -> None:
    verdict, _ = decide(check(is_exact=False), moved=[FAILS_OTHERWISE])
    assert (verdict.verdict, verdict.confidence) == ("wrong-result", "unknown")


def test_where_every_value_is_eagers_rounding_is_not_asked_about(decide: Decide) -> None:
    verdict, asked = decide(check(is_exact=True), moved=[FAILS])
    assert verdict.verdict == "wrong-result"
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


def test_a_level_that_fails_otherwise_is_not_blamed(decide: Decide) -> None:
    verdict, _ = decide(
        check(), check("skipped"), eager=[FAILS_OTHERWISE], aot_eager=[FAILS_OTHERWISE]
    )
    assert (verdict.verdict, verdict.confidence) == ("wrong-result", "unknown")
    assert "matches eager (compared: 1 call)" in verdict.summary
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
    return verdict_of_first(written_case(place, first)[0])


def test_a_fake_implementation_that_raises_is_the_programs_own(tmp_path: Path) -> None:
    found = refused(MAKING % "AssertionError('rows must come in threes')", tmp_path)
    assert (found.verdict, found.stage) == ("not-a-bug", "user")
    assert found.culprit.op == "mine.pick.default"
    assert "raises AssertionError('rows must come in threes')" in found.summary


def test_an_operator_without_a_fake_implementation_is_refused_by_dynamo(tmp_path: Path) -> None:
    missing = "RuntimeError('There was no fake impl registered. Please use `pick.register_fake`')"
    found = refused(MAKING % missing, tmp_path)
    assert (found.verdict, found.stage) == ("not-inductor", "dynamo")
    assert found.summary.endswith("use register_fake)")


def test_a_program_that_asks_for_a_gpu_where_none_is(tmp_path: Path) -> None:
    """Its failure in eager says nothing about the compiler."""
    end = End(1, "AssertionError: Torch not compiled with CUDA enabled")
    found = verdict_of_first(written_case(tmp_path, end, off=[end], plain=[end])[0])
    assert (found.verdict, found.stage) == ("not-a-bug", "user")
    assert found.summary.startswith("The program asks for a GPU that this machine (")


def test_a_program_in_which_dynamo_captured_no_graph(tmp_path: Path) -> None:
    """As with a model of torch's own modules under DDP."""
    end = replace(ENDS_WELL, events=(CompileStart(compile="0/0", function="inner"),))
    found = verdict_of_first(written_case(tmp_path, end, plain=[ENDS_WELL])[0])
    assert (found.verdict, found.confidence) == ("not-checked", "proven")
    assert "your function inner ran in eager, because Dynamo captured no graph" in found.summary


def test_a_function_that_dynamo_skips_ran_in_eager_and_it_is_said_why(tmp_path: Path) -> None:
    """A graph break inside a loop makes Dynamo leave the whole function to eager."""
    why = "graph break in loop\n  Explanation: A print."
    broke = GraphBroke(compile="0/0", reason=why, source="train.py:6")
    gave_up = CompileFailed(
        compile="0/0", stage="dynamo", type="Unsupported", message=why, traceback=""
    )
    ended = FellBackToEager(compile="0/0", reason=why)
    begun = CompileStart(compile="0/0", function="step", file="train.py", line=2)
    end = replace(ENDS_WELL, events=(begun, broke, gave_up, ended))
    found = verdict_of_first(written_case(tmp_path, end, plain=[ENDS_WELL])[0])
    assert found.verdict == "not-checked"
    assert "your function step ran in eager, because its graph breaks inside a loop: A print" in (
        found.summary
    )


# --- limits ---------------------------------------------------------------------------------------

OVER_TIME = End(137, "step 500", over_time=True)


def test_a_limit_is_a_limit_and_not_a_hang(tmp_path: Path) -> None:
    """As with training that goes on for days, under --time-limit 40."""
    calls = tuple(replace(check(), call=number) for number in (1, 2, 3))
    end = replace(OVER_TIME, events=(COMPILED_ONE, *calls, UNCHECKED))
    case, asked = written_case(tmp_path, end)
    found = verdict_of_first(case)
    assert (found.verdict, found.confidence, asked) == ("clean", "likely", [])
    assert "3 calls of 1 compiled graph match eager; it was still running" in found.summary
    assert any("--time-limit" in text for text in found.not_checked)


def test_a_limit_before_anything_was_compared_leaves_everything_unchecked(tmp_path: Path) -> None:
    case, _ = written_case(tmp_path, replace(OVER_TIME, events=(COMPILED_ONE,)))
    found = verdict_of_first(case)
    assert (found.verdict, exit_code(found.verdict)) == ("not-checked", 4)


def test_a_limit_in_the_middle_of_a_compile_does_not_prove_that_it_hangs(tmp_path: Path) -> None:
    entered = StageStart(compile="0/0", stage="lowering")
    end = replace(OVER_TIME, events=(COMPILED_ONE, entered), died=True)
    case, asked = written_case(tmp_path, end, compiled=[End(137, over_time=True)])
    found = verdict_of_first(case)
    assert (found.verdict, asked) == ("unknown", [COMPILED])
    assert "Whether it hangs is not known" in found.summary


# --- a program that asks for input ----------------------------------------------------------------

ASKS = End(1, "name? Traceback\nEOFError: EOF when reading a line")


@pytest.mark.parametrize("withholds", [True, False])
def test_input_that_the_doctor_withheld_is_no_mistake_of_the_program(
    tmp_path: Path, withholds: bool
) -> None:
    case, _ = written_case(tmp_path, ASKS, off=[ASKS])
    case.runs.withholds_input = withholds
    verdict = verdict_of_first(case)
    if withholds:
        assert verdict.verdict == "not-checked"
        assert "inductoscope doctor SCRIPT < FILE" in verdict.summary
    else:  # Standard input was /dev/null, as for a job: so it is for the program without the tool.
        assert (verdict.verdict, verdict.stage) == ("not-a-bug", "user")
