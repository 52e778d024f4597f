"""A small Gemma 2 compiled once for every length."""

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

torch.manual_seed(0)
config = Gemma2Config(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=300,
    sliding_window=16,
    attn_implementation="eager",
)
model = Gemma2ForCausalLM(config).eval()
compiled = torch.compile(model, dynamic=True)
with torch.no_grad():
    for length in (10, 21):
        ids = torch.randint(0, 300, (2, length))
        print(length, compiled(input_ids=ids, use_cache=False).logits.norm().item())
