"""Axial attention over a five dimensional video tensor."""
import torch
from torch import nn
torch.manual_seed(1)
D = 8
class Axial(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.out = nn.Linear(D, D)
    def forward(self, q, k, v):
        q, k, v = self.norm(q), self.norm(k), self.norm(v)
        q = q.view(1, 1, 2, 1, D); k = k.view(1, 1, 2, 2, D); v = v.view(1, 1, 2, 2, D)
        a = (torch.matmul(q, k.transpose(-2, -1)) / D**0.5).softmax(-1).matmul(v)
        return self.out(a.view(2, 1, D))
m = Axial().eval()
args = torch.randn(2, 1, D), torch.randn(2, 2, D), torch.randn(2, 2, D)
with torch.no_grad():
    print(m(*args).shape)
    print(torch.compile(m)(*args).shape)
