"""Check a training-mode block against its compiled form."""
import sys
import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(24, 48), nn.Linear(48, 24)
        self.norm, self.drop = nn.LayerNorm(24), nn.Dropout(0.2)

    def forward(self, x):
        h = self.drop(torch.relu(self.inp(x)))
        return self.norm(x + self.out(h))


torch.manual_seed(0)
block = Block().train()
x = torch.randn(8, 24)
want = block(x)
got = torch.compile(block)(x)
err = (want - got).abs().max().item()
print("max abs error:", err)
sys.exit(0 if err < 1e-3 else 1)
