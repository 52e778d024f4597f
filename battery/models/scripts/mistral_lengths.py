"""A small Mistral scores sentences of changing length."""

import torch
from transformers import MistralConfig, MistralForCausalLM

torch.manual_seed(0)
config = MistralConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=300,
    sliding_window=16,
)
model = MistralForCausalLM(config).eval()
compiled = torch.compile(model)
with torch.no_grad():
    for length in (12, 17, 23, 31):
        ids = torch.randint(0, 300, (2, length))
        print(length, compiled(input_ids=ids, labels=ids, use_cache=False).loss.item())
