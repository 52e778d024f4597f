"""The lowering of one operation does far too much."""

import torch
from torch._inductor import lowering

erf = torch.ops.aten.erf.default
original = lowering.lowerings[erf]


def careful_erf(*args, **kwargs):
    total = 0
    for number in range(200_000_000):
        total += number
    return original(*args, **kwargs)


lowering.lowerings[erf] = careful_erf


@torch.compile
def activate(x):
    return torch.erf(torch.sin(x) * 2).cos() + 1


print(activate(torch.randn(64, 64)).shape)
