"""A small Qwen 3 under bfloat16 autocast, with its cache returned."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(0)
config = Qwen3Config(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=300,
)
model = Qwen3ForCausalLM(config).eval()
compiled = torch.compile(model)
ids = torch.randint(0, 300, (2, 24))
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    result = compiled(input_ids=ids)
print(result.logits.float().norm().item())
