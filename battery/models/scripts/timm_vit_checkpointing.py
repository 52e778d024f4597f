"""A training step of a vision transformer from timm that recomputes its activations."""

import timm
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = timm.models.VisionTransformer(
    img_size=32, patch_size=8, embed_dim=64, depth=2, num_heads=4, num_classes=10
)
model.set_grad_checkpointing()
compiled = torch.compile(model)
loss = F.cross_entropy(compiled(torch.randn(4, 3, 32, 32)), torch.randint(0, 10, (4,)))
loss.backward()
print(loss.item())
