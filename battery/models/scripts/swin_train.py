"""A training step of a small Swin transformer: windows, shifted and back."""

import torch
from transformers import SwinConfig, SwinForImageClassification

torch.manual_seed(0)
config = SwinConfig(
    image_size=32,
    patch_size=4,
    embed_dim=16,
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=4,
    drop_path_rate=0.0,
    num_labels=5,
)
model = SwinForImageClassification(config)
compiled = torch.compile(model)
loss = compiled(torch.randn(2, 3, 32, 32), labels=torch.tensor([1, 3])).loss
loss.backward()
print(loss.item())
