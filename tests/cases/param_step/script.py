"""Patch a parameter in place and hand out the new value, which the caller then decays."""
import sys
import torch


def update(param, patch, gain):
    fresh = torch.tanh(patch) * gain
    new = torch.slice_scatter(param, fresh, dim=0, start=1, end=3)
    param.copy_(new)
    return new


torch.manual_seed(0)
param, patch = torch.randn(4, 6), torch.randn(2, 6)
plain, traced = param.clone(), param.clone()
for p, fn in ((plain, update), (traced, torch.compile(update))):
    out = fn(p, patch, 2.0)
    out.mul_(0.5)
print("eager parameter   :", [round(v, 3) for v in plain[0].tolist()])
print("compiled parameter:", [round(v, 3) for v in traced[0].tolist()])
sys.exit(0 if torch.allclose(plain, traced) else 1)
