"""Jobs of several ranks under the doctor, started as torchrun starts them, with gloo on the CPU.

A rank repeats calls alone: whether the others do the same then must not matter to it or to them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.programs import TOOL, Diagnosis, Workplace
from support.waiting import wait_until

pytestmark = pytest.mark.spread

QUICK = ("--quick",)


def doctor(workplace: Workplace, ranks: int, script: Path, **more: str) -> Diagnosis:
    return workplace.doctor(*torchrun(ranks), str(script), options=QUICK, **more)


def torchrun(ranks: int) -> tuple[str, ...]:
    """As the command torchrun does."""
    return ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))


def left_of(script: Path) -> list[str]:
    """The processes that still run a script, wherever torchrun has put them."""
    done = subprocess.run(["pgrep", "-f", str(script)], capture_output=True, text=True, check=False)
    return done.stdout.split()


BLOCK = """
import torch, torch.distributed as dist

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.linear(x))

dist.init_process_group("gloo")
torch.manual_seed(0)
"""

TRAINING = f"""{BLOCK}
from torch.nn.parallel import DistributedDataParallel

model = torch.compile(DistributedDataParallel(Block()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(4):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

# Planted: the hyperbolic tangent of one rank is a little too large.
WRONG_ON_RANK_2 = """
import os
if os.environ.get("RANK") == "2":
    m.CppOverrides.tanh = staticmethod(lambda x: f"std::tanh({x}) * 1.01f")
    m.CppVecOverrides.tanh = staticmethod(lambda x: f"({x}).tanh() * decltype({x})(1.01f)")
"""


def test_a_fault_on_one_rank_of_four_is_named_with_that_rank(workplace: Workplace) -> None:
    """The others wait for it in a collective, meanwhile, and none of them complains."""
    script = workplace.write("train_with_fault.py", TRAINING)
    environment = workplace.plant("torch._inductor.codegen.cpp", WRONG_ON_RANK_2)
    found = doctor(workplace, 4, script, **environment)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "codegen")
    assert found.verdict["culprit"]["op"] == "aten.tanh.default"
    assert " on rank 2 of 4, because of aten.tanh" in found.verdict["summary"]
    output = Path(found.verdict["output"]).read_text()
    assert "Connection closed" not in output
    assert "ChildFailedError" not in output
    assert left_of(script) == []


# A layer whose weights are divided among the ranks; each step, ranks send a sum to each other.
DIVIDED = """
import torch, torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce

dist.init_process_group("gloo")
torch.manual_seed(0)
first, second = torch.randn(8, 16), torch.randn(16, 8)
mine = first.chunk(2, 1)[dist.get_rank()], second.chunk(2, 0)[dist.get_rank()]

@torch.compile
def layer(x):
    return torch.relu(all_reduce(x @ mine[0] @ mine[1], "sum", dist.group.WORLD))

for step in range(5):
    x = torch.randn(4, 8)
    assert torch.allclose(layer(x), torch.relu(x @ first @ second), atol=1e-4)
dist.destroy_process_group()
"""


def test_collectives_inside_a_compiled_graph_are_not_left_waiting(workplace: Workplace) -> None:
    found = doctor(workplace, 2, workplace.write("divided.py", DIVIDED))
    assert (found.exit_code, found.verdict["verdict"]) == (0, "clean")
    # The first two calls of each rank, and three that they have shared.
    assert "7 calls of 2 compiled graphs match eager" in found.verdict["summary"]
    said = " ".join(found.verdict["not_checked"])
    assert "calls after the first 2 of graph 0/0: each rank checks only some of them" in said
    assert "what ranks send each other in graph 0/0" in said
    assert found.verdict["seconds"] < 60, "less than what a collective would be waited for"


SHARDED = f"""{BLOCK}
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2,))
model = torch.nn.Sequential(Block(), Block())
for block in model:
    block.compile()
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_ctrl_c_leaves_no_rank_behind(workplace: Workplace) -> None:
    """torchrun starts each rank in a session of its own, which no signal to a group reaches."""
    script = workplace.write("train_forever.py", SHARDED)
    command = [*TOOL, "doctor", *torchrun(2), str(script)]
    log = workplace.folder / "log"
    with log.open("w") as file:
        child = subprocess.Popen(
            command, cwd=workplace.folder, env=workplace.environment(), stdout=file, stderr=file
        )
    wait_until(lambda: "checked, all agree" in log.read_text(), 90)
    assert len(left_of(script)) >= 3
    os.kill(child.pid, signal.SIGINT)
    child.wait(30)
    assert "clean: Interrupted: " in log.read_text()
    assert left_of(script) == []
