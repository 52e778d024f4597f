"""Blend a running average towards transposed statistics and flatten it."""
import sys
import torch


def blend(average, stats):
    target = torch.sigmoid(stats).transpose(-1, -2)
    average.lerp_(target, 0.75)
    flat = average.view(-1)
    return flat * 2.0, flat.abs().max()


torch.manual_seed(0)
average, stats = torch.rand(4, 16, 16), torch.randn(4, 16, 16)
want = blend(average.clone(), stats)
print("eager ok", want[1].item(), flush=True)
got = torch.compile(blend)(average.clone(), stats)
print("compiled ok", got[1].item())
sys.exit(0 if torch.allclose(want[0], got[0], atol=1e-5) else 1)
