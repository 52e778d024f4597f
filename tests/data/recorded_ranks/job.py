"""Four ranks, the last of which sends its collectives in another order: they wait for each other.

TORCH_TRACE=traces torchrun --standalone --nproc-per-node 4 job.py
"""

import datetime

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
rank, world = dist.get_rank(), dist.get_world_size()


@torch.compile
def loss_of(x, w, v):
    h = torch.relu(x @ w)
    kept = torch.sigmoid(h) * h
    seen = h.detach()
    if rank == world - 1:
        every = funcol.all_gather_tensor(seen.sum(0), 0, dist.group.WORLD)
        total = funcol.all_reduce(seen, "sum", dist.group.WORLD)
    else:
        total = funcol.all_reduce(seen, "sum", dist.group.WORLD)
        every = funcol.all_gather_tensor(seen.sum(0), 0, dist.group.WORLD)
    return (kept @ v).sum() + total.sum() + every.sum()


torch.manual_seed(0)
w, v = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
loss_of(torch.randn(8, 16), w, v).backward()
print("done")
