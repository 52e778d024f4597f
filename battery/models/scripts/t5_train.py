"""A training step of a small T5."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
config = T5Config(
    d_model=64,
    d_kv=16,
    d_ff=128,
    num_layers=2,
    num_heads=4,
    vocab_size=300,
    decoder_start_token_id=0,
    dropout_rate=0.0,
)
model = T5ForConditionalGeneration(config)
compiled = torch.compile(model)
source, target = torch.randint(1, 300, (2, 14)), torch.randint(1, 300, (2, 9))
loss = compiled(input_ids=source, labels=target).loss
loss.backward()
print(loss.item())
