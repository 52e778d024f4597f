"""The doctor's conclusions from a program that ends well."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.instructions import CACHES, CHECKS, LAUNCHES, THREADS, RunCondition
from inductoscope.doctor.verdict import exit_code
from inductoscope.recording.events import (
    CacheLookup,
    CompileFailed,
    CompileStart,
    FellBackToEager,
    GraphBreak,
    HookError,
    Kernel,
    Recompiled,
)
from support.program_cases import (
    COMPILED_ONE,
    ENDS_WELL,
    FAILS,
    PLAIN,
    UNCHECKED,
    End,
    check,
    written_case,
)

# --- a program that goes through ------------------------------------------------------------------


def test_a_clean_bill_is_confirmed_without_the_tool(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    case, asked = written_case(tmp_path, End(events=(COMPILED_ONE, check())), plain=[ENDS_WELL])
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.confidence, asked) == ("clean", "proven", [PLAIN])
    assert verdict.evidence[-1]["what"] == snapshot


def test_a_clean_bill_says_what_was_not_checked(tmp_path: Path) -> None:
    large = replace(check("skipped"), call=2, text="its inputs are 900 MiB, too large to copy")
    events = (COMPILED_ONE, check(), large, UNCHECKED)
    case, _ = written_case(tmp_path, End(events=events), plain=[ENDS_WELL])
    verdict = first_verdict(case)
    assert verdict.verdict == "clean"
    assert verdict.not_checked == [
        "some calls of graph 0/0 after the first: they are too large to copy, and checked as long "
        "as that adds no more than a quarter to the program's time",
        "call 2 of graph 0/0: its inputs are 900 MiB, too large to copy",
        "whether Dynamo captured what the Python code says: only its graphs were compared",
    ]


def test_of_small_calls_the_first_ones_are_checked(tmp_path: Path) -> None:
    case, _ = written_case(
        tmp_path, End(events=(COMPILED_ONE, check(), UNCHECKED)), plain=[ENDS_WELL]
    )
    said = "some calls of graph 0/0 after the first 8 (--calls checks more)"
    assert first_verdict(case).not_checked[0] == said


# --- a program that fails only without the tool ---------------------------------------------------

HIDES = End(events=(COMPILED_ONE, check()))


def test_a_program_that_fails_without_the_tool_only_is_not_clean(tmp_path: Path) -> None:
    """Each condition of a checked run is given back, and none makes it fail."""
    case, asked = written_case(tmp_path, HIDES)
    assert first_verdict(case).verdict == "unknown"
    assert asked == [PLAIN, "off", PLAIN, CACHES.name, CHECKS.name, THREADS.name]


def test_a_program_that_fails_in_eager_too_is_not_blamed_on_what_the_tool_hides(
    tmp_path: Path,
) -> None:
    case, asked = written_case(tmp_path, HIDES, off=[FAILS])
    assert (first_verdict(case).verdict, asked) == ("not-a-bug", [PLAIN, "off"])


def test_a_program_that_fails_now_and_then_is_not_blamed_on_a_condition(tmp_path: Path) -> None:
    case, _ = written_case(tmp_path, HIDES, plain=[FAILS, ENDS_WELL])
    assert first_verdict(case).summary.startswith("The program does not end the same way")


def looked_up(compile_id: str, outcome: str) -> CacheLookup:
    return CacheLookup(cache="AOTAutograd", outcome=outcome, compile=compile_id, key="abc")


def test_a_wrong_entry_of_a_cache_is_named_with_those_who_share_it(tmp_path: Path) -> None:
    """Compile 0/1 takes what 0/0 has saved under the same key, though a guard told them apart."""
    saver, taker = (CompileStart(compile=name, function="step") for name in ("0/0", "0/1"))
    again = Recompiled(compile="0/1", reasons=("0/0: scale == 0.5  # y = x * scale",))
    wrong = replace(check("wrong", text="output 0 is 2, in eager 1"), compile="0/1")
    seen = (saver, looked_up("0/0", "miss"), taker, again, looked_up("0/1", "hit"), wrong)
    off = {"TORCHINDUCTOR_AUTOGRAD_CACHE": [ENDS_WELL]}
    case, _ = written_case(tmp_path, HIDES, **{CACHES.name: [End(1, events=seen)]}, **off)
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.stage, verdict.confidence) == ("wrong-result", "aot", "proven")
    said = [item["what"] for item in verdict.evidence]
    assert said[2] == "the key leaves out what tells the two apart: scale == 0.5"
    assert verdict.workaround is not None
    assert verdict.workaround.verified


def test_an_entry_that_was_there_before_the_run_is_stale(tmp_path: Path) -> None:
    seen = (CompileStart(compile="0/0", function="step"), looked_up("0/0", "hit"))
    off = {"TORCHINDUCTOR_AUTOGRAD_CACHE": [ENDS_WELL]}
    case, _ = written_case(tmp_path, HIDES, **{CACHES.name: [End(1, events=seen)]}, **off)
    assert "the entry that an earlier run saved" in first_verdict(case).summary


def test_a_cache_that_changes_nothing_when_it_is_off_is_not_blamed(tmp_path: Path) -> None:
    seen = (CompileStart(compile="0/0"), looked_up("0/0", "hit"))
    case, _ = written_case(tmp_path, HIDES, **{CACHES.name: [End(1, events=seen)]})
    assert first_verdict(case).verdict == "unknown"


@pytest.mark.parametrize(
    ("condition", "confidence"),
    [(THREADS, "proven"), (LAUNCHES, "proven"), (CHECKS, "unknown")],
    ids=lambda each: getattr(each, "name", each),
)
def test_the_condition_that_hides_the_failure_is_named(
    condition: RunCondition, confidence: str, tmp_path: Path
) -> None:
    """Given back alone, it makes the program fail; imposed alone, it makes it end well."""
    kernel = Kernel(graph="0/0", name="triton_poi_0", language="Triton", nodes=(), payload="")
    imposed = {", ".join(condition.variables): [ENDS_WELL]} if condition.variables else {}
    events = (*HIDES.events, kernel)
    case, _ = written_case(tmp_path, End(events=events), **{condition.name: [FAILS]}, **imposed)
    verdict = first_verdict(case)
    assert (verdict.stage, verdict.confidence) == ("runtime", confidence)
    assert verdict.culprit.config == condition.name
    assert (verdict.workaround is not None) == bool(condition.variables)


def test_what_was_seen_wrong_and_could_not_be_examined_is_not_clean(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A mistake of the tool's own must not turn what it saw into a clean bill."""
    seen = check("wrong", text="output 0 is 2, in eager 1")
    broke = HookError(hook="inductoscope.inside.doctor", error="KeyError: 1")
    case, asked = written_case(tmp_path, End(events=(seen, broke)))
    verdict = first_verdict(case)
    assert (verdict.verdict, verdict.confidence, asked) == ("wrong-result", "unknown", [])
    said = json.dumps(verdict.as_data())
    assert said == snapshot


def test_a_call_that_was_too_large_to_check_is_not_called_right(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """As with inputs of several GiB, where memory does not reach for a second copy."""
    skipped = check("skipped", text="its inputs are 3072 MiB")
    case, _ = written_case(tmp_path, End(events=(COMPILED_ONE, skipped)), plain=[ENDS_WELL])
    verdict = first_verdict(case)
    assert (verdict.verdict, exit_code(verdict.verdict)) == ("not-checked", 4)
    assert verdict.summary == snapshot
    assert "3072 MiB" in json.dumps(verdict.as_data())


def test_a_program_in_which_dynamo_captured_no_graph(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """As with a model of torch's own modules under DDP."""
    end = replace(ENDS_WELL, events=(CompileStart(compile="0/0", function="inner"),))
    found = first_verdict(written_case(tmp_path, end, plain=[ENDS_WELL])[0])
    assert (found.verdict, found.confidence) == ("not-checked", "proven")
    assert found.summary == snapshot


def test_a_function_that_dynamo_skips_ran_in_eager_and_it_is_said_why(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A graph break inside a loop makes Dynamo leave the whole function to eager."""
    why = "graph break in loop\n  Explanation: A print."
    broke = GraphBreak(compile="0/0", reason=why, source="train.py:6")
    gave_up = CompileFailed(
        compile="0/0", stage="dynamo", type="Unsupported", message=why, traceback=""
    )
    ended = FellBackToEager(compile="0/0", reason=why)
    begun = CompileStart(compile="0/0", function="step", file="train.py", line=2)
    end = replace(ENDS_WELL, events=(begun, broke, gave_up, ended))
    found = first_verdict(written_case(tmp_path, end, plain=[ENDS_WELL])[0])
    assert found.verdict == "not-checked"
    assert found.summary == snapshot
