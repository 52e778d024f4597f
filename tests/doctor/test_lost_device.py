"""A GPU that fails an assertion: the error names the kernel, whose wrapper names its operations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.finding import FailureFinding, Noticed, Script
from inductoscope.inside.doctor.investigation import found_in_error, is_device_lost
from inductoscope.model.fold import load
from support.examples import stored


@pytest.fixture
def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code that an H200 got for x.relu().add(1).sum(-1), in the cache of this process."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    recording = load(stored("h200_seed"))
    path = tmp_path / "wrapper.py"
    path.write_text(recording.payload(recording.graphs[0].wrapper))
    return path


def raise_at(path: Path, text: str) -> Exception:
    """An error out of the line of a file that holds `text`."""
    lines = path.read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if text in line)
    code = compile("\n" * (number - 1) + "raise RuntimeError('device-side assert')", path, "exec")
    try:
        exec(code, {})
    except RuntimeError as error:
        return error
    raise AssertionError


def found_in(error: BaseException) -> FailureFinding:
    failure = Failure("error", "device-side assert")
    return found_in_error(Noticed("0/0"), failure, graph(), error)


def graph() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(lambda x: x.relu().add(1).sum(-1))


def test_the_line_that_launched_names_the_kernel_and_what_is_in_it(wrapper: Path) -> None:
    error = raise_at(wrapper, "triton_per_fused_add_relu_sum_0.run(")
    found = found_in(error)
    assert found.location.kernel == "triton_per_fused_add_relu_sum_0"
    assert found.location.stage == "runtime"
    assert set(found.reduction.operations) == {"aten.relu", "aten.add", "aten.sum"}
    assert found.fact(Script).why_not


def test_an_error_while_cleaning_up_does_not_hide_the_first_one(wrapper: Path) -> None:
    later = RuntimeError("the generator cannot be restored")
    later.__context__ = raise_at(wrapper, "triton_per_fused_add_relu_sum_0.run(")
    found = found_in(later)
    assert found.location.kernel == "triton_per_fused_add_relu_sum_0"


def test_an_error_from_elsewhere_names_no_kernel(wrapper: Path) -> None:
    found = found_in(RuntimeError("out of nowhere"))
    assert found.location.kernel == ""
    assert found.reduction.operations == ()


def test_where_no_gpu_is_used_none_is_lost() -> None:
    assert not is_device_lost()
