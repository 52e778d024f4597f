"""One training step of a small mixture of experts."""

import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
config = MixtralConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=4,
    vocab_size=300,
)
model = MixtralForCausalLM(config)
compiled = torch.compile(model)
ids = torch.randint(0, 300, (2, 16))
loss = compiled(input_ids=ids, labels=ids).loss
loss.backward()
print(loss.item())
