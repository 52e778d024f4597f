"""The programs of several endings."""

from __future__ import annotations

from battery.endings.ending import READY

COMPILED = """\
import sys, torch
@torch.compile
def f(x):
    return torch.sin(x) * 2 + 1
y = f(torch.ones(8))
"""

WAITS = f"""
import time
print("{READY}", flush=True)
time.sleep(60)
"""

ENDLESS_COMPILE = f"""\
import threading, torch
import torch._inductor.graph
def stuck(self, *args, **kwargs):
    print("{READY}", flush=True)
    threading.Event().wait()
torch._inductor.graph.GraphLowering.codegen = stuck
torch.compile(lambda x: x.sin() + 1)(torch.ones(8))
"""


def training(steps: int = 100_000) -> str:
    """A loop that trains a compiled model, and is READY in the middle of it."""
    return f"""\
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
compiled = torch.compile(model)
for step in range({steps}):
    compiled(torch.randn(4, 8)).sum().backward()
    if step == 12:
        print("{READY}", flush=True)
    time.sleep(0.2)
"""
