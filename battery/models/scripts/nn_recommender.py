"""Trains a recommender: bags of embeddings, crossed features, binary cross-entropy."""

import torch
from torch import nn
from torch.nn import functional as F


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(4))
        self.dense = nn.Sequential(nn.Linear(5, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(26, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, numbers, choices):
        dense = self.dense(numbers)
        found = [table(choices[:, i]).mean(dim=1) for i, table in enumerate(self.tables)]
        every = torch.stack([dense, *found], dim=1)
        crossed = torch.bmm(every, every.transpose(1, 2))
        rows, columns = torch.tril_indices(5, 5, offset=-1)
        return self.top(torch.cat([dense, crossed[:, rows, columns]], dim=-1)).squeeze(-1)


torch.manual_seed(0)
model = Recommender()
compiled = torch.compile(model)
numbers, choices = torch.randn(16, 5), torch.randint(0, 50, (16, 4, 3))
loss = F.binary_cross_entropy_with_logits(
    compiled(numbers, choices), torch.randint(0, 2, (16,)).float()
)
loss.backward()
print(loss.item())
