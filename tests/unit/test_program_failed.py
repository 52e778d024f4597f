"""A recording of a program that failed: the exception, the graph, the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.rules import diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.fold import load
from support.examples import inductoscope, write_recording

WRAPPER = "/tmp/torchinductor_me/ao/caon4m36fonhvwvohydunr4txdappyvs43cuzwxcti5khfk6w5tq.py"
STACK = "c" * 32
LAUNCHED = {"kind": "launched", "pid": 7}
PROCESS = {"kind": "process", "pid": 7}
TORCH = {"kind": "torch", "version": "2.13.0"}
COMPILE = {
    "kind": "compile-start",
    "compile": "0/0",
    "function": "f",
    "file": "/home/me/train.py",
    "line": 2,
}
END = {"kind": "compile-end", "compile": "0/0", "outcome": "compiled", "seconds": 1.0}
LOADED = {"kind": "wrapper-loaded", "graph": "0/0 inference", "path": WRAPPER}
BUFFERS = {"kind": "buffers", "graph": "0/0 inference", "payload": "b" * 32}
GRAPH = {
    "kind": "graph",
    "stage": "post-grad",
    "compile": "0/0",
    "graph": "0/0 inference",
    "payload": "a" * 32,
}
COMPILED = (LAUNCHED, PROCESS, TORCH, COMPILE, GRAPH, BUFFERS, LOADED, END)
FAILED = {"kind": "exited", "pid": 7, "exit_code": 1, "seconds": 2.0}

MAIN = '  File "/home/me/train.py", line 9, in <module>\n    f(x)\n'
CALLING = (
    f"{MAIN}"
    '  File "/venv/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py", line 1, in _fn\n'
    "    return fn(*args)\n"
)
IN_WRAPPER = (
    f"{CALLING}"
    f'  File "{WRAPPER}", line 103, in call\n'
    "    buf1 = empty_strided_cpu((70368744177664, ), (1, ), torch.float32)\n"
)
NODES = {
    "nodes": [
        {"name": "full", "op": "call_function", "target": "aten.full.default", "stack": 0},
    ],
    "stacks": ['  File "/home/me/train.py", line 4, in f\n    torch.zeros(1 << 46)\n'],
}
PAYLOADS = {"b" * 32: {"buf1": {"origin": "full", "origins": ["full"]}}, "a" * 32: NODES}


def uncaught(**more: Any) -> dict[str, Any]:
    return {"kind": "uncaught", "type": "RuntimeError", "message": "not enough memory", **more}


def findings(folder: Path, *events: dict[str, Any], stack: str = "") -> list[Finding]:
    found = write_recording(folder / "recording", *events, payloads={**PAYLOADS, STACK: stack})
    return diagnose(load(found))


def first_line(folder: Path, *events: dict[str, Any], stack: str = "") -> str:
    findings(folder, *events, stack=stack)
    return inductoscope("show", folder / "recording").words.partition(" ended ")[0]


def test_an_exception_inside_a_compiled_graph_names_the_graph_and_the_users_line(
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    events = (*COMPILED, uncaught(stack=STACK), FAILED)
    said = first_line(tmp_path, *events, stack=IN_WRAPPER)
    assert said == snapshot
    (found,) = diagnose(load(tmp_path / "recording"))
    assert (found.rule, found.is_problem, found.confidence) == ("program_failed", True, "proven")
    assert (found.source, found.compile) == ("/home/me/train.py:4", "0/0")
    assert found.evidence[0] == snapshot


def test_an_exception_of_the_program_itself_is_outside_compiled_code(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    events = (*COMPILED, uncaught(type="ValueError", stack=STACK), FAILED)
    said = first_line(tmp_path, *events, stack=MAIN)
    assert said == snapshot
    assert "no problem found" not in inductoscope("show", tmp_path / "recording").stdout


def test_a_custom_operator_that_a_graph_calls_is_named(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    stack = f'{IN_WRAPPER}  File "/home/me/ops.py", line 3, in half\n    raise ValueError\n'
    (found,) = findings(tmp_path, *COMPILED, uncaught(stack=STACK), FAILED, stack=stack)
    assert found.title == snapshot


def test_a_failed_compile_is_what_failed(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    error = {
        "kind": "error",
        "compile": "0/0",
        "stage": "lowering",
        "type": "RuntimeError",
        "message": "not enough memory",
    }
    found = findings(tmp_path, *COMPILED, error, uncaught(stack=STACK), FAILED, stack=CALLING)
    assert [finding.rule for finding in found] == ["program_failed", "compile_error"]
    assert found[0].title == snapshot


def test_a_thread_is_named_and_the_program_may_still_end_well(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    event = uncaught(type="KeyError", stack=STACK, thread="loader")
    (found,) = findings(tmp_path, *COMPILED, event, {**FAILED, "exit_code": 0}, stack=MAIN)
    assert found.title == snapshot
    shown = inductoscope("show", tmp_path / "recording")
    assert shown.stdout.startswith("inductoscope: the program ended with exit code 0")


KILLED = {"kind": "exited", "pid": 7, "exit_code": 139, "signal": 11, "seconds": 2.0}
STOPPED = {"kind": "exited", "pid": 7, "exit_code": 130, "signal": 2, "seconds": 2.0}


@pytest.mark.parametrize(
    ("ended", "headline"),
    [
        (KILLED, "the program was killed by SIGSEGV, outside the compiler"),
        (STOPPED, "the program was stopped by SIGINT, outside the compiler"),
        ({**FAILED, "exit_code": 3}, "the program"),  # … ended with exit code 3
    ],
)
def test_a_thread_is_not_why_the_program_ended(
    tmp_path: Path, ended: dict[str, Any], headline: str
) -> None:
    event = uncaught(type="KeyError", stack=STACK, thread="loader")
    said = first_line(tmp_path, *COMPILED, event, ended, stack=MAIN)
    assert said == f"inductoscope: {headline}"
    found = [one.title for one in diagnose(load(tmp_path / "recording")) if one.is_problem]
    assert "Thread loader of the program failed with KeyError at train.py:9" in found[-1]


def with_a_child(folder: Path, ended: dict[str, Any], stack: str, *argv: str) -> str:
    """Output for a program whose child, which runs `argv`, left an exception uncaught."""
    found = write_recording(
        folder / "recording", LAUNCHED, ended, payloads={**PAYLOADS, STACK: stack}
    )
    child = {**PROCESS, "pid": 21, "parent": 7, "argv": ["python", *argv]}
    events = enumerate((child, TORCH, uncaught(type="ValueError", stack=STACK)))
    lines = [json.dumps({"n": n, "t": 3.0, **event}) for n, event in events]
    (found / "streams" / "21-2.jsonl").write_text("\n".join(lines) + "\n")
    return inductoscope("show", found).words


@pytest.mark.parametrize(
    ("argv", "file", "headline"),
    [
        (("/home/me/child.py",), "/home/me/child.py", "(child.py) failed with {} at child.py:6"),
        (("-c", "import torch"), "<string>", "(python -c) failed with {} at <string>:6"),
        (("-um", "package.child"), "/me/child.py", "(-m package.child) failed with {} at child.py"),
    ],
)
def test_a_child_that_fails_is_named_with_its_line(
    tmp_path: Path, argv: tuple[str, ...], file: str, headline: str
) -> None:
    said = with_a_child(tmp_path, FAILED, f'  File "{file}", line 6, in <module>\n', *argv)
    assert said.startswith(f"inductoscope: process 21 {headline.format('ValueError')}")


def test_a_signal_leads_over_a_child_that_the_program_survived(tmp_path: Path) -> None:
    said = with_a_child(tmp_path, KILLED, MAIN, "/home/me/child.py")
    assert said.startswith("inductoscope: the program was killed by SIGSEGV")
    assert "problem: Process 21 (child.py) failed with ValueError at train.py:9" in said


def test_what_an_interactive_tool_printed_did_not_end_the_program(tmp_path: Path) -> None:
    ended = {**FAILED, "exit_code": 0}
    assert findings(tmp_path, *COMPILED, uncaught(stack=STACK), ended, stack=MAIN) == []


@pytest.mark.parametrize("code", [1, 3])
def test_an_exit_code_of_its_own_is_told_and_is_not_called_clean(tmp_path: Path, code: int) -> None:
    said = first_line(tmp_path, *COMPILED, {"kind": "process-end"}, {**FAILED, "exit_code": code})
    assert said == "inductoscope: the program"  # … ended with exit code
    shown = inductoscope("show", tmp_path / "recording")
    assert (
        f"The program ended with exit code {code}; no uncaught exception is recorded" in shown.words
    )
    assert "no problem found" not in shown.words


def test_a_timer_is_a_limit_and_no_kernels_fault(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    ended = {"kind": "exited", "pid": 7, "exit_code": 142, "signal": 14, "seconds": 2.0}
    done = {"kind": "inductor-end", "compile": "0/0", "graph": "0/0 inference"}
    (found,) = findings(tmp_path, *COMPILED, done, ended)
    assert found.title == snapshot
    assert "kernel" not in found.advice
    assert "signal.alarm" in found.evidence[1]


def test_aotinductor_is_a_compile_with_a_name_that_finishes(tmp_path: Path) -> None:
    start = {**COMPILE, "compile": "aoti/0", "function": "Model", "flow": "AOTInductor"}
    end = {**END, "compile": "aoti/0"}
    findings(tmp_path, LAUNCHED, PROCESS, TORCH, start, end, {**FAILED, "exit_code": 0})
    shown = inductoscope("show", tmp_path / "recording").stdout
    assert "compile aoti/0: Model (AOTInductor) — compiled" in shown


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        ({"message": "Tried to instantiate dummy base class Event"}, "Event"),
        ({"type": "DataDependentOutputException", "message": "item"}, "the value of a tensor"),
    ],
)
def test_what_a_pretended_gpu_cannot_do_is_not_put_down_to_the_program(
    tmp_path: Path, error: dict[str, str], asked: str
) -> None:
    events = (*COMPILED, uncaught(**error, stack=STACK), FAILED)
    payloads = {**PAYLOADS, STACK: MAIN}
    folder = write_recording(
        tmp_path / "recording", *events, payloads=payloads, manifest={"target": "cuda:90"}
    )
    (found,) = diagnose(load(folder))
    assert not found.is_problem
    assert found.title.startswith("The program reached a limit of the pretended GPU:")
    assert f"it asked for {asked}," in found.advice


def test_the_rank_that_failed_first_leads(tmp_path: Path) -> None:
    """Rank 0 fails only because rank 1, which it waits for, is gone."""
    folder = write_recording(tmp_path / "recording", LAUNCHED, FAILED)
    for rank, error, seconds in ((0, "RuntimeError", 5.0), (1, "ValueError", 3.0)):
        process = {**PROCESS, "pid": 20 + rank, "rank": str(rank)}
        events = (process, TORCH, uncaught(type=error))
        lines = [json.dumps({"n": n, "t": seconds, **event}) for n, event in enumerate(events)]
        (folder / "streams" / f"{20 + rank}-2.jsonl").write_text("\n".join(lines) + "\n")
    titles = [found.title for found in diagnose(load(folder)) if found.rule == "program_failed"]
    assert [title.split(",")[0][:26] for title in titles] == [
        "Rank 1 failed with ValueEr",
        "Rank 0 failed with Runtime",
    ]
