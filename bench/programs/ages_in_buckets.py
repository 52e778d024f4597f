"""Scores of people by age: about 60 operations, one of which torch 2.13 compiles wrongly.

Floor division of floats, pytorch/pytorch#197895. Ends with 1 if compiled differs from eager.
"""

import sys

import torch
import torch.nn.functional as F


def block(x, enter, leave):
    y = F.layer_norm(x, (x.shape[-1],))
    y = F.gelu(y @ enter) * torch.sigmoid(y @ leave)
    return x + 0.5 * y


def scores(ages, width, values, enter, leave):
    x = values - values.mean(dim=0)
    x = block(x, enter, leave)
    x = block(x, leave, enter)
    weights = torch.softmax(x @ x.t() * 0.25, dim=-1)
    x = weights @ x
    bucket = torch.floor_divide(ages * 1.0, width)
    centred = x - x.amax(dim=-1, keepdim=True)
    x = torch.exp(centred) / (1.0 + centred * centred)
    x = torch.where(x > 0.3, x, x * 0.5) + torch.sin(values)
    return x, bucket, (x * bucket.unsqueeze(1)).sum(dim=-1)


torch.manual_seed(0)
ages = torch.tensor([1.0, 0.5, 6.0, 0.3, 2.4, 0.8, 3.3, 0.7])
width = torch.tensor([0.1, 0.1, 0.2, 0.1, 0.4, 0.2, 0.3, 0.1])
values, enter, leave = torch.randn(8, 16), torch.randn(16, 16) / 4, torch.randn(16, 16) / 4
arguments = (ages, width, values, enter, leave)
want, got = scores(*arguments), torch.compile(scores)(*arguments)
same = all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(want, got, strict=True))
print("finite:", all(b.isfinite().all().item() for b in got), "same:", same)
sys.exit(0 if same else 1)
