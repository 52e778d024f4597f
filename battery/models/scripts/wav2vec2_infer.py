"""A small wav2vec 2.0 turns sound into letters."""

import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

torch.manual_seed(0)
config = Wav2Vec2Config(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    conv_dim=(32, 32, 32),
    conv_stride=(5, 4, 2),
    conv_kernel=(10, 8, 4),
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
    vocab_size=30,
)
model = Wav2Vec2ForCTC(config).eval()
compiled = torch.compile(model)
with torch.no_grad():
    print(compiled(torch.randn(2, 1600)).logits.norm().item())
