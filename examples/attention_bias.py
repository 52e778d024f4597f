"""Attention with a bias that is built inside the function: right in eager, broken when compiled."""

import torch


def scores(queries, keys, label):
    raw = queries @ keys
    print("scoring", label)  # Dynamo has to break the graph here.
    return torch.tanh(raw) * (0.5 if label == "step 0" else 1.0)


def attend(queries, keys):
    bias = torch.full((8, 8), -1e4)
    diagonal = torch.arange(8)
    bias[diagonal.unsqueeze(0), diagonal.unsqueeze(1)] = 0
    return torch.softmax(torch.tanh(queries @ keys) + bias, dim=-1)


torch.manual_seed(0)
queries, keys = torch.randn(8, 16), torch.randn(16, 8)

compiled_scores = torch.compile(scores)
for step in range(6):
    compiled_scores(queries, keys, f"step {step}")

print("eager rows sum to", attend(queries, keys).sum(-1).mean().item())
print("compiled rows sum to", torch.compile(attend)(queries, keys).sum(-1).mean().item())
