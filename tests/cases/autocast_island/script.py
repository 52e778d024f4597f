"""A float32 island inside a bfloat16 autocast region, and its weight gradient."""
import sys
import torch
import torch.nn as nn

torch.manual_seed(0)
layer = nn.Linear(16, 16)
x = torch.randn(4, 16)


def head(x):
    with torch.amp.autocast("cpu", enabled=False):
        y = x.float() @ layer.weight.float().T
        return torch.tanh(y) + layer.bias


def weight_grad(fn):
    layer.weight.grad = None
    with torch.amp.autocast("cpu", dtype=torch.bfloat16):
        out = fn(x)
    (out * torch.linspace(0.1, 1.0, 64).view(4, 16)).sum().backward()
    return layer.weight.grad.clone()


want = weight_grad(head)
got = weight_grad(torch.compile(head))
err = (want - got).abs().max().item()
print("max error of the weight gradient:", err)
sys.exit(0 if err < 1e-4 else 1)
