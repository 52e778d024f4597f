"""A small vision transformer under bfloat16 autocast."""

import torch
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(0)
config = ViTConfig(
    image_size=32,
    patch_size=8,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
)
model = ViTForImageClassification(config).eval()
compiled = torch.compile(model)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    print(compiled(torch.randn(4, 3, 32, 32)).logits.float().tolist())
