"""Causal self-attention with padded keys masked by minus infinity."""
import sys
import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim=24, heads=3):
        super().__init__()
        self.h, self.d = heads, dim // heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, lengths):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.h, self.d).transpose(1, 2) for p in self.qkv(x).chunk(3, dim=-1))
        score = q @ k.transpose(-1, -2) * self.d ** -0.5
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        padded = torch.arange(t) < lengths.view(b, 1)
        score = score.masked_fill(~(causal & padded[:, None, None, :]), float("-inf"))
        return self.out((score.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, t, c))


torch.manual_seed(0)
model = Attention().eval()
x, lengths = torch.randn(3, 7, 24), torch.tensor([7, 4, 1])
with torch.no_grad():
    want = model(x, lengths)
    got = torch.compile(model)(x, lengths)
err = (want - got).abs().max().item()
print("max abs error:", err, "finite:", torch.isfinite(got).all().item())
sys.exit(0 if err < 1e-4 else 1)
