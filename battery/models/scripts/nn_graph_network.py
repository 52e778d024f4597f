"""Trains a network on a graph: messages along edges, summed at the nodes."""

import torch
from torch import nn
from torch.nn import functional as F


class MessagePassing(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * size, size), nn.SiLU(), nn.Linear(size, size))
        self.update = nn.Linear(2 * size, size)

    def forward(self, nodes, source, target):
        messages = self.message(torch.cat([nodes[source], nodes[target]], dim=-1))
        received = torch.zeros_like(nodes).index_add(0, target, messages)
        degree = torch.zeros(len(nodes)).index_add(0, target, torch.ones(len(target)))
        received = received / degree.clamp(min=1.0)[:, None]
        return F.relu(self.update(torch.cat([nodes, received], dim=-1)))


torch.manual_seed(0)
first, second = MessagePassing(), MessagePassing()


@torch.compile
def predict(nodes, source, target):
    return second(first(nodes, source, target), source, target).mean(dim=0).sum()


nodes = torch.randn(30, 24)
source, target = torch.randint(0, 30, (90,)), torch.randint(0, 30, (90,))
loss = predict(nodes, source, target)
loss.backward()
print(loss.item())
