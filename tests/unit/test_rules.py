"""Each rule on a recording that it speaks up about, and on one that it has nothing to say about."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.rules import diagnose
from inductoscope.analysis.rules.dynamo import RECOMPILE_LIMIT
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.fold import load
from inductoscope.recording.location import this_machine
from inductoscope.torch_facts.guard_reasons import read_guard
from inductoscope.views.report.summary import print_findings
from inductoscope.views.report.terminal import Printer
from support.examples import inductoscope, stored, write_recording
from support.kept_recordings import NOBODY, rename_stream

PROCESS = {"kind": "process", "pid": 7}
TORCH = {"kind": "torch", "version": "2.13.0"}
COMPILE = {
    "kind": "compile-start",
    "compile": "0/0",
    "function": "forward",
    "file": "/model.py",
    "line": 12,
}
END = {"kind": "compile-end", "compile": "0/0", "outcome": "compiled", "seconds": 1.0}
PROCESS_END = {"kind": "process-end", "dropped": 0}
STILL_RUNNING = "the program is still running"
EXITED = {"kind": "exited", "exit_code": 0, "seconds": 2.0}
Find = Callable[..., list[Finding]]

HEALTHY = (PROCESS, TORCH, COMPILE, END, PROCESS_END, EXITED)


@pytest.fixture
def findings(tmp_path: Path) -> Find:
    """Findings in a recording of these events."""

    def find(*events: dict[str, Any], rule: str = "", **more: Any) -> list[Finding]:
        folder = write_recording(
            tmp_path / f"recording {len(list(tmp_path.iterdir()))}", *events, **more
        )
        return [finding for finding in diagnose(load(folder)) if rule in ("", finding.rule)]

    return find


# --- all of them ----------------------------------------------------------------------------------


def test_a_healthy_process_gives_no_finding_at_all(findings: Find) -> None:
    assert findings(*HEALTHY) == []


@pytest.mark.parametrize("name", ["relu_add_sum", "training_step"])
def test_healthy_scripts_give_no_finding_at_all(name: str) -> None:
    assert diagnose(load(stored(name))) == []
    shown = inductoscope("show", stored(name))
    assert shown.exit_code == 0
    assert "no problem found" in shown.stdout


def test_problems_come_before_notes(findings: Find) -> None:
    hit = {"kind": "cache", "compile": "0/0", "cache": "FX graph", "outcome": "hit"}
    broken = {"kind": "graph-break", "compile": "0/0", "reason": "print", "source": "/model.py:3"}
    found = findings(PROCESS, TORCH, COMPILE, hit, broken, {"kind": "hologram"})
    assert [finding.is_problem for finding in found] == [True, False, False]


def test_every_finding_is_named_after_its_rule() -> None:
    stories = ("graph_breaks", "recompiles", "refused_by_compiler", "killed_while_lowering")
    found = {
        finding.rule for name in (*stories, "cache_hit") for finding in diagnose(load(stored(name)))
    }
    assert found == {"graph_breaks", "recompiles", "compile_error", "crash", "cache_hits"}


# --- compile_error --------------------------------------------------------------------------------

ERROR = {
    "kind": "error",
    "compile": "0/0",
    "stage": "lowering",
    "detail": "bmm",
    "type": "LoweringException",
    "message": "AssertionError: batch sizes differ",
    "cause": ["LoweringException: ...", "AssertionError: batch sizes differ\nlong tail"],
    "raised_in": ["tuned_bmm (torch/_inductor/kernel/bmm.py:90)", "run_node", "run", "compile_fx"],
}


def test_an_exception_that_left_the_compiler(findings: Find, snapshot: SnapshotAssertion) -> None:
    (found,) = findings(PROCESS, TORCH, COMPILE, ERROR)
    assert found.title == snapshot
    assert (found.rule, found.is_problem, found.confidence) == ("compile_error", True, "proven")
    assert (found.stage, found.source, found.compile) == ("lowering", "/model.py:12", "0/0")
    assert found.evidence == snapshot
    assert found.advice == snapshot


def test_an_exception_that_dynamo_swallowed_is_no_compile_error(findings: Find) -> None:
    swallowed = {"kind": "eager-fallback", "compile": "0/0"}
    assert findings(PROCESS, TORCH, COMPILE, ERROR, swallowed, rule="compile_error") == []


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("module 'torch._C' has no attribute '_cuda_getDeviceUuid'", "_cuda_getDeviceUuid"),
        ("'PretendedProperties' object has no attribute 'pci_bus_id'", "pci_bus_id"),
        ("Tried to instantiate dummy base class CUDAGraph", "CUDAGraph"),
        ("Could not run 'aten::empty' with arguments from the 'CUDA' backend.", "aten::empty"),
    ],
)
def test_what_only_a_real_gpu_has_is_a_limit_of_the_target(
    findings: Find,
    message: str,
    asked: str,
    snapshot: SnapshotAssertion,
) -> None:
    error = {**ERROR, "type": "InductorError", "message": f"AttributeError: {message}"}
    (limit,) = findings(PROCESS, COMPILE, error, manifest={"target": "cuda:90"})
    assert not limit.is_problem
    assert f"torch asked for {asked}," in limit.title
    assert limit.title == snapshot
    # On a machine that the program really ran on, it is the program's problem.
    (problem,) = findings(PROCESS, COMPILE, error)
    assert problem.is_problem


def test_an_exception_of_dynamo_says_what_fullgraph_has_to_do_with_it(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    (found,) = findings(PROCESS, TORCH, COMPILE, {**ERROR, "stage": "dynamo"})
    assert found.advice == snapshot


def test_an_exception_of_an_unknown_stage_and_frame_is_still_told(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    (found,) = findings({"kind": "error", "stage": "hologram"}, rule="compile_error")
    assert found.title.startswith("The compile of a frame failed in stage hologram")
    assert found.source == ""
    assert found.advice == snapshot


def test_a_kernel_that_the_compiler_refused_quotes_the_compiler(
    snapshot: SnapshotAssertion,
) -> None:
    (found,) = diagnose(load(stored("refused_by_compiler")))
    assert found.title == snapshot
    assert found.advice == snapshot


def test_what_the_compiler_refused_while_torch_tried_it_out_is_not_quoted(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    tried, real = (
        {"kind": "native", "tool": "c++", "source": name, "exit_code": 1, "messages": digest}
        for name, digest in (("probe.cpp", "a" * 32), ("kernel.cpp", "b" * 32))
    )
    (found,) = findings(
        *(PROCESS, TORCH, COMPILE, tried, real, {**ERROR, "stage": "cpp-compile"}),
        payloads={"a" * 32: "error: no amx", "b" * 32: "In kernel.cpp:\nerror: no such type"},
    )
    assert found.title == snapshot


# --- crash ----------------------------------------------------------------------------------------

LOWERING = {"kind": "stage-start", "stage": "lowering", "compile": "0/0"}


def ended_by(signal: int) -> dict[str, Any]:
    return {"kind": "exited", "exit_code": 128 + signal, "signal": signal, "seconds": 3.0}


def test_a_kill_inside_the_compiler_names_the_stage(snapshot: SnapshotAssertion) -> None:
    (found,) = diagnose(load(stored("killed_while_lowering")))
    assert found.title == snapshot
    assert found.evidence == snapshot
    assert found.advice == snapshot
    assert (found.is_problem, found.stage) == (True, "lowering")


def test_a_crash_after_compiling_suspects_a_kernel(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    finished = {"kind": "inductor-end", "compile": "0/0", "graph": "0/0 forward"}
    (found,) = findings(PROCESS, TORCH, COMPILE, finished, END, ended_by(11))
    assert found.title == snapshot
    assert found.stage == "runtime"
    assert found.advice == snapshot


def test_a_crash_with_nothing_compiled_points_elsewhere(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    (found,) = findings(PROCESS, TORCH, ended_by(11), rule="crash")
    assert found.advice == snapshot


def test_a_native_compiler_that_was_still_running_is_named(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    started = {"kind": "native-start", "tool": "c++", "source": "/cache/k.cpp"}
    (found,) = findings(PROCESS, TORCH, COMPILE, LOWERING, started, ended_by(6))
    assert found.evidence == snapshot


@pytest.mark.parametrize("signal", [2, 15])
def test_a_program_that_was_asked_to_end_is_no_problem(findings: Find, signal: int) -> None:
    (found,) = findings(PROCESS, TORCH, COMPILE, END, ended_by(signal))
    assert (found.rule, found.is_problem) == ("crash", False)


def test_a_rank_that_vanished_inside_the_compiler(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    (found,) = findings({**PROCESS, "rank": "3"}, TORCH, COMPILE, LOWERING, EXITED)
    assert found.title == snapshot
    assert found.confidence == "likely"


def test_a_program_that_still_compiles_has_not_crashed(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    (found,) = findings(PROCESS, TORCH, COMPILE, LOWERING)
    assert found.title == snapshot
    assert (found.is_problem, found.confidence) == (False, "unknown")


def test_a_signal_without_a_name_is_told_by_its_number(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    (found,) = findings(PROCESS, TORCH, COMPILE, END, ended_by(4000))
    assert found.title == snapshot


# --- graph_breaks ---------------------------------------------------------------------------------

BREAK = {
    "kind": "graph-break",
    "compile": "0/0",
    "source": "/model.py:14",
    "reason": "Unsupported\n  Explanation: it prints.\n  Hint: Do not print.\n  Hint: Or log.",
}


def test_a_break_names_the_line_the_reason_and_the_hint(snapshot: SnapshotAssertion) -> None:
    printed, branched = diagnose(load(stored("graph_breaks")))
    assert printed.source == "/scripts/graph_breaks/script.py:8"
    assert "builtin operator `print`" in printed.title
    assert printed.advice == snapshot
    assert branched.source == "/scripts/graph_breaks/script.py:9"
    assert "data-dependent branching" in branched.title


def test_a_line_that_broke_often_is_told_once(findings: Find, snapshot: SnapshotAssertion) -> None:
    again = {**BREAK, "compile": "0/1"}
    (found,) = findings(PROCESS, TORCH, COMPILE, BREAK, BREAK, again)
    assert found.title == snapshot
    assert found.advice.startswith("Do not print. ")
    assert found.evidence == ("reported by Dynamo in compile 0/0, 0/1",)


def test_a_break_shows_the_line_and_how_the_program_got_there(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    stack = ["/home/me/gpt2.py:12", "/venv/modeling_gpt2.py:702"]
    broken = {**BREAK, "stack": stack, "code": "if mask.any():"}
    inner = {**broken, "compile": "0/1", "stack": stack[1:], "reason": BREAK["reason"] + " Again."}
    (found,) = findings(PROCESS, TORCH, COMPILE, inner, broken)
    assert (found.code, found.stack) == ("if mask.any():", tuple(stack))
    page = io.StringIO()
    print_findings(Printer(page), [asdict(found)])
    words = " ".join(page.getvalue().split())
    assert words == snapshot


# --- ran_in_eager ---------------------------------------------------------------------------------

IN_LOOP = "\ngraph break in loop\n  Explanation: torch.compile detected a graph break in a loop."


def test_a_function_that_breaks_inside_a_loop_ran_in_eager(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    swallowed = {"kind": "eager-fallback", "compile": "0/0"}
    broken = {**BREAK, "reason": BREAK["reason"] + IN_LOOP}
    (found,) = findings(PROCESS, TORCH, COMPILE, broken, ERROR, swallowed)
    assert found.rule == "ran_in_eager"
    assert found.title == snapshot
    assert found.advice.startswith("Do not print. Or compile the body of the loop instead")


def test_the_summary_leads_with_a_function_that_ran_in_eager(tmp_path: Path) -> None:
    swallowed = {"kind": "eager-fallback", "compile": "0/0"}
    folder = write_recording(tmp_path / "r", PROCESS, TORCH, COMPILE, ERROR, swallowed, EXITED)
    shown = inductoscope("show", folder).words
    assert shown.startswith("inductoscope: your function forward ran in eager, because Dynamo gave")


def test_a_function_that_fell_back_without_a_break_ran_in_eager(findings: Find) -> None:
    swallowed = {"kind": "eager-fallback", "compile": "0/0"}
    (found,) = findings(PROCESS, TORCH, COMPILE, ERROR, swallowed)
    assert (found.rule, found.source) == ("ran_in_eager", "/model.py:12")


def test_a_break_without_a_reason_is_still_told(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    (found,) = findings(PROCESS, TORCH, COMPILE, {**BREAK, "reason": ""})
    assert found.title == snapshot


# --- recompiles -----------------------------------------------------------------------------------


def recompiled(times: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for number in range(times + 1):
        events.append({**COMPILE, "compile": f"0/{number}"})
        if number:
            reason = f"0/{number - 1}: size of x == {number}  # return x + 1"
            events.append({"kind": "recompile", "compile": f"0/{number}", "reasons": [reason]})
    return events


def test_a_frame_at_torchs_limit_names_the_guards(snapshot: SnapshotAssertion) -> None:
    (found,) = diagnose(load(stored("recompiles")))
    assert found.title == snapshot
    assert found.evidence == (
        "guard that failed 8 times: name == 'call 0', 'call 1', 'call 2', 'call 3', …",
    )
    assert found.source == "/scripts/recompiles/script.py:7"
    assert found.code == snapshot
    assert found.advice.startswith("name changes from call to call, and torch compiles once for")


def test_recompiles_are_a_problem_from_the_limit_on(findings: Find) -> None:
    assert findings(PROCESS, TORCH, *recompiled(RECOMPILE_LIMIT - 1)) == []
    (found,) = findings(PROCESS, TORCH, *recompiled(RECOMPILE_LIMIT))
    assert found.title == f"forward was recompiled {RECOMPILE_LIMIT} times"
    assert "mark_dynamic" in found.advice


def test_ranks_that_recompile_the_same_are_one_finding(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "recording", PROCESS, TORCH, *recompiled(RECOMPILE_LIMIT))
    (folder / "streams" / "2-2.jsonl").write_text((folder / "streams" / "1-1.jsonl").read_text())
    (found,) = diagnose(load(folder))
    assert found.title == f"forward was recompiled {RECOMPILE_LIMIT} times in each of 2 processes"


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("0/0: tensor 'x' size mismatch at index 1. expected 4, actual 5", "mark_dynamic(x, 1)"),
        (
            "0/0: L['k'] == 0.5     # return x * k  # m.py:3 in f",
            "k changes from call to call",
        ),
        ("0/0: ___check_obj_id(L['self'], 94)", "Keep anything else out of the compiled function"),
    ],
)
def test_a_guard_says_what_to_change(reason: str, advice: str) -> None:
    assert advice in read_guard(reason).what_to_change


# --- incomplete_recording -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "title"),
    [
        (
            {"kind": "stopped", "reason": "No space left on device"},
            "Process 7 stopped recording: No space left on device. The program continued.",
        ),
        ({"kind": "process-end", "dropped": 3}, "Process 7 could not write 3 events"),
        (
            {"kind": "hook-error", "hook": "fusion.pairs", "error": "KeyError: 'x'"},
            "A hook of inductoscope failed and recorded nothing: fusion.pairs: KeyError: 'x'",
        ),
        ({"kind": "hologram"}, "This version does not know 1 event"),
    ],
)
def test_what_is_missing_is_told(findings: Find, event: dict[str, Any], title: str) -> None:
    (found,) = findings(PROCESS, TORCH, COMPILE, END, event)
    assert (found.rule, found.title, found.is_problem) == ("incomplete_recording", title, False)


# --- view_off, nothing_recorded, cache_hits -------------------------------------------------------


def test_a_view_that_is_off_is_told_once_for_all_processes(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    off = {"kind": "hook-off", "records": "fusion scores", "missing": ["torch.x.Scheduler.score"]}
    (found,) = findings(PROCESS, TORCH, off, off, COMPILE, END)
    assert found.title == snapshot
    assert "'inductoscope env'" in found.advice


def test_a_run_without_torch(findings: Find, snapshot: SnapshotAssertion) -> None:
    (found,) = findings(PROCESS, PROCESS_END, EXITED)
    assert found.title == snapshot
    assert found.advice == snapshot


def test_a_run_that_has_not_ended_may_yet_compile(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    (found,) = findings(PROCESS, TORCH)
    assert found.title == snapshot
    assert found.confidence == "unknown"


@pytest.fixture
def unfinished(tmp_path: Path) -> Callable[..., Path]:
    """A recording on this machine, without an end, of a process that wrote these events."""

    def write(*events: dict[str, Any], pid: int) -> Path:
        here = {"machine": this_machine()}
        folder = write_recording(tmp_path / f"by {pid}", *events, manifest=here)
        rename_stream(folder, pid)
        return folder

    return write


@pytest.mark.parametrize(
    ("pid", "title"),
    [
        (os.getpid(), "Nothing was compiled so far; the program is still running"),
        (NOBODY, "Nothing was compiled so far, and the recording has no end"),
    ],
    ids=["running", "over"],
)
def test_a_run_without_a_compile_is_over_if_its_processes_are(
    unfinished: Callable[..., Path], pid: int, title: str
) -> None:
    folder = unfinished(PROCESS, TORCH, pid=pid)
    (found,) = diagnose(load(folder))
    assert (found.title, found.is_problem) == (title, False)
    is_running = inductoscope("show", folder, "--json", "-").data["state"] == STILL_RUNNING
    assert is_running == (pid == os.getpid())


def test_a_process_that_is_compiling_right_now_has_not_vanished(
    unfinished: Callable[..., Path],
) -> None:
    (found,) = diagnose(load(unfinished(PROCESS, TORCH, COMPILE, LOWERING, pid=os.getpid())))
    assert found.title == (
        f"{STILL_RUNNING.capitalize()}: process 7 is in stage lowering of compile 0/0"
    )
    assert not found.is_problem
    (found,) = diagnose(load(unfinished(PROCESS, TORCH, COMPILE, LOWERING, pid=NOBODY)))
    assert found.title == "process 7 vanished in stage lowering of compile 0/0"
    assert found.is_problem


def test_a_run_with_torch_and_no_compile(findings: Find, snapshot: SnapshotAssertion) -> None:
    (found,) = findings(PROCESS, TORCH, PROCESS_END, EXITED)
    assert found.title == snapshot


def test_a_cache_hit_says_how_to_see_the_stages() -> None:
    (found,) = diagnose(load(stored("cache_hit")))
    assert found.title.startswith("1 compile came from a cache")
    assert found.evidence == ("1 hit in the AOTAutograd cache: compile 0/0",)
    assert "inductoscope run --fresh" in found.advice
    assert not found.is_problem


def test_compiles_with_the_same_id_are_counted_one_by_one(findings: Find) -> None:
    """torch._dynamo.reset() begins again at 0/0. A compile with a backward looks up two graphs."""
    hit = {"kind": "cache", "compile": "0/0", "cache": "FX graph", "outcome": "hit"}
    config = {**hit, "cache": "launch configuration"}
    (found,) = findings(*HEALTHY[:2], COMPILE, hit, hit, END, COMPILE, hit, END, COMPILE, config)
    assert found.title.startswith("2 compiles came from a cache")
    assert found.evidence == ("3 hits in the FX graph cache: compile 0/0",)


def test_a_cache_hit_in_a_fresh_run_points_to_the_first_compile(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    hit = {"kind": "cache", "compile": "0/0", "cache": "FX graph", "outcome": "hit"}
    (found,) = findings(PROCESS, TORCH, COMPILE, hit, END, manifest={"fresh": True})
    assert found.advice == snapshot


def test_a_block_around_functions_that_were_compiled_before(
    findings: Find, snapshot: SnapshotAssertion
) -> None:
    before = {"inside": True, "compiled_before": 2}
    (found,) = findings(PROCESS, TORCH, PROCESS_END, manifest=before)
    assert found.title == snapshot
    assert "torch._dynamo.reset()" in found.advice
