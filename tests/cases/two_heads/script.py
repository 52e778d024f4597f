"""Two losses of one compiled trunk, differentiated one after the other."""
import sys
import torch
from torch import nn


def gradients(trunk, heads, x, y):
    features = trunk(x)
    losses = [nn.functional.mse_loss(head(features), y) for head in heads]
    norms = []
    for loss in losses:
        trunk.zero_grad()
        loss.backward(retain_graph=True)
        norms.append(torch.cat([p.grad.flatten() for p in trunk.parameters()]).norm())
    return torch.stack(norms)


torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 8), nn.GELU())
heads = [nn.Linear(8, 2), nn.Linear(8, 2)]
x, y = torch.randn(10, 6), torch.randn(10, 2)
want = gradients(trunk, heads, x, y)
compiled = torch.compile(trunk)
got = gradients(compiled, heads, x, y)
print("eager   :", want.tolist())
print("compiled:", got.tolist())
sys.exit(0 if torch.allclose(want, got, atol=1e-5) else 1)
