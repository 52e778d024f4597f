"""A training step of a small ALBERT, whose layers share weights, under bfloat16 autocast."""

import torch
from transformers import AlbertConfig, AlbertForTokenClassification

torch.manual_seed(0)
config = AlbertConfig(
    embedding_size=32,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=300,
    num_labels=5,
)
model = AlbertForTokenClassification(config)
compiled = torch.compile(model)
ids, labels = torch.randint(0, 300, (2, 12)), torch.randint(0, 5, (2, 12))
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = compiled(input_ids=ids, labels=labels).loss
loss.backward()
print(loss.item())
