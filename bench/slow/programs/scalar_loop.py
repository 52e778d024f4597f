"""Somebody switched vectorisation off to look for a bug, and left it so."""

import torch
import torch._inductor.config

torch._inductor.config.cpp.simdlen = 1


@torch.compile
def activate(x):
    return torch.sigmoid(x) * torch.tanh(x) + x


x = torch.randn(1000, 1000)
for _ in range(40):
    result = activate(x)
print(result.shape)
