"""Candidates for a GPU: searched by a copy of the program that keeps all values in main memory.

There is no GPU here. The device `cpu:0` stands in for one: the process that searches must leave the
work to its forks all the same, which put the values there.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule, symbolic_trace

from inductoscope.errors import ToolFailure
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.candidate_file import read_candidate, write_candidate
from inductoscope.inside.search.input_recipes import recipes_of
from inductoscope.inside.search.subgraph import record_values, subgraph
from support.programs import Workplace

DEVICE = "cpu:0"


def split_and_add(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    one, two = torch.split(torch.sin(x) @ w, 2, dim=1)
    return torch.ops.aten.add.Tensor(one, two)


@pytest.fixture
def candidate() -> Candidate:
    module: GraphModule = symbolic_trace(split_and_add)
    for node in module.graph.nodes:
        node.meta["stack_trace"] = f'  File "model.py", line 3, in {node.name}'
    whole = torch.randn(4, 8)
    return Candidate(module, (whole[:, :4], torch.randn(4, 4)))


# --- in a file ------------------------------------------------------------------------------------


def test_a_candidate_comes_back_from_its_file_as_it_was(
    candidate: Candidate, tmp_path: Path
) -> None:
    path = tmp_path / "candidate.pt"
    write_candidate(candidate, path)
    again = read_candidate(path)
    names = [node.name for node in candidate.module.graph.nodes]
    assert [node.name for node in again.module.graph.nodes] == names
    assert 'model.py", line 3' in str(again.operations[0].meta["stack_trace"])
    assert again.inputs[0].stride() == (8, 1)
    assert torch.equal(again.module(*again.inputs), candidate.module(*candidate.inputs))


def test_what_cannot_be_written_is_said(candidate: Candidate, tmp_path: Path) -> None:
    bad = replace(candidate, options={"callback": lambda: None})
    with pytest.raises(ToolFailure, match="cannot be handed to another process"):
        write_candidate(bad, tmp_path / "candidate.pt")


# --- values ---------------------------------------------------------------------------------------


def test_the_values_of_a_graph_are_computed_in_a_fork_and_come_back(candidate: Candidate) -> None:
    recorded = record_values(replace(candidate, device=DEVICE))
    here = record_values(candidate)
    assert recorded.made.keys() == here.made.keys()
    assert torch.equal(recorded.made["add_tensor"], here.made["add_tensor"])
    part = subgraph(recorded, ["add_tensor"])
    assert part is not None
    assert part.device == DEVICE
    assert part.size == 1


def test_indices_for_a_gpu_stay_in_the_range_that_they_have(candidate: Candidate) -> None:
    indices = torch.tensor([3, 1, 3, 2])
    of_cpu = recipes_of(replace(candidate, inputs=(indices,)))[0]
    of_gpu = recipes_of(replace(replace(candidate, inputs=(indices,)), device=DEVICE))[0]
    assert any("torch.zeros" in text for text in of_cpu)
    assert not any("torch.zeros" in text for text in of_gpu)
    assert any("torch.ones" in text for text in of_gpu)


# --- the copy -------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time, torch
from pathlib import Path
from torch.fx import symbolic_trace
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.doctor import program_copy
from inductoscope.inside.search.candidate import Candidate
from inductoscope.errors import ToolFailure
import tasks

folder = Path(sys.argv[1])
program_copy.fork_copy()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("the program has no child that it did not start")
later = torch.set_float32_matmul_precision("high")
copy = program_copy.program_copy()
candidate = Candidate(symbolic_trace(lambda x: x + 1), (torch.ones(2),))
with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
    print("in the copy:", copy.run(tasks.look, candidate, folder=folder))
try:
    copy.run(tasks.raise_error, candidate, folder=folder)
except ToolFailure as error:
    print("said:", str(error).strip().splitlines()[-1])
try:
    copy.run(tasks.die, candidate, folder=folder)
except ToolFailure as error:
    print("said:", error)
print("left behind:", sorted(path.name for path in folder.iterdir()))
"""

TASKS = """
import os, torch
def look(candidate):
    return (candidate.inputs[0].tolist(), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(),
            torch.get_float32_matmul_precision(), os.isatty(1))
def raise_error(candidate):
    raise ValueError("too small")
def die(candidate):
    os._exit(1)
"""


def test_a_copy_of_the_program_does_tasks_with_the_settings_that_the_program_has_now(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "place").mkdir()
    done = subprocess.run(
        [sys.executable, "program.py", "place"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines() == [
        "the program has no child that it did not start",
        "in the copy: ([1.0, 1.0], True, False, 'high', False)",
        "said: ValueError: too small",
        "said: the copy of the program is gone: it has ended",
        "left behind: []",
    ], done.stderr


# There is no GPU here: what the program asks of CUDA is answered as if there were one. Compiling
# initialises it, as torch does on a machine with a GPU whatever the program computes on.
ON_A_MACHINE_WITH_A_GPU = """
import sys, torch
from inductoscope.inside.doctor import program_copy
from torch._inductor import config, lowering
from torch._inductor.virtualized import ops

program_copy.FILES_OF_GPUS = ("/dev/null",)
torch._C._cuda_getDeviceCount = torch._C._cuda_init = lambda: 0
torch.cuda._cudart = "there"
torch.cuda.is_current_stream_capturing = lambda: False

def start_gpu(graph):
    torch.cuda._lazy_init()

config.post_grad_custom_pre_pass = start_gpu
lowering.lowerings[torch.ops.aten.expm1.default] = lowering.make_pointwise(
    lambda x: ops.sub(ops.exp(x), ops.constant(1.5, torch.float32))
)

def gain(x):
    return torch.expm1(x.tanh()) * 2

x = torch.randn(16, 16)
made = torch.compile(gain)(x)
assert torch.cuda.is_initialized()
sys.exit(not torch.allclose(made, gain(x)))
"""


def test_a_program_for_the_cpu_is_searched_although_compiling_starts_the_gpu(
    workplace: Workplace,
) -> None:
    """The copy is taken before the compile: inside of one, all its forks would wait for its end."""
    workplace.write("gain.py", ON_A_MACHINE_WITH_A_GPU)
    found = workplace.doctor("gain.py").verdict
    assert (found["verdict"], found["stage"]) == ("wrong-result", "lowering")
    assert found["culprit"]["op"] == "aten.expm1.default"
    assert found["repro"]["nodes"] == 1
    assert (found["repro"]["verified"], found["confidence"]) == (True, "proven")
    assert "whose lowering is the program's own, <lambda> at gain.py:" in found["summary"]


IN_A_COMPILE = """
import torch, torch._inductor
from inductoscope.inside.doctor import program_copy

torch._C._cuda_getDeviceCount = lambda: 0  # As in a build for CUDA.

def backend(module, inputs):
    program_copy.take_copy()
    print("in a compile:", program_copy.program_copy())
    return module

torch.compile(torch.sin, backend=backend)(torch.ones(2))
program_copy.take_copy()
copy = program_copy.program_copy()
print("afterwards:", type(copy).__name__)

import tasks
from pathlib import Path
from inductoscope.inside.search.candidate import Candidate
candidate = Candidate(torch.fx.symbolic_trace(lambda x: x.sin()), (torch.zeros(2),))
print("a compile in the copy:", copy.run(tasks.compiled, candidate, folder=Path(".")))
"""

IN_ANOTHER_THREADS_COMPILE = IN_A_COMPILE.replace(
    "    program_copy.take_copy()\n    print",
    """\
    thread = threading.Thread(target=program_copy.take_copy)
    thread.start()
    thread.join()
    print""",
)

COMPILED = """
import torch
def compiled(candidate):
    return torch.compile(candidate.module, backend="eager")(*candidate.inputs).tolist()
"""


@pytest.mark.parametrize("program", [IN_A_COMPILE, IN_ANOTHER_THREADS_COMPILE])
def test_no_copy_is_taken_in_the_middle_of_a_compile(program: str, workplace: Workplace) -> None:
    """Whichever thread compiles; and afterwards nothing waits for the end of a compile."""
    workplace.write("program.py", f"import threading\n{program}")
    workplace.write("tasks.py", COMPILED)
    said = workplace.run("program.py").stdout
    assert "in a compile: None\nafterwards: ProgramCopy" in said
    assert "a compile in the copy: [0.0, 0.0]" in said
