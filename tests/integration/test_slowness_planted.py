"""One program that is slow for many reasons: each is found in what torch really does with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from inductoscope.model.fold import load
from inductoscope.profiling.evidence import RecordedEvidence, costs_of
from inductoscope.profiling.flips import more_compile_threads, static_sizes, wrapper_in_cpp
from inductoscope.profiling.kernel_profile import build_profile, run_profiled
from inductoscope.profiling.timings import FOLDER, KernelTimes, ProcessTimes, read_measured
from inductoscope.recording.location import create_recording

PROGRAM = """\
import torch
import torch._inductor.config as config

@torch.compile
def not_vectorized(x):
    return torch.sigmoid(x) * x

@torch.compile
def kept_apart(x):
    return x.mean(-1), x.amax(-1), x.amin(-1)

@torch.compile
def reordered(x, weight):
    return torch.nn.functional.conv2d(x, weight)

@torch.compile
def left_to_eager(x):
    return torch.cdist(x, x, p=1.0) + 1

@torch.compile
def tiny(x):
    return torch.sin(x) + 1

@torch.compile(dynamic=True)
def any_size(x):
    return torch.cos(x) + 1

@torch.compile(dynamic=False)
def every_length(x):
    return torch.sin(x) * 2

@torch.compile
def broken(x):
    x = torch.sin(x) / (x.abs().max().item() + 1.0)
    return torch.cos(x) + 2

@torch.compile
def one_by_one(x):
    return torch.erfinv(torch.mm(torch.erfinv(x), x) / 1e6)

def call(times, function, *args):
    for _ in range(times):
        function(*args)

torch.manual_seed(0)
x, small = torch.rand(1000, 1000), torch.rand(4, 4)
with torch.no_grad():
    with config.patch({"cpp.simdlen": 1}):
        call(5, not_vectorized, x)
    with config.patch(max_fusion_size=1):
        call(5, kept_apart, x)
    call(5, reordered, torch.rand(1, 256, 8, 8), torch.rand(256, 256, 3, 3))
    call(5, left_to_eager, x[:300])
    call(20000, tiny, small)
    call(20, any_size, x[:7])
    for length in range(20, 25):
        every_length(x[:length])
    call(500, broken, small)
    with config.patch(compile_threads=1):
        call(5, one_by_one, x[:8, :8])
"""

# Takes long for the kernels of one function. It has the name of the real one: with a compiler that
# torch does not know, it parses its headers for every kernel.
COMPILER = """\
#!/bin/sh
for word in "$@"; do
  case "$word" in *.cpp) grep -q "erfinv" "$word" && sleep 2.6 ;; esac
done
exec g++ "$@"
"""


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> RecordedEvidence:
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.py").write_text(PROGRAM)
    (folder / "g++").write_text(COMPILER)
    (folder / "g++").chmod(0o755)
    command = [sys.executable, str(folder / "slow.py")]
    recording = create_recording(command, output=folder / "recording", fresh=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(os.environ, "CXX", str(folder / "g++"))
        patched.setitem(os.environ, "TORCHINDUCTOR_VEC_ISA_OK", "1")
        nowhere = subprocess.DEVNULL
        ending = run_profiled(command, recording, "kernel-times", stdout=nowhere)
        assert ending.exit_code == 0
    known = load(recording)
    times = (
        read_measured(ProcessTimes, recording / FOLDER),
        read_measured(KernelTimes, recording / FOLDER),
    )
    return RecordedEvidence(known, build_profile(known, *times, lambda device: None))


def line_of(text: str) -> str:
    """Where the program has a line, as findings name it."""
    number = next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if text in line)
    # A function begins with its decorator.
    return f"slow.py:{number - text.startswith('def ')}"


@pytest.mark.parametrize(
    ("rule", "words", "line"),
    [
        ("scalar_loop", "is not vectorized: the program sets cpp.simdlen = 1", "sigmoid(x)"),
        ("kept_apart", "kept apart by a limit", "x.mean(-1)"),
        ("layout_copies", "(256, 256, 3, 3) is copied into another memory order", "conv2d(x"),
        ("recompiles", "every_length", "def every_length"),
        ("graph_breaks", "", ".item()"),
        ("compile_threads", "2 kernels are compiled one after the other", "def one_by_one"),
    ],
)
def test_a_rule_finds_what_was_planted(
    evidence: RecordedEvidence, rule: str, words: str, line: str
) -> None:
    found = [(finding.title, finding.source) for finding in evidence.about(rule)]
    assert [1 for title, at in found if words in title and at.endswith(line_of(line))], found


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("_cdist_forward has no lowering: eager's kernel takes", "torch.cdist"),
        ("tiny besides its kernel: allocations and Python take", "def tiny"),
        ("broken outside of its graphs; it breaks at", ".item()"),
    ],
)
def test_a_cost_is_measured(evidence: RecordedEvidence, words: str, line: str) -> None:
    found = [(cost.what, cost.source) for cost in costs_of(evidence)]
    assert [1 for what, at in found if words in what and at.endswith(line_of(line))], found


def test_what_to_change_is_proposed(evidence: RecordedEvidence) -> None:
    (flip,) = static_sizes(evidence)
    assert flip.why.startswith("any_size is compiled for any size; all 19 timed calls had ")
    places = {flip.source.rpartition("/")[2] for flip in wrapper_in_cpp(evidence)}
    assert line_of("def tiny") in places
    (flip,) = more_compile_threads(evidence)
    assert flip.predicted is not None
    assert flip.predicted > 0
