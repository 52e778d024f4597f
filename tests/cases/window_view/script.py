"""Raise the floor of a ring buffer and hand out its next row."""
import sys
import torch


def advance(buffer, tail):
    lift = buffer.abs().mean()
    buffer.add_(100.0)
    weight = torch.softmax(tail.sum(dim=1), dim=0)
    return tail[0], weight * lift


base = torch.arange(24, dtype=torch.float64).reshape(4, 6) * 0.1
plain, traced = base.clone(), base.clone()
want = advance(plain, plain[1:])
got = torch.compile(advance)(traced, traced[1:])
print("eager next row   :", want[0].tolist())
print("compiled next row:", got[0].tolist())
sys.exit(0 if torch.allclose(want[0], got[0]) else 1)
