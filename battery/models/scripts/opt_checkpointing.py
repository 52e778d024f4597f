"""A training step of a small OPT that recomputes activations in the backward pass."""

import torch
from transformers import OPTConfig, OPTForCausalLM

torch.manual_seed(0)
config = OPTConfig(
    hidden_size=64,
    ffn_dim=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=300,
    word_embed_proj_dim=64,
    dropout=0.0,
)
model = OPTForCausalLM(config)
model.gradient_checkpointing_enable()
model.train()
compiled = torch.compile(model)
ids = torch.randint(3, 300, (2, 16))
loss = compiled(input_ids=ids, labels=ids, use_cache=False).loss
loss.backward()
print(loss.item(), sum(p.grad.norm() for p in model.parameters() if p.grad is not None).item())
