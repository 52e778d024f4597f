"""A module counts its calls: torch compiles it anew for every number (pytorch/pytorch#114293)."""

import torch


class Annealed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.step = 0

    def forward(self, x):
        self.step += 1
        return torch.tanh(self.linear(x)) * (1.0 - 0.001 * self.step)


model = torch.compile(Annealed())
x = torch.randn(32, 64)
with torch.no_grad():
    for _ in range(24):
        result = model(x)
print(result.shape)
