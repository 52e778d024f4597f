"""Undo a block floating-point format: mantissa times two to the exponent."""
import sys
import torch


def unpack(mantissa, exponent, bias):
    exponent = torch.clamp(exponent - bias, -14.0, 20.0)
    value = torch.ldexp(mantissa, exponent)
    peak = value.abs().amax(dim=1, keepdim=True)
    unit = torch.where(peak > 0, value / peak, value)
    return value, torch.tanh(unit).sum(dim=1)


torch.manual_seed(0)
mantissa = torch.rand(5, 9).half() + 0.5
exponent = torch.randint(0, 36, (5, 9)).float()
want = unpack(mantissa, exponent, 16.0)
got = torch.compile(unpack)(mantissa, exponent, 16.0)
print("eager   :", want[0].dtype, want[0].max().item())
print("compiled:", got[0].dtype, got[0].max().item())
sys.exit(0 if want[0].dtype == got[0].dtype and torch.allclose(want[0], got[0], rtol=1e-3) else 1)
