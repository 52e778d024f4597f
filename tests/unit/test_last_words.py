"""The last words of a program: not the warning of a library, and not the line that warned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.doctor.hypotheses import first_verdict
from inductoscope.doctor.symptom import fails_alike
from inductoscope.recording.location import create_recording
from inductoscope.torch_facts.messages import last_lines
from support.program_cases import COMMAND, End, leave_behind, written_case

NUMPY = (
    "/venv/torch/functional_tensor.py:368: UserWarning: Failed to initialize NumPy\n"
    '  cpu = _conversion_method_template(device=torch.device("cpu"))\n'
)


def printed_by(source: str, tmp_path: Path) -> str:
    """Everything that a program prints, warnings among it."""
    (tmp_path / "x.py").write_text(source)
    command = [sys.executable, "-u", str(tmp_path / "x.py")]
    run = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return run.stdout


def test_a_warning_and_the_line_beneath_it_are_left_out(tmp_path: Path) -> None:
    source = "import warnings\nprint('loss is nan')\nwarnings.warn('no NumPy')\n"
    output = printed_by(source, tmp_path)
    assert output.splitlines()[-1] == "  warnings.warn('no NumPy')"
    assert last_lines(output, 3) == ["loss is nan"]


def test_a_warning_of_several_lines_is_left_out(tmp_path: Path) -> None:
    source = "import warnings\nprint('loss is nan')\nwarnings.warn('no NumPy:\\ninstall it')\n"
    assert last_lines(printed_by(source, tmp_path), 3) == ["loss is nan"]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("loss is nan\n" + NUMPY, ["loss is nan"]),
        (NUMPY + "loss is nan\n", ["loss is nan"]),
        (NUMPY, []),
        ("<string>:1: DeprecationWarning: old\nloss is nan", ["loss is nan"]),
        ("step 1\n\n  detail\nstep 2\n", ["step 1", "  detail", "step 2"]),
        ("ok\n[W1116 15:00:00.123 Context.cpp:84] Warning: slow (function f)", ["ok"]),
        ("ok\nW1116 15:00:00.1 77 torch/_dynamo/convert_frame.py:9] [0/8] hit the limit", ["ok"]),
        ("1\n2\n3\n4", ["2", "3", "4"]),
        ("", []),
    ],
    ids=["last", "first", "alone", "no source", "none", "C++", "log", "many", "silent"],
)
def test_what_is_left_of_an_output(output: str, said: list[str]) -> None:
    assert last_lines(output, 3) == said


def test_a_pipe_that_a_program_names_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert last_lines(f"ok\n{tmp_path / 'pipe'}:1: UserWarning: x\n", 3) == ["ok"]


def test_a_verdict_does_not_quote_a_warning(tmp_path: Path) -> None:
    silent = End(1, NUMPY)
    verdict = first_verdict(written_case(tmp_path, silent, off=[silent], plain=[silent])[0])
    assert verdict.summary.endswith("the compiler is not to blame. It ends with exit code 1.")
    said = End(1, f"accuracy is 0.1\n{NUMPY}")
    verdict = first_verdict(written_case(tmp_path / "2", said, off=[said], plain=[said])[0])
    assert verdict.summary.endswith("exit code 1; its last line is: accuracy is 0.1")


def test_two_failures_are_not_alike_because_both_warn(tmp_path: Path) -> None:
    runs = [
        leave_behind(End(1, said + NUMPY), create_recording(COMMAND, output=tmp_path / said[:4]))
        for said in ("loss is nan\n", "no such file\n")
    ]
    assert not fails_alike(*runs)
    assert fails_alike(runs[0], leave_behind(End(1, "loss is nan"), tmp_path / "loss"))
