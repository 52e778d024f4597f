"""Second derivative of a regularised inverse, by forward over forward."""
import sys
import torch
from torch.func import jacfwd

torch.set_default_dtype(torch.float64)


def objective(t):
    shifted = t + torch.trace(t) * torch.eye(3, dtype=t.dtype)
    return torch.mean(1.0 / shifted)


x = torch.tensor([[0.10, 0.20, 0.30], [0.40, 0.50, 0.60], [0.70, 0.80, 0.95]])
hessian = jacfwd(jacfwd(objective))
want = hessian(x)
print("eager ok", tuple(want.shape), flush=True)
got = torch.compile(hessian)(x)
print("compiled ok", (want - got).abs().max().item())
sys.exit(0 if torch.allclose(want, got) else 1)
