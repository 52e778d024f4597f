"""How make bench-aoti reads the printer, walks back from kernel to producer, and counts."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import time
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from battery.fault import Fault, Truth
from battery.trial import Outcome, make_environment, write_files
from bench.aoti.faults import FAULTS, THE_INPUT, THE_OPERATOR, PackageFault
from bench.aoti.guide import FILTER, PRINTER, Guide, GuideRun, Trail, in_place_of
from bench.aoti.printed import PrintedValue, calls_of, last_announced, reused_names, shown_calls
from bench.aoti.table import BEGIN, END, Row, markdown, put_into, read_rows, write_rows
from bench.aoti.tool import Examined, count_runs, counted, cpu_of_tree, ended_after, named_by

# A chain of three kernels; the last one reads the first one's result under another name.
WRAPPER = """
    aoti_torch_print_tensor_handle(arg0_1, "aoti_model_inputs - arg0_1");
    aoti_torch_print_tensor_handle(buf0, "before_launch - mm_out - buf0");
    aoti_torch_print_tensor_handle(arg0_1, "before_launch - mm_out - arg0_1");
    AOTI_TORCH_ERROR_CODE_CHECK(mm_out(buf0, arg0_1));
    auto buf1 = std::move(buf0);  // reuse
    aoti_torch_print_tensor_handle(buf1, "before_launch - cpp_fused_sin_0 - buf1");
    cpp_fused_sin_0((float*)(buf1.data_ptr()));
    aoti_torch_print_tensor_handle(buf2, "before_launch - mm_out - buf2");
    aoti_torch_print_tensor_handle(buf1, "before_launch - mm_out - buf1");
    AOTI_TORCH_ERROR_CODE_CHECK(mm_out(buf2, buf1));
"""
CALLS = [
    ("mm_out", ("buf0", "arg0_1")),
    ("cpp_fused_sin_0", ("buf1",)),
    ("mm_out", ("buf2", "buf1")),
]
# The values before and after each call: a buffer that is not written yet holds anything.
RIGHT = [({"buf0": 99.0, "arg0_1": 1.0}, {"buf0": 2.0, "arg0_1": 1.0}),
         ({"buf1": 2.0}, {"buf1": 3.0}),
         ({"buf2": 99.0, "buf1": 3.0}, {"buf2": 4.0, "buf1": 3.0})]  # fmt: skip


def printed(values: Sequence[tuple[Mapping[str, float], Mapping[str, float]]], names: str) -> str:
    """As torch prints it."""
    text = ""
    for (kernel, _), sides in zip(CALLS, values, strict=False):
        for when, tensors in zip(("before", "after"), sides, strict=True):
            for tensor, value in tensors.items() if kernel in names else ():
                text += (
                    f"[  {when}_launch - {kernel} - {tensor}  ]:\nNumber of elements: 4\n"
                    f"Dtype: float32\nMean value: {value}\nMin value: {value}\n"
                    f"Max value: {value}\nDevice: cpu\nSize: [4]\nStride: [1]\nLayout: Strided\n"
                    "Is contiguous: 1\nRequires grad: 0\n\n"
                )
    return text


def test_calls_are_read_from_the_wrapper() -> None:
    assert [(call.kernel, call.tensors) for call in calls_of(WRAPPER)] == CALLS
    assert reused_names(WRAPPER) == {"buf1": "buf0"}


def test_what_an_operator_returns_is_read_from_its_call() -> None:
    text = """
    aoti_torch_print_tensor_handle(buf1, "before_launch - at::_ops::sort::call - buf1");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_sort(buf1, 0L, &buf3_handle, &buf4_handle));
    aoti_torch_print_tensor_handle(buf1, "after_launch - at::_ops::sort::call - buf1");
    """
    (call,) = calls_of(text)
    assert call.returned == ("buf3", "buf4")


def test_values_are_read_call_by_call() -> None:
    shown = shown_calls(printed(RIGHT, "mm_out cpp_fused_sin_0"))
    assert [call.kernel for call in shown] == [kernel for kernel, _ in CALLS]
    assert shown[1].before["buf1"].is_like(shown[0].after["buf0"])
    assert not shown[1].after["buf1"].is_like(shown[0].after["buf0"])
    assert len(shown_calls(printed(RIGHT, "mm_out"))) == 2


def test_a_build_that_counts_and_orders_its_buffers_otherwise() -> None:
    right = {"buf0": PrintedValue("[6, 10]", ("1",)), "buf1": PrintedValue("[6]", ("2",))}
    given = {"buf2": PrintedValue("[6]", ("7",)), "buf0": PrintedValue("[6, 10]", ("1",))}
    found = in_place_of(right, given)
    assert found["buf0"].is_like(right["buf0"])
    assert not found["buf1"].is_like(right["buf1"])


def test_the_last_kernel_is_the_one_that_did_not_come_back() -> None:
    one, two = "[ before_launch: a ]\n[ after_launch: a ]\n", "[ before_launch: b ]\n"
    assert last_announced(one + two) == 1
    assert last_announced(one) is None
    assert last_announced("nothing") is None


class ByHand(Guide):
    """Follows the guide with runs that print what the test says."""

    def __init__(self, values: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> None:
        fault = Fault("a fault", "", Truth("wrong-result", "codegen"))
        super().__init__(PackageFault(fault, "sin"), Path(), Path(), 1.0)
        self.values = values

    def _flagged(
        self, fault: Fault, folder: Path, arguments: Sequence[str], flags: Mapping[str, str]
    ) -> Outcome:
        names = flags.get(FILTER, "") if flags.get(PRINTER) == "2" else ""
        return Outcome(0, printed(self.values, names), 1.0)

    def _expected(self) -> object:  # type: ignore[override]
        from bench.aoti.guide import Expected

        shown = shown_calls(printed(RIGHT, "mm_out cpp_fused_sin_0"))
        return Expected(calls_of(WRAPPER), shown, reused_names(WRAPPER))

    def _in_eager(self) -> None:
        self.runs.append(GuideRun("eager, by hand", 1.0, 1.0))


def test_the_guide_walks_back_to_the_producer_of_a_bad_input() -> None:
    values = [RIGHT[0], ({"buf1": 2.0}, {"buf1": 7.0}), ({"buf2": 0.0, "buf1": 7.0}, {"buf2": 8.0})]
    trail = ByHand(values).follow()
    assert trail.named == "cpp_fused_sin_0"
    assert [run.step for run in trail.runs] == [
        "sanity", "last kernel", "eager, by hand", "values of mm_out",
        "values of cpp_fused_sin_0",
    ]  # fmt: skip


def test_what_was_printed_once_is_not_printed_again() -> None:
    """The first and the last call have the same kernel, which the filter cannot tell apart."""
    values = [({"buf0": 99.0, "arg0_1": 1.0}, {"buf0": 9.0, "arg0_1": 1.0}),
              ({"buf1": 9.0}, {"buf1": 7.0}),
              ({"buf2": 0.0, "buf1": 7.0}, {"buf2": 8.0, "buf1": 7.0})]  # fmt: skip
    trail = ByHand(values).follow()
    assert trail.named == "mm_out"
    assert len(trail.runs) == 5


def test_the_guide_ends_nowhere_where_a_value_was_overwritten() -> None:
    """It was right when sin returned; the guide has no further step."""
    values = [*RIGHT[:2], ({"buf2": 0.0, "buf1": 7.0}, {"buf2": 8.0})]
    trail = ByHand(values).follow()
    assert trail.named == ""
    assert trail.said == "inputs and results of cpp_fused_sin_0 are as expected"


def test_what_a_verdict_names() -> None:
    assert named_by({"culprit": {"kernel": "cpp_fused_sin_0"}, "stage": "codegen"}) == (
        "cpp_fused_sin_0"
    )
    broken = {"stage": "user", "summary": "input 0 (x): stride 0 is 1; the package accepts 16"}
    assert named_by(broken) == THE_INPUT
    assert named_by({"stage": "user", "summary": "A custom operator lies"}) == THE_OPERATOR
    assert named_by({}) == ""


def test_runs_of_the_program_are_counted_and_nothing_else(tmp_path: Path) -> None:
    noted = tmp_path / "runs.txt"
    fault = counted(Fault("", "print(1)", Truth("clean", "none")), noted)
    write_files(fault, tmp_path)
    environment = make_environment(fault, tmp_path, tmp_path)
    for arguments in (["script.py"], ["-c", "pass"], ["-m", "this", "script.py"], ["script.py"]):
        subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    assert count_runs(noted) == 2


def test_processor_time_of_this_process_is_known() -> None:
    assert 0.0 < cpu_of_tree(os.getpid()) < 1e5


@pytest.mark.parametrize("ignores", ["", "signal.signal(signal.SIGINT, signal.SIG_IGN); "])
def test_whoever_reads_what_the_tool_says_waits_no_longer_than_the_limit(ignores: str) -> None:
    text = f"import signal, time; {ignores}print(1, flush=True); time.sleep(60)"
    started = time.monotonic()
    with (
        subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child,
        ended_after(child, 1.0, grace=0.5),
    ):
        assert child.stdout is not None
        list(child.stdout)
    assert time.monotonic() - started < 30.0
    assert child.returncode != 0


def row(fault: str = "a fault", **tool: object) -> Row:
    trail = Trail(tuple(GuideRun(str(n), 10.0, 8.0) for n in range(6)), "cpp_a", "so it is", 3, 4)
    examined = replace(Examined(1, 2, 30.0, 25.0, "cpp_b", "so it is"), **tool)  # type: ignore
    return Row(fault, trail, examined, guide_is_right=False, tool_is_right=True)


def test_the_table_says_who_is_wrong_and_where_the_tool_takes_longer() -> None:
    text = markdown([row(), row("slow", cpu_seconds=99.0, executions=4)])
    assert "| a fault | 6, 60 (48) | `cpp_a`, **wrong** | 1 + 2, 30 (25) | `cpp_b` |" in text
    assert (
        "12 times by hand and 5 times under the tool (42%); the tool also compiles 4 cand" in text
    )
    assert "needs 8 runs by hand, of which 5 are 62%." in text
    assert "is missed in all against the guide" in text
    assert "Fault by fault, it is missed for: slow." in text
    assert "The tool takes longer, in processor time, for: slow." in text


def test_what_was_measured_is_kept_and_put_into_the_document(tmp_path: Path) -> None:
    write_rows([row()], tmp_path / "rows.json")
    assert read_rows(tmp_path / "rows.json") == [row()]
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_into(document, "new")
    assert document.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"


def words_beside_the_code(script: str) -> str:
    """The title, the comments and the names of a program's files: what no kernel is made from."""
    comments = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(script).readline)
        if token.type == tokenize.COMMENT
    ]
    texts = [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    files = re.findall(r'"(\w+\.pt2?)"', script)
    return "\n".join([*texts, *comments, *files])


def test_a_culprit_that_is_given_away_would_be_seen() -> None:
    script = '"""A flip."""\nx = torch.tanh(y)  # log1p\nsave("argmax.pt2")\n'
    assert words_beside_the_code(script) == "A flip.\n# log1p\nargmax.pt2"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_program_does_not_give_its_culprit_away(fault: PackageFault) -> None:
    compile(fault.fault.script, "script.py", "exec")
    if fault.fault.plant:
        compile(fault.fault.plant, "sitecustomize.py", "exec")
    said = words_beside_the_code(fault.fault.script)
    assert "model.pt2" in said
    assert not re.search(fault.guilty, said, re.IGNORECASE)
