"""A small DINOv2 describes batches of changing size."""

import torch
from transformers import Dinov2Config, Dinov2Model

torch.manual_seed(0)
config = Dinov2Config(
    image_size=28,
    patch_size=7,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    mlp_ratio=2,
)
model = Dinov2Model(config).eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in (4, 3, 5):
        print(batch, compiled(torch.randn(batch, 3, 28, 28)).pooler_output.norm().item())
