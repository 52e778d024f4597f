"""Everything becomes one C++ function, and the compiler takes long for it."""

import torch
import torch._inductor.config

torch._inductor.config.max_fusion_size = 100_000
torch._inductor.config.cpp.max_horizontal_fusion_size = 100_000
torch._inductor.config.realize_opcount_threshold = 100_000
torch._inductor.config.realize_reads_threshold = 100_000


@torch.compile
def field(x, y):
    for number in range(50):
        x, y = torch.sin(x) * y + number, torch.where(y > x, torch.exp(-x), torch.tanh(y))
    return x, y


print(len(field(torch.randn(64, 64), torch.randn(64, 64))))
