"""`profile --memory` on real programs, whose peaks can be computed by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.profiling.memory_blocks import SAVED, TEMPORARY
from inductoscope.profiling.memory_trials import MemoryProfile, profile_memory
from inductoscope.profiling.turns import ProgramRuns
from inductoscope.recording.location import create_recording
from inductoscope.recording.profile_file import MEMORY, stored_profile

MIB = 1 << 20
LINKS = 8

# Every sin and every product is 1 MiB. A product keeps the sin before it for the backward pass, and
# a sin the product before it.
CHAIN = f"""\
import torch
torch.manual_seed(0)
w = torch.randn(64, 64, requires_grad=True)

def chain(x):
    for _ in range({LINKS}):
        x = torch.sin(x) @ w
    return x

compiled = torch.compile(chain)
x, gradient = torch.randn(4096, 64), torch.ones(4096, 64)
for _ in range(3):
    out = compiled(x)
    out.backward(gradient)
    del out
    w.grad = None
print("done")
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> MemoryProfile:
    folder = tmp_path_factory.mktemp("chain")
    (folder / "chain.py").write_text(CHAIN)
    command = [sys.executable, str(folder / "chain.py")]
    runs = ProgramRuns(command, folder / "trials", lambda text: None, turns=0)
    recording = create_recording(command, output=folder / "recording", fresh=True)
    return profile_memory(runs, recording, stdout=subprocess.DEVNULL, with_eager=True)


def test_peaks_are_what_can_be_computed_by_hand(profiled: MemoryProfile) -> None:
    """x and the gradient given, then one sin and one product for every link."""
    (step,) = profiled.steps
    assert step.device.peak == pytest.approx((2 + 2 * LINKS) * MIB, rel=0.01)
    # In eager, the backward pass of sin holds the gradient, a cosine and their product as well,
    # while the result is still there and the last sin no longer is.
    eager = profiled.eager_peak(step)
    assert eager == pytest.approx((3 + 2 * (LINKS - 1) + 3) * MIB, rel=0.01)


def test_every_byte_at_the_peak_is_accounted_for(profiled: MemoryProfile) -> None:
    (step,) = profiled.steps
    there = step.device.at_peak
    assert sum(block.bytes for block in there) + step.device.unknown == step.device.peak
    saved = [block for block in there if step.labels[block.number].kind == SAVED]
    # Of each link that the backward pass has gone through, two saved tensors are gone, and two
    # temporary ones are there.
    made = [block for block in there if step.labels[block.number].kind == TEMPORARY]
    assert sum(block.bytes for block in (*saved, *made)) >= (2 * LINKS - 1) * MIB
    assert sum(block.bytes for block in saved) > sum(block.bytes for block in made)
    labels = [step.labels[block.number] for block in saved]
    assert {label.operation for label in labels} == {"sin", "mm"}
    assert {label.source.rpartition("/")[2] for label in labels} == {"chain.py:7"}


def test_in_eager_the_line_that_makes_a_tensor_is_known(profiled: MemoryProfile) -> None:
    eager = profiled.in_eager(profiled.steps[0])
    assert eager is not None
    labels = [eager.labels[block.number] for block in eager.device.at_peak]
    made = {(label.operation, label.source.rpartition("/")[2]) for label in labels if label.source}
    assert made == {("aten.sin.default", "chain.py:7"), ("aten.mm.default", "chain.py:7")}


def test_a_program_that_compiles_nothing_has_no_steps(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('hello')\n")
    command = [sys.executable, "-m", "inductoscope", "profile", "--memory", "--quiet"]
    command += ["--output", "recording", "plain.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (4, "hello\n")
    assert "No compiled call was made" in done.stderr
    # The result is kept for the page all the same.
    assert stored_profile(tmp_path / "recording", MEMORY)["steps"] == []
