"""A training step of a small RoBERTa that fills masked words."""

import torch
from transformers import RobertaConfig, RobertaForMaskedLM

torch.manual_seed(0)
config = RobertaConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=300,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = RobertaForMaskedLM(config)
compiled = torch.compile(model)
ids = torch.randint(5, 300, (2, 16))
labels = torch.where(torch.rand(2, 16) < 0.3, ids, -100)
loss = compiled(input_ids=ids.masked_fill(labels >= 0, 4), labels=labels).loss
loss.backward()
print(loss.item())
