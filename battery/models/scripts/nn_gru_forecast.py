"""Trains a forecaster with an unrolled GRU cell, clipping its gradients."""

import torch
from torch import nn
from torch.nn import functional as F


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 24)
        self.head = nn.Linear(24, 3)

    def forward(self, series):
        hidden = series.new_zeros(series.shape[0], 24)
        for moment in series.unbind(1):
            hidden = self.cell(moment, hidden)
        return self.head(hidden)


torch.manual_seed(0)
model = Forecaster()
compiled = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
series = torch.randn(8, 6, 3)
for _ in range(2):
    loss = F.huber_loss(compiled(series[:, :-1]), series[:, -1])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
