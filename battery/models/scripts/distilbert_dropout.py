"""A training step of a small DistilBERT with its dropout."""

import torch
from transformers import DistilBertConfig, DistilBertForQuestionAnswering

torch.manual_seed(0)
config = DistilBertConfig(dim=64, hidden_dim=128, n_layers=2, n_heads=4, vocab_size=300)
model = DistilBertForQuestionAnswering(config).train()
compiled = torch.compile(model)
ids = torch.randint(0, 300, (3, 16))
starts, ends = torch.tensor([1, 4, 6]), torch.tensor([3, 9, 7])
loss = compiled(input_ids=ids, start_positions=starts, end_positions=ends).loss
loss.backward()
print(loss.item() > 0)
