"""Next-token scores of a small BLOOM, whose attention uses ALiBi slopes."""

import torch
from transformers import BloomConfig, BloomForCausalLM

torch.manual_seed(0)
config = BloomConfig(hidden_size=64, n_layer=2, n_head=4, vocab_size=300)
model = BloomForCausalLM(config).eval()
compiled = torch.compile(model)
ids = torch.randint(0, 300, (2, 14))
with torch.no_grad():
    print(compiled(input_ids=ids).logits[:, -1].norm().item())
