"""A small Phi whose weights are bfloat16."""

import torch
from transformers import PhiConfig, PhiForCausalLM

torch.manual_seed(0)
config = PhiConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=300,
)
model = PhiForCausalLM(config).to(torch.bfloat16).eval()
compiled = torch.compile(model)
ids = torch.randint(0, 300, (2, 20))
with torch.no_grad():
    print(compiled(input_ids=ids).logits.float().norm().item())
