"""`inductoscope logs` on logs of real programs, and on input that is none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.hangs.logs.answers import Kind
from support.examples import inductoscope
from support.logged import CLEAN, HANG, RECORDED, LogText, content, only_answer


def test_a_hang_names_the_kernels_and_what_sets_them_apart() -> None:
    answer = inductoscope("logs", HANG)
    assert answer.exit_code == 1
    assert "8 of 20 kernels of mm never finished compiling" in answer.stdout
    assert "num_warps=8: 8 of 8 stuck, 0 of 12 finished" in answer.stdout
    assert "in wait_on_futures" in answer.stdout
    rows = [line.split()[0] for line in answer.stdout.splitlines() if line.endswith((" 5", " 3"))]
    assert "czpa26ylrwz2….py" in rows


def test_the_data_holds_everything() -> None:
    data = inductoscope("logs", HANG, "--json", "-").data
    (answer,) = data["answers"]
    (group,) = answer["groups"]
    assert (data["verdict"], answer["confidence"]) == ("kernel compile hang", "proven")
    assert group["counts"]["submitted"] == 20
    assert {choice["configuration"]["num_warps"] for choice in group["stuck"]} == {8}
    assert all(choice["name"].startswith("/tmp/torchinductor_user/") for choice in group["stuck"])
    assert len(group["missing_files"]) == 8
    assert [condition["text"] for condition in group["conditions"]] == ["num_warps=8"]


def test_the_same_program_without_the_hang_is_clean() -> None:
    answer = inductoscope("logs", CLEAN)
    assert answer.exit_code == 0
    assert answer.stdout.startswith("clean: ")


def test_choices_in_worker_processes_are_found_too() -> None:
    """Recorded on an H200 once its pool of compile workers was ready."""
    found = inductoscope("logs", RECORDED / "h200_pool_hang.log.gz", "--json", "-").data
    (answer,) = [answer for answer in found["answers"] if answer["problem"]]
    (group,) = answer["groups"]
    assert {state["where"] for state in group["stuck"]} == {"worker process"}
    assert {state["configuration"]["num_warps"] for state in group["stuck"]} == {8}
    assert group["conditions"][0]["text"] == "num_warps=8"
    assert (group["counts"]["stuck"], group["counts"]["finished"]) == (8, 12)


def test_a_trace_says_the_phase(snapshot: SnapshotAssertion) -> None:
    hang = inductoscope("logs", RECORDED / "h200_autotune_hang.trace.log.gz")
    assert hang.exit_code == 1
    assert hang.words == snapshot
    clean = inductoscope("logs", RECORDED / "h200_autotune_ok.trace.log.gz")
    assert clean.exit_code == 0
    assert clean.words == snapshot


def test_output_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = inductoscope("logs", HANG).stdout.splitlines()
    # Kept in one piece, to be copied.
    commands = ("scp ", "inductoscope kernel ", "TORCHINDUCTOR_")
    assert max(len(line) for line in lines if not line.strip().startswith(commands)) <= 80


# --- real stalls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "stage"),
    [
        ("stall_in_dynamo.log", Kind.DYNAMO, "dynamo"),
        ("stall_in_dynamo.trace.log", Kind.DYNAMO, "dynamo"),
        ("stall_in_aot.log", Kind.AOT, "aot"),
        ("stall_in_aot.trace.log", Kind.AOT, "aot"),
        ("stall_in_lowering.log", Kind.INDUCTOR, "lowering"),
        ("stall_in_lowering.trace.log", Kind.INDUCTOR, "lowering"),
        ("stall_in_compiler.log", Kind.KERNELS, "cpp-compile"),
        ("stall_in_compiler.trace.log", Kind.KERNELS, "cpp-compile"),
        ("stall_at_run_time.log", Kind.RUN_TIME, "runtime"),
        ("error_in_lowering.log", Kind.ERROR, "lowering"),
        ("error_in_lowering.trace.log", Kind.ERROR, "none"),
        ("stall_in_one_of_two_groups.log", Kind.COMPILE_HANG, "autotune"),
        ("stall_in_one_of_two_groups.trace.log", Kind.COMPILE_HANG, "autotune"),
    ],
)
def test_each_stall_is_told_apart(name: str, kind: Kind, stage: str) -> None:
    answer = only_answer(RECORDED / f"{name}.gz")
    assert (answer.kind, answer.stage) == (kind, stage)
    assert answer.is_problem
    assert answer.evidence


def test_the_lines_that_show_a_stall_in_lowering(snapshot: SnapshotAssertion) -> None:
    answer = only_answer(RECORDED / "stall_in_lowering.log.gz")
    assert answer.evidence[0].text == snapshot
    assert answer.evidence[-1].text.startswith("lowering %cos")
    number = int(answer.evidence[-1].place.rpartition(":")[2])
    lines = content(RECORDED / "stall_in_lowering.log.gz").split(b"\n")
    assert b"lowering %cos" in lines[number - 1]


def test_only_the_group_that_is_awaited_is_stuck() -> None:
    answer = only_answer(RECORDED / "stall_in_one_of_two_groups.log.gz")
    (group,) = answer.groups
    assert (group.operation, group.shapes) == ("mm", "['64x64', '64x64']")
    (stuck,) = group.stuck
    assert stuck.choice.configuration["num_warps"] == 2
    assert len(group.finished) == 15


def test_a_trace_of_a_finished_compile_says_nothing_of_the_run() -> None:
    answer = only_answer(RECORDED / "stall_at_run_time.trace.log.gz")
    assert answer.kind is Kind.CLEAN
    assert "does not show how the compiled code ran" in answer.notes[0]


def test_a_function_that_dynamo_leaves_to_eager_is_no_failure() -> None:
    """The first attempt to trace it began phases that the second one ended."""
    answer = only_answer(RECORDED / "graph_breaks.trace.log.gz")
    assert answer.kind is Kind.CLEAN
    assert "torch_dynamo_resume_in_train_at_6 (/home/user/train.py:6)" in answer.notes[0]


def test_with_fullgraph_it_is_a_failure() -> None:
    answer = only_answer(RECORDED / "break_in_fullgraph.trace.log.gz")
    assert (answer.kind, answer.confidence) == (Kind.ERROR, "likely")
    assert answer.title.endswith("Unsupported")


# --- no log ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 5000,
        bytes(range(256)) * 100,
        b"INFO nginx started\nERROR upstream timed out\n" * 50,
    ],
    ids=["empty", "zeros", "binary", "another tool"],
)
def test_a_file_with_no_line_of_torch_is_refused(
    tmp_path: Path, data: bytes, snapshot: SnapshotAssertion
) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(data)
    answer = inductoscope("logs", path)
    assert answer.exit_code == 2
    assert answer.words == snapshot


def test_a_path_that_does_not_exist_and_an_empty_folder_are_refused(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    assert inductoscope("logs", tmp_path / "none.txt").exit_code == 2
    assert inductoscope("logs", tmp_path).words == snapshot


def test_seconds_without_follow_is_refused() -> None:
    assert "Add --follow" in inductoscope("logs", CLEAN, "--seconds", "1").words


# --- other ways in --------------------------------------------------------------------------------


def test_standard_input() -> None:
    code = "from inductoscope.cli.commands.logs import command; command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "-"],
        input=content(HANG),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert b"num_warps=8: 8 of 8 stuck" in done.stdout


def test_a_log_that_still_grows_is_read_when_it_stops(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    path = tmp_path / "log.txt"
    log = LogText().group("a4", "b8")
    log.write(path)

    def write() -> None:
        with open(path, "ab") as file:
            file.write(LogText().wait().finish("a4").bytes)

    timer = threading.Timer(0.3, write)
    timer.start()
    answer = inductoscope("logs", path, "--follow", "--seconds", "1.5")
    timer.join()
    assert answer.exit_code == 1
    assert answer.words == snapshot


def test_it_needs_no_torch() -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['logs', {os.fspath(HANG)!r}]\n"
        "from inductoscope.cli.commands.logs import command\n"
        "try: command()\n"
        "except SystemExit: pass\n"
        "print(*({'torch', 'triton', 'numpy'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
