"""Wrap phases into their period; an infinite period means 'does not wrap'."""
import sys
import torch


def wrap(phase, period, weight):
    shifted = phase + 0.25 * torch.sin(phase)
    wrapped = torch.remainder(shifted, period)
    smooth = torch.exp(-wrapped.abs())
    return (smooth * weight).sum(dim=1), wrapped


torch.manual_seed(0)
phase = torch.rand(4, 8) * 20
period = torch.tensor([6.25, 3.0, float("inf"), 2.0, 6.25, float("inf"), 1.5, 4.0])
weight = torch.rand(8)
want = wrap(phase, period, weight)
got = torch.compile(wrap)(phase, period, weight)
print("eager   :", want[0].tolist())
print("compiled:", got[0].tolist())
sys.exit(0 if torch.allclose(want[0], got[0], atol=1e-4) else 1)
