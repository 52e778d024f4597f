"""The same filter on signals of three lengths."""
import sys
import torch
import torch.nn.functional as F


def smooth(x, kernel):
    n = x.shape[-1]
    y = F.conv1d(F.pad(x.unsqueeze(1), (2, 2), mode="replicate"), kernel).squeeze(1)
    y = y - y.mean(dim=-1, keepdim=True)
    ramp = torch.arange(n) / n
    return (y * ramp).cumsum(dim=-1), y.std(dim=-1)


torch.manual_seed(0)
kernel = torch.rand(1, 1, 5)
step = torch.compile(smooth)
worst = 0.0
for n in (17, 33, 50):
    x = torch.randn(3, n)
    want, got = smooth(x, kernel), step(x, kernel)
    worst = max(worst, max((a - b).abs().max().item() for a, b in zip(want, got)))
print("max abs error over three sizes:", worst)
sys.exit(0 if worst < 1e-4 else 1)
