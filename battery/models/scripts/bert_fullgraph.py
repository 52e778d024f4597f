"""Classifies padded sentences with a small BERT, in one graph."""

import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
config = BertConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=300,
)
model = BertForSequenceClassification(config).eval()
compiled = torch.compile(model, fullgraph=True)
ids = torch.randint(0, 300, (3, 18))
mask = torch.arange(18)[None] < torch.tensor([[18], [11], [7]])
with torch.no_grad():
    print(compiled(input_ids=ids, attention_mask=mask.long()).logits.tolist())
