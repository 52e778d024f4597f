"""Allocate a work buffer of the shape of the hidden layer with the old constructor."""
import sys
import torch
import torch.nn.functional as F


def hidden(x, weight, bias):
    h = torch.tanh(F.linear(x, weight, bias))
    buffer = torch.Tensor(h.size())
    buffer.copy_(h * 0.5) if buffer.shape == h.shape else buffer.zero_()
    buffer.clamp_(-0.4, 0.4)
    return buffer.sum(dim=-1) + h.mean()


torch.manual_seed(0)
x = torch.randn(3, 10)
weight, bias = torch.randn(4, 10), torch.zeros(4)
want = hidden(x, weight, bias)
got = torch.compile(hidden)(x, weight, bias)
print("eager   :", tuple(want.shape), want.tolist())
print("compiled:", tuple(got.shape), got.tolist())
sys.exit(0 if want.shape == got.shape and torch.allclose(want, got) else 1)
