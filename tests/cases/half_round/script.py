"""Count the values that reach the threshold after rounding to half precision."""
import sys
import torch


def count(x, w):
    y = (x * w).half() + 1.0
    z = (y - 1.0).float()
    return (z > 0.25).sum(), z.amax()


torch.manual_seed(0)
x, w = torch.rand(64, 64), torch.rand(64)
want = count(x, w)
got = torch.compile(count)(x, w)
print(want[0].item(), got[0].item())
sys.exit(0 if want[0] == got[0] else 1)
