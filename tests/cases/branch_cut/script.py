"""Argument of complex samples; the sign of a zero imaginary part picks the side of the cut."""
import sys
import torch


def argument(re, im):
    offset = torch.zeros(im.shape)
    shifted = im + offset
    angle = torch.atan2(shifted, re)
    turns = angle / (2 * torch.pi)
    weight = torch.exp(-re.abs())
    return angle, (turns * weight).sum(dim=0)


torch.manual_seed(0)
re = -torch.rand(4, 32)
im = torch.randn(4, 32)
im[:, ::3] = -0.0
want = argument(re, im)
got = torch.compile(argument)(re, im)
print("eager   :", want[0][0, :4].tolist())
print("compiled:", got[0][0, :4].tolist())
sys.exit(0 if torch.allclose(want[0], got[0]) else 1)
