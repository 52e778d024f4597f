"""A small SegFormer labels every pixel."""

import torch
from transformers import SegformerConfig, SegformerForSemanticSegmentation

torch.manual_seed(0)
config = SegformerConfig(
    depths=[1, 1, 1, 1],
    hidden_sizes=[16, 16, 32, 32],
    num_attention_heads=[1, 2, 2, 4],
    decoder_hidden_size=32,
    num_labels=6,
)
model = SegformerForSemanticSegmentation(config).eval()
compiled = torch.compile(model)
with torch.no_grad():
    logits = compiled(torch.randn(1, 3, 64, 64)).logits
print(logits.norm().item(), tuple(logits.shape))
