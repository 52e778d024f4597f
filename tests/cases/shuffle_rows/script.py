"""Shuffle the rows of a batch before a permutation-invariant pooling."""
import sys
import torch


def pool(x, w):
    hidden = torch.relu(x @ w)
    mixed = hidden[torch.randperm(x.shape[0])]
    pooled = mixed.mean(dim=0)
    return pooled / (pooled.norm() + 1e-6)


torch.manual_seed(0)
x, w = torch.randn(8, 12), torch.randn(12, 6)
want = pool(x, w)
print("eager ok", want.norm().item(), flush=True)
got = torch.compile(pool)(x, w)
print("compiled ok", got.norm().item())
sys.exit(0 if torch.allclose(want, got, atol=1e-5) else 1)
