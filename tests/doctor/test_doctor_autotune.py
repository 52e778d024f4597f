"""Choices of autotuning that never come back, with a real Triton and a stand-in for ptxas.

No GPU is needed: see virtual_gpu.py. ptxas sleeps on every kernel of 256 threads, that is, on every
choice with num_warps=8.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from inductoscope.doctor.hypotheses.stalled import _find_filter as find_filter
from inductoscope.doctor.hypotheses.stalled import _verdict_on_stuck as verdict_on_stuck
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.runs import ProgramRun
from inductoscope.hangs.choices.analysis import analyse
from inductoscope.hangs.choices.stuck_choices import stuck_choices
from inductoscope.model.entities import Ending
from support.examples import write_recording
from support.programs import Workplace

pytestmark = pytest.mark.spread

HERE = Path(__file__).resolve().parents[1]

PROGRAM = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from support import virtual_gpu
import torch

virtual_gpu.install()
import torch._inductor.config as config

config.max_autotune_gemm_backends = "ATEN,TRITON"
config.test_configs.max_mm_configs = 4


def product(a, b):
    return torch.relu(a @ b)


with virtual_gpu.tensors():
    a, b = virtual_gpu.tensor(512, 256), virtual_gpu.tensor(256, 512)
    torch.compile(product, options={{"max_autotune": True}})(a, b)
print("done")
"""


def stand_in_for_ptxas(folder: Path) -> Path:
    triton = importlib.util.find_spec("triton")
    assert triton is not None
    assert triton.origin is not None
    real = Path(triton.origin).parent / "backends/nvidia/bin/ptxas"
    script = folder / "ptxas"
    script.write_text(
        '#!/bin/sh\nfor word in "$@"; do\n  if [ -f "$word" ] && grep -q "ntid 256" "$word"; then '
        f'sleep 100000; fi\ndone\nexec {real} "$@"\n'
    )
    script.chmod(0o755)
    return script


def test_the_configuration_is_named_proven_alone_and_left_out(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    script = stand_in_for_ptxas(workplace.folder)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(script))
    workplace.write("product.py", PROGRAM)
    found = workplace.doctor("--stall", "8", "product.py")
    verdict = found.verdict
    assert (verdict["verdict"], verdict["stage"]) == ("hang", "autotune")
    assert verdict["culprit"]["config"] == "num_warps=8"
    assert verdict["culprit"]["function"] == "ptxas"
    assert verdict["confidence"] == "proven"
    assert verdict["repro"]["verified"]
    assert verdict["workaround"]["verified"]
    assert "add_preprocessing_fn" in verdict["workaround"]["code"]
    said = found.names
    assert "TORCHINDUCTOR_AUTOTUNE_CHOICE_DESC_REGEX" in said
    assert "does the same: the program ends with it" in said
    assert "left, which finish with it" in said
    left = subprocess.run(["pgrep", "-f", str(script)], capture_output=True, text=True)
    assert left.stdout.split() == []


# --- reading what a program said ------------------------------------------------------------------


def caller(number: int, warps: int) -> str:
    return f"TritonTemplateCaller(/cache/k{number}.py, BLOCK_M=64, num_stages=3, num_warps={warps})"


def said(text: str) -> dict[str, str]:
    return {"kind": "torch-log", "text": text, "compile": "0/0"}


SUBMITTED = "Submitted precompile for choice: {}"
BEGUN = "Precompiling choice with captured stdout: {}"
FINISHED = "Precompiling benchmark choice {} took 1.50s"


def stuck_recording(folder: Path) -> Path:
    """Three choices, of which one finished, one is stuck and one waits for the only thread."""
    choices = [caller(1, 4), caller(2, 8), caller(3, 8)]
    return write_recording(
        folder,
        said("Multithreaded precompilation for 3 choices using 1 worker threads"),
        *(said(SUBMITTED.format(choice)) for choice in choices),
        said(BEGUN.format(choices[0])),
        said("Waiting on futures"),
        said(FINISHED.format(choices[0])),
        said(BEGUN.format(choices[1])),
    )


def test_a_choice_that_waits_for_a_thread_is_not_stuck(tmp_path: Path) -> None:
    found = stuck_choices(stuck_recording(tmp_path / "recording"))
    assert found is not None
    assert [choice.name for choice in found.stuck] == ["/cache/k2.py"]
    assert [choice.name for choice in found.finished] == ["/cache/k1.py"]
    assert [choice.name for choice in found.waiting] == ["/cache/k3.py"]
    assert found.longest == 1.5


def test_without_a_kernel_alone_the_verdict_is_only_likely(tmp_path: Path) -> None:
    found = stuck_choices(stuck_recording(tmp_path / "recording"))
    assert found is not None
    verdict = verdict_on_stuck(analyse(found), None, "no file of a stuck kernel could be read")
    assert (verdict.verdict, verdict.confidence) == ("hang", "likely")
    assert verdict.culprit.config == "num_warps=8"
    assert any("could be read" in item["what"] for item in verdict.evidence)


def test_a_filter_that_leaves_other_choices_stuck_is_widened_until_the_program_ends(
    tmp_path: Path,
) -> None:
    """With one thread, only one of two kinds of stuck choices is seen at a time."""
    found = stuck_choices(stuck_recording(tmp_path / "first"))
    assert found is not None
    others = [caller(4, 2), caller(1, 4), caller(5, 16)]
    second = write_recording(
        tmp_path / "second",
        *(said(SUBMITTED.format(choice)) for choice in others),
        *(said(BEGUN.format(choice)) for choice in others),
        said("Waiting on futures"),
        *(said(FINISHED.format(choice)) for choice in others[:2]),
    )
    excluded = []

    def rerun(instructions: Instructions, message: str) -> ProgramRun:
        excluded.append(instructions.workaround.partition("\n")[0])
        is_first = len(excluded) == 1
        ending = Ending(-9 if is_first else 0, None, 1.0)
        return ProgramRun(ending, second, stalled=is_first)

    workaround, told = find_filter(analyse(found), rerun, tmp_path)
    assert excluded[0] == "# Choices with num_warps=8 never finished compiling"
    assert excluded[1] == "# Choices with num_warps≥8 never finished compiling"
    assert workaround is not None
    assert workaround.verified
    assert "the program does not end without choices that have num_warps=8 either" in told


def test_where_nothing_is_compiled_ahead_the_choice_being_timed_is_stuck(tmp_path: Path) -> None:
    start = {"kind": "benchmark-start", "compile": "0/0"}
    end = {"kind": "benchmark-end"}
    folder = write_recording(
        tmp_path / "recording",
        {**start, "choice": "mm", "text": "ExternKernelCaller(extern_kernels.mm)"},
        {**end, "choice": "mm", "text": "ExternKernelCaller(extern_kernels.mm)"},
        {**start, "choice": "triton_mm_0", "text": caller(1, 4)},
        {**end, "choice": "triton_mm_0", "text": caller(1, 4)},
        {**start, "choice": "triton_mm_1", "text": caller(2, 8)},
    )
    found = stuck_choices(folder)
    assert found is not None
    assert found.while_timed
    assert [choice.name for choice in found.stuck] == ["/cache/k2.py"]
    assert [choice.name for choice in found.finished] == ["/cache/k1.py"]


def test_a_program_that_waits_for_no_choice_has_none_stuck(tmp_path: Path) -> None:
    choice = caller(1, 4)
    folder = write_recording(
        tmp_path / "recording",
        said(SUBMITTED.format(choice)),
        said(BEGUN.format(choice)),
        said("Waiting on futures"),
        said(FINISHED.format(choice)),
    )
    assert stuck_choices(folder) is None


def test_the_program_is_the_same_whether_or_not_it_is_overheard(workplace: Workplace) -> None:
    """Lines about choices go to the recording, and to the terminal only if they were asked for."""
    pytest.importorskip("triton")
    workplace.write("product.py", PROGRAM)
    os.environ.pop("TORCH_LOGS", None)
    outcome = workplace.run("product.py")
    assert outcome.exit_code == 0
    assert "Submitted" not in outcome.program_stderr
    streams = (outcome.recording_path / "streams").glob("*.jsonl")
    assert sum(path.read_text().count("Submitted precompile") for path in streams) == 4
