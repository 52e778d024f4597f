"""The doctor's conclusions from a program that ends well."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.verdict import exit_code
from inductoscope.recording.events import (
    CompileFailed,
    CompileStart,
    FellBackToEager,
    GraphBreak,
    HookError,
)
from support.program_cases import (
    COMPILED_ONE,
    ENDS_WELL,
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
        "calls after the first 8 of graph 0/0 (--calls checks more)",
        "call 2 of graph 0/0: its inputs are 900 MiB, too large to copy",
        "whether Dynamo captured what the Python code says: only its graphs were compared",
    ]


def test_a_program_that_fails_without_the_tool_only_is_not_clean(tmp_path: Path) -> None:
    case, asked = written_case(tmp_path, End(events=(check(),)))
    assert (first_verdict(case).verdict, asked) == ("unknown", [PLAIN])


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
