"""A decoder as tutorials write it: rotary positions, RMS norm, SwiGLU; one training step."""

import torch
from torch import nn
from torch.nn import functional as F


def rotate(x):
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(x.shape[-2])[:, None] * rates
    left, right = x.chunk(2, dim=-1)
    turned = left * angles.cos() - right * angles.sin(), left * angles.sin() + right * angles.cos()
    return torch.cat(turned, dim=-1)


class Block(nn.Module):
    def __init__(self, dim=64, heads=4):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, 128, bias=False), nn.Linear(dim, 128, bias=False)
        self.down = nn.Linear(128, dim, bias=False)

    def forward(self, x):
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for y in self.qkv(self.before(x)).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(200, 64), Block(), Block(), nn.RMSNorm(64), nn.Linear(64, 200))
compiled = torch.compile(model, fullgraph=True)
ids = torch.randint(0, 200, (2, 17))
loss = F.cross_entropy(compiled(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
loss.backward()
print(loss.item())
