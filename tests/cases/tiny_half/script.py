"""Scale rows of tiny half-precision numbers to unit variance."""
import sys
import torch


def whiten(x, gain):
    var = x.var(dim=-1, keepdim=True)
    return x * torch.rsqrt(var + 1e-9) * gain


x = torch.full((3, 5), 1e-10, dtype=torch.float16)
gain = torch.ones(5, dtype=torch.float16)
want = whiten(x, gain)
got = torch.compile(whiten)(x, gain)
print("eager   :", want[0].tolist())
print("compiled:", got[0].tolist())
sys.exit(0 if torch.equal(torch.isnan(want), torch.isnan(got)) else 1)
