"""A limit keeps operations apart that could share their loop."""

import torch
import torch._inductor.config

torch._inductor.config.max_fusion_size = 1


@torch.compile
def statistics(x):
    positive, squared = x.relu(), x * x
    return x.mean(-1), x.amax(-1), x.amin(-1), positive.mean(-1), squared.mean(-1), x.abs().amax(-1)


x = torch.randn(8000, 1000)
for _ in range(40):
    result = statistics(x)
print(len(result))
