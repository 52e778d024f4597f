"""`run --values`: what every kernel leaves in its buffers, saved and shown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from inductoscope.recording.kernel_values import KernelValue, read_values
from inductoscope.views.report.kernel import print_values
from inductoscope.views.report.terminal import Printer
from support.programs import TOOL, Workplace

pytestmark = pytest.mark.spread

# Two kernels, because a matrix product stands between them; the second one divides by zero.
PROGRAM = """
import torch

@torch.compile
def step(x, w):
    return torch.log((torch.relu(x) @ w) * 0.0)

torch.manual_seed(0)
for _ in range(6):
    step(torch.randn(4, 8), torch.randn(8, 3))
"""


def run(workplace: Workplace, *options: str, **environment: str) -> tuple[str, list[KernelValue]]:
    workplace.write("step.py", PROGRAM)
    call = [*TOOL, "run", "--output", "recording", *options, "step.py"]
    done = workplace.call(call, **environment)
    assert done.returncode == 0, done.stderr
    return done.stderr, [*read_values(workplace.folder / "recording")]


def load(workplace: Workplace, value: KernelValue) -> torch.Tensor:
    found: torch.Tensor = torch.load(workplace.folder / "recording" / value.file)
    return found


@pytest.mark.parametrize("cpp_wrapper", ["0", "1"])
def test_the_values_of_every_buffer_are_saved(workplace: Workplace, cpp_wrapper: str) -> None:
    text, values = run(workplace, "--values", "*", TORCHINDUCTOR_CPP_WRAPPER=cpp_wrapper)
    kernels = list(dict.fromkeys(value.kernel for value in values))
    first = next(value for value in values if "relu" in value.kernel)
    last = next(value for value in values if "log" in value.kernel)
    assert len(kernels) == 3
    assert torch.equal(load(workplace, first), torch.relu(load(workplace, first)))
    assert load(workplace, first).shape == first.shape == (4, 8)
    assert (first.smallest, first.nan) == (0.0, 0)
    # The logarithm of zero.
    assert (last.infinite, last.smallest) == (12, None)
    assert load(workplace, last).isneginf().all()
    # Four calls of each kernel, though the program makes six.
    assert max(value.call for value in values) == 4
    assert "12 infinite" in text
    assert "To read one: torch.load(" in text


def test_only_the_kernels_that_are_asked_for(workplace: Workplace) -> None:
    text, values = run(workplace, "--values", "*relu*")
    assert {value.kernel for value in values} == {"cpp_fused_relu_0"}
    assert "cpp_fused_relu_0, call 1" in text


def test_a_name_that_no_kernel_has(tmp_path: Path) -> None:
    page = io.StringIO()
    print_values(Printer(page), tmp_path, "triton_mm", [])
    assert "No kernel that was called has a name like 'triton_mm'." in page.getvalue()


def test_a_pretended_gpu_has_no_values(workplace: Workplace) -> None:
    workplace.write("step.py", PROGRAM)
    call = [*TOOL, "run", "--target", "cuda:90", "--pretend", "--values", "*", "step.py"]
    done = workplace.call(call)
    assert done.returncode == 2
    assert "tensors have no values" in done.stderr


def test_a_damaged_index_gives_what_is_whole(tmp_path: Path) -> None:
    (tmp_path / "values").mkdir()
    text = '{"kernel": "k", "call": 1, "buffer": "buf0", "dtype": "torch.float32", '
    text += '"shape": [2], "stride": [1], "device": "cpu"}\n'
    (tmp_path / "values" / "index.jsonl").write_text(f"{text}nonsense\n[1]\n{text[:30]}")
    assert [value.buffer for value in read_values(tmp_path)] == ["buf0"]
