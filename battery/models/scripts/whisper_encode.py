"""Encoder and decoder of a small Whisper, compared with eager."""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)
config = WhisperConfig(
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    vocab_size=300,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    max_source_positions=50,
)
model = WhisperForConditionalGeneration(config).eval()
compiled = torch.compile(model)
with torch.no_grad():
    features, ids = torch.randn(2, 80, 100), torch.randint(3, 300, (2, 8))
    expected = model(input_features=features, decoder_input_ids=ids).logits
    actual = compiled(input_features=features, decoder_input_ids=ids).logits
print(actual.norm().item(), (expected - actual).abs().max().item() < 1e-3)
