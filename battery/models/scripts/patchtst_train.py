"""Trains a small PatchTST to forecast time series."""

import torch
from transformers import PatchTSTConfig, PatchTSTForPrediction

torch.manual_seed(0)
config = PatchTSTConfig(
    num_input_channels=3,
    context_length=32,
    prediction_length=8,
    patch_length=8,
    patch_stride=4,
    d_model=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    ffn_dim=64,
)
model = PatchTSTForPrediction(config)
compiled = torch.compile(model)
loss = compiled(past_values=torch.randn(4, 32, 3), future_values=torch.randn(4, 8, 3)).loss
loss.backward()
print(loss.item())
