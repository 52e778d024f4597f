"""Collect the kept rows into a buffer and summarise the whole buffer."""
import sys
import torch


def collect(x, keep):
    rows = torch.empty(64, 32)
    rows[:keep] = torch.tanh(x[:keep]) * 0.5
    scale = x.abs().mean()
    return (rows * scale).sum(dim=1), rows.amax(dim=1)


def litter(value):
    for _ in range(4):
        torch.full((64, 32), value)


torch.manual_seed(0)
x = torch.randn(64, 32)
litter(3.0)
want = collect(x, 40)
step = torch.compile(collect)
step(x, 40)
litter(-5.0)
got = step(x, 40)
err = (want[0] - got[0]).abs()
print("max error, filled rows  :", err[:40].max().item())
print("max error, all 64 rows  :", err.max().item())
sys.exit(0 if err.max() < 1e-3 else 1)
