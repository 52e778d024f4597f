"""Embedding bag with layer norm in bfloat16."""
import sys
import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(50, 32), nn.Embedding(12, 32)
        self.norm, self.out = nn.LayerNorm(32), nn.Linear(32, 16)

    def forward(self, ids):
        h = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        keep = (ids != 0).unsqueeze(-1)
        h = self.norm(h) * keep
        return torch.tanh(self.out(h)).sum(dim=1) / keep.sum(dim=1)


torch.manual_seed(0)
model = Encoder().bfloat16().eval()
ids = torch.randint(0, 50, (5, 9))
with torch.no_grad():
    want = model(ids)
    got = torch.compile(model)(ids)
err = (want.float() - got.float()).abs().max().item()
print("max abs error:", err, got.dtype)
sys.exit(0 if err < 3e-2 and want.dtype == got.dtype else 1)
