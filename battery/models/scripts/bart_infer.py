"""Encoder and decoder of a small BART."""

import torch
from transformers import BartConfig, BartForConditionalGeneration

torch.manual_seed(0)
config = BartConfig(
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    vocab_size=300,
)
model = BartForConditionalGeneration(config).eval()
compiled = torch.compile(model)
source, target = torch.randint(3, 300, (2, 12)), torch.randint(3, 300, (2, 7))
with torch.no_grad():
    print(compiled(input_ids=source, decoder_input_ids=target).logits.norm().item())
