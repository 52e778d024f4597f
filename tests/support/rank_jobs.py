"""A small distributed program with a fault for each argument, and its real ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from inductoscope.processes.children import start_group
from inductoscope.processes.ending import end_child
from support.programs import TOOL, Workplace

# What is wrong is chosen by the first argument; every rank runs the same file.
JOB = """
import datetime, os, sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

fault, backend = sys.argv[1], sys.argv[2]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
rank, world = dist.get_rank(), dist.get_world_size()
last = rank == world - 1

def compiled(function):
    if backend == "eager":
        return function  # Not called then, and loading the compiler takes long.
    return torch.compile(function, backend=backend)

@compiled
def step(x):
    y = torch.relu(x) + 1
    if fault == "branch" and last:
        y = torch.tanh(y)
    if fault == "order" and last:
        b = funcol.all_gather_tensor(y, 0, dist.group.WORLD).sum(0)
        a = funcol.all_reduce(y, "sum", dist.group.WORLD)
    else:
        a = funcol.all_reduce(y, "sum", dist.group.WORLD)
        b = funcol.all_gather_tensor(y, 0, dist.group.WORLD).sum(0)
    return (a * b).sum()

def pass_on(x):
    after, before = (rank + 1) % world, (rank - 1) % world
    ways = ((dist.isend, x, after), (dist.irecv, torch.empty(8), before))
    for work in dist.batch_isend_irecv([dist.P2POp(*way) for way in ways]):
        work.wait()
    for work in [way(tensor, peer) for way, tensor, peer in ways]:
        work.wait()

def send(x):
    other = 1 - rank
    if fault == "both send" or rank == 0:
        dist.send(x, other)
    if fault == "both send" or rank == 1:
        dist.recv(torch.empty(4 if fault == "no room" else 8), other)
    if fault == "unreceived" and rank == 0:
        dist.send(x, other, tag=1)
    dist.barrier()

def eager(x):
    if fault == "groups":
        pairs = [dist.new_group([n, n + 1]) for n in range(0, world, 2)]
        dist.all_reduce(x, group=pairs[rank // 2])
        if rank >= 2:
            dist.broadcast(x, src=2, group=pairs[1])
        pass_on(x)
    if fault in ("unreceived", "no room", "both send"):
        return send(x)
    if fault == "shapes":
        x = torch.ones(8 + 8 * rank)
    dist.all_reduce(x)
    if fault == "first" and rank == 0:
        dist.all_reduce(x)
    dist.barrier()

x = torch.ones(8)
if fault in ("branch", "order", "none"):
    print(float(step(x)))
else:
    eager(x)
print("done")
"""

# The same for ranks with a GPU each: the fault is in a branch that no rank takes without one.
GPU_JOB = """
import os, sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

fault = sys.argv[1]
mine = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(mine)
dist.init_process_group("nccl")

@torch.compile
def step(x, w):
    y = torch.relu(x) + w
    if fault == "branch" and x.is_cuda and dist.get_rank() == 1:
        return funcol.all_gather_tensor(y, 0, dist.group.WORLD).sum()
    return funcol.all_reduce(y, "sum", dist.group.WORLD).sum()

w = torch.ones(8).to(mine).requires_grad_()
step(torch.ones(8, device="cuda"), w).backward()
print(w.device, w.grad.device)
"""


_MEETING = (
    '"gloo", init_method="file://" + os.path.abspath("meet"), rank=int(os.environ["RANK"]), '
    'world_size=int(os.environ["WORLD_SIZE"]),'
)


@dataclass(frozen=True)
class Flown:
    """Output of a preflight."""

    exit_code: int
    stdout: str
    stderr: str
    data: dict[str, Any]


def preflight(
    workplace: Workplace, world: int, *words: str, options: tuple[str, ...] = (), job: str = JOB
) -> Flown:
    """`inductoscope preflight --world N OPTIONS job.py WORDS`, to its end."""
    workplace.write("job.py", job)
    command = [*TOOL, "preflight", "--world", str(world), "--quiet", "--json", "found.json"]
    done = workplace.call([*command, *options, "job.py", *words])
    found = workplace.folder / "found.json"
    data = json.loads(found.read_text()) if found.exists() else {}
    return Flown(done.returncode, done.stdout, done.stderr, data)


def real_ranks(workplace: Workplace, world: int, *words: str, seconds: float = 60.0) -> list[int]:
    """The exit codes of real ranks with gloo; a rank that is not done by then is ended, and has 1.

    They are forks of one process that has torch loaded, and meet in a file, not at a port.
    """
    workplace.write("job.py", JOB.replace('"gloo",', _MEETING))
    with open(workplace.folder / "real.txt", "wb") as output:
        ranks = start_group(
            [sys.executable, "-c", _FORKS, str(world), *words],
            environment=workplace.environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            folder=workplace.folder,
        )
    try:
        ranks.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        end_child(ranks)
    codes = [workplace.folder / f"code_{rank}" for rank in range(world)]
    return [int(code.read_text()) if code.exists() else 1 for code in codes]


_FORKS = """
import os, runpy, sys
import torch, torch._dynamo, torch.distributed

world = int(sys.argv[1])
ranks = {}
for rank in range(world):
    child = os.fork()
    if child == 0:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
        sys.argv = ["job.py", *sys.argv[2:]]
        runpy.run_path("job.py", run_name="__main__")
        sys.exit(0)
    ranks[child] = rank
while ranks:
    child, status = os.wait()
    with open(f"code_{ranks.pop(child)}", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(status)))
"""
