"""The question whether two nodes can be fused takes long, and it is asked for every pair."""

import time

import torch
from torch._inductor.scheduler import Scheduler

original = Scheduler.can_fuse


def careful_can_fuse(self, *args, **kwargs):
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        sum(range(100))
    return original(self, *args, **kwargs)


Scheduler.can_fuse = careful_can_fuse


@torch.compile
def moments(x):
    return [(x.sin() * number).sum(number % 2) for number in range(24)]


print(len(moments(torch.randn(64, 64))))
