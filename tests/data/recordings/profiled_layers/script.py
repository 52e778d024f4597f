"""Three layers that are made alike, and calls enough to measure them."""

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """A norm and a linear layer around the residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.linear = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(self.norm(x)))


class Model(nn.Module):
    """The layers, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.head = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return torch.softmax(self.head(x), -1)


model = torch.compile(Model())
with torch.no_grad():
    for _ in range(12):
        model(torch.ones(16, 32))
