"""Trains a perceptron in eager; only the optimizer step is compiled."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01), weight_decay=0.1)
step = torch.compile(optimizer.step)
x, labels = torch.randn(32, 16), torch.randint(0, 4, (32,))
for _ in range(4):
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    step()
    optimizer.zero_grad()
    print(loss.item())
