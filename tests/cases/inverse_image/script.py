"""Invert the interpolated (hence singular) correlation image."""
import sys
import torch
import torch.nn.functional as F


def invert(x):
    big = F.interpolate(x, size=(32, 32), mode="bilinear", align_corners=True)
    return torch.inverse(big), big.mean()


torch.manual_seed(0)
x = torch.randn(1, 2, 16, 16)
want = invert(x)
got = torch.compile(invert)(x)
err = ((want[0] - got[0]).abs().max() / want[0].abs().max()).item()
print("relative error:", err)
sys.exit(0 if err < 1e-2 else 1)
