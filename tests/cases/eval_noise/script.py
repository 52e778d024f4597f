"""Add to the activations in place after an (inactive) dropout."""
import sys
import torch
import torch.nn.functional as F


def accumulate(x, training):
    y = F.dropout(x, 0.5, training)
    y += torch.tanh(y)
    return y.sum(dim=1) * 0.5


torch.manual_seed(0)
x = torch.randn(4, 6)
plain, traced = x.clone(), x.clone()
accumulate(plain, False)
torch.compile(accumulate)(traced, False)
print("eager input after   :", [round(v, 3) for v in plain[0].tolist()])
print("compiled input after:", [round(v, 3) for v in traced[0].tolist()])
sys.exit(0 if torch.allclose(plain, traced) else 1)
