"""A training step of a small ConvNeXt in channels-last format."""

import timm
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = timm.models.ConvNeXt(depths=(1, 1, 1, 1), dims=(16, 24, 32, 48), num_classes=10)
model = model.to(memory_format=torch.channels_last)
compiled = torch.compile(model)
pictures = torch.randn(2, 3, 64, 64).to(memory_format=torch.channels_last)
loss = F.cross_entropy(compiled(pictures), torch.tensor([2, 7]))
loss.backward()
print(loss.item())
