"""A small diffusion transformer, inference."""

import torch
from diffusers import DiTTransformer2DModel

torch.manual_seed(0)
model = DiTTransformer2DModel(
    num_attention_heads=2,
    attention_head_dim=16,
    num_layers=2,
    sample_size=8,
    patch_size=2,
    num_embeds_ada_norm=20,
    norm_num_groups=8,
).eval()
compiled = torch.compile(model)
with torch.no_grad():
    moment, label = torch.tensor([7]), torch.tensor([3])
    result = compiled(torch.randn(1, 4, 8, 8), timestep=moment, class_labels=label).sample
print(result.norm().item())
