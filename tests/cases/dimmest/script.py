"""Darkest pixel of every row of an 8-bit image."""
import sys
import torch


def darkest(image, lift):
    lifted = torch.clamp(image.float() * 0.8 + lift, 0, 255).to(torch.uint8)
    low = lifted.min(dim=1)
    contrast = lifted.float().std(dim=1)
    return low.values, low.indices, contrast


torch.manual_seed(0)
image = torch.randint(0, 255, (6, 40), dtype=torch.uint8)
want = darkest(image, 12.0)
got = torch.compile(darkest)(image, 12.0)
print("eager   :", want[0].tolist(), want[1].tolist())
print("compiled:", got[0].tolist(), got[1].tolist())
sys.exit(0 if torch.equal(want[1], got[1]) and torch.equal(want[0], got[0]) else 1)
