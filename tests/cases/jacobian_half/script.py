"""Forward-mode Jacobian of a small half-precision energy."""
import sys
import torch


def energy(x):
    left = torch.mm(torch.prod(x) + x, torch.sum(x) + x)
    return torch.sum(torch.mm(left, torch.sum(x) + x))


x = (torch.arange(1, 10, dtype=torch.float16) / 10).reshape(3, 3)
jac = torch.func.jacfwd(energy)
want = jac(x)
print("eager   :", want[0].tolist(), flush=True)
got = torch.compile(jac)(x)
print("compiled:", got[0].tolist())
sys.exit(0 if torch.allclose(want, got, rtol=2e-2) else 1)
