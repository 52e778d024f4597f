"""Grow a flat scratch view and keep working on the original vector."""
import sys
import torch


def accumulate(x, w):
    base = torch.relu(x) * w + 1.0
    scratch = base.view(-1)
    scratch.resize_(12)
    return base + 1.0


x, w = torch.zeros(3), torch.full((3,), 0.5)
want = accumulate(x, w)
got = torch.compile(accumulate)(x, w)
print("eager shape   :", tuple(want.shape))
print("compiled shape:", tuple(got.shape))
sys.exit(0 if want.shape == got.shape and torch.allclose(want, got) else 1)
