"""Give a field the signs of another one and write its columns, which are contiguous."""
import sys
import torch


def oriented(field, reference):
    magnitude = field.abs().sqrt()
    centred = reference - reference.mean(dim=0)
    signed = torch.copysign(magnitude, centred)
    return signed, signed.sum(dim=1)


torch.manual_seed(0)
field, reference = torch.rand(8, 6).mT, torch.rand(6, 8)
want, want_sum = oriented(field, reference)
got, got_sum = torch.compile(oriented)(field, reference)
print("eager   :", want.stride(), "compiled:", got.stride())
columns = [want.t().view(-1), got.t().view(-1)]
sys.exit(0 if torch.allclose(*columns) else 1)
