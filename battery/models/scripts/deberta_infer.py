"""A small DeBERTa, whose attention separates content from position."""

import torch
from transformers import DebertaV2Config, DebertaV2Model

torch.manual_seed(0)
config = DebertaV2Config(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=300,
    relative_attention=True,
    position_buckets=8,
    pos_att_type=["p2c", "c2p"],
)
model = DebertaV2Model(config).eval()
compiled = torch.compile(model)
ids = torch.randint(0, 300, (2, 14))
with torch.no_grad():
    print(compiled(input_ids=ids).last_hidden_state.norm().item())
