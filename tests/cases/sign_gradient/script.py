"""Reuse the gradient of a sign penalty as an extra feature."""
import sys
import torch


def feature(grad, x):
    scaled = torch.tanh(x) * 0.5
    last = grad[-1] + 10.0
    return scaled.sum() + last, (scaled - grad).abs()


torch.manual_seed(0)
x = torch.randn(6, requires_grad=True)
grad = torch.autograd.grad(torch.sgn(x).sum(), x)[0]
x = x.detach()
print("eager   :", feature(grad, x)[0].item(), flush=True)
got = torch.compile(feature)(grad, x)
print("compiled:", got[0].item())
sys.exit(0)
