"""A training step of an MLP-Mixer."""

import timm
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = timm.models.MlpMixer(img_size=32, patch_size=8, num_blocks=2, embed_dim=64, num_classes=10)
compiled = torch.compile(model)
loss = F.cross_entropy(compiled(torch.randn(4, 3, 32, 32)), torch.randint(0, 10, (4,)))
loss.backward()
print(loss.item())
