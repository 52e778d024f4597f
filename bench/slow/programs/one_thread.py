"""Someone set one thread to look for a race, and left it so."""

import torch
import torch._inductor.config

torch._inductor.config.cpp.threads = 1


@torch.compile
def activate(x):
    return torch.sigmoid(x) * torch.tanh(x) + torch.erf(x)


x = torch.randn(2000, 1000)
for _ in range(40):
    result = activate(x)
print(result.shape)
