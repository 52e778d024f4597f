"""Trains a linear-attention language model that keeps a running state."""

import torch
from torch import nn
from torch.nn import functional as F


class LinearAttention(nn.Module):
    def __init__(self, dim=32, words=100):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.mix = nn.Linear(dim, 3 * dim)
        self.decay = nn.Parameter(torch.zeros(dim))
        self.norm = nn.GroupNorm(4, dim)
        self.head = nn.Linear(dim, words)

    def forward(self, ids):
        query, key, value = self.mix(self.embed(ids)).chunk(3, dim=-1)
        state = torch.zeros_like(query[:, 0])
        outputs = []
        for place in range(ids.shape[1]):
            state = state * torch.sigmoid(self.decay) + F.elu(key[:, place]) * value[:, place]
            outputs.append(self.norm(query[:, place] * state))
        return self.head(torch.stack(outputs, dim=1))


torch.manual_seed(0)
model = LinearAttention()
compiled = torch.compile(model, fullgraph=True)
ids = torch.randint(0, 100, (4, 9))
loss = F.cross_entropy(compiled(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
loss.backward()
print(loss.item())
