"""On a GPU: a chain that ends in a reduction, and a training step, as Triton kernels."""

import torch


def chain(x):
    return x.relu().add(1).sum(-1)


torch.manual_seed(0)
print(torch.compile(chain)(torch.randn(10, 100, device="cuda")).sum().item())

linear = torch.nn.Linear(64, 64, device="cuda")
out = torch.compile(lambda x: torch.softmax(linear(x), -1))(torch.randn(32, 64, device="cuda"))
out.pow(2).sum().backward()
print(linear.weight.grad.norm().item())
