"""Every step asks for a number, and the graph breaks there."""

import torch


@torch.compile
def steps(x):
    x = torch.sin(x) / (x.abs().max().item() + 1.0)
    x = torch.cos(x) / (x.abs().max().item() + 1.0)
    x = torch.tanh(x) / (x.abs().max().item() + 1.0)
    x = torch.erf(x) / (x.abs().max().item() + 1.0)
    x = torch.sin(x) / (x.abs().max().item() + 1.0)
    return torch.cos(x) / (x.abs().max().item() + 1.0)


x = torch.randn(512)
for _ in range(100):
    result = steps(x)
print(result.shape)
