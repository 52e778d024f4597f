"""Sine features of the row of every patch, kept in half precision."""
import sys
import torch


def encode(feat, freq):
    b, h, w, c = feat.shape
    rows = torch.ones((b, h, w), dtype=torch.bool).cumsum(1, dtype=torch.bfloat16)
    normed = feat - feat.mean(dim=-1, keepdim=True)
    phase = rows.unsqueeze(-1) * freq
    wave = torch.cat([phase.sin(), phase.cos()], dim=-1)
    return torch.relu(normed) + wave, rows


torch.manual_seed(0)
feat = torch.randn(2, 6, 5, 8).bfloat16()
freq = torch.linspace(0.1, 1.0, 4).bfloat16()
want = encode(feat, freq)
got = torch.compile(encode)(feat, freq)
print("eager rows   :", want[1].dtype)
print("compiled rows:", got[1].dtype)
sys.exit(0 if want[1].dtype == got[1].dtype else 1)
