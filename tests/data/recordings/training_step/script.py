"""Forward and backward: decompositions, passes, fusions, refusals, library kernels."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.inner = nn.Linear(16, 32)
        self.outer = nn.Linear(32, 16)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.inner(self.norm(x)))
        return torch.softmax(x + self.outer(hidden), dim=-1)


torch.manual_seed(0)
block = Block()
loss = torch.compile(block)(torch.randn(8, 16)).pow(2).sum()
loss.backward()
