"""Two breaks: a print, and a branch on the value of a tensor."""

import torch


def branch(x):
    y = x * 2
    print("value seen")
    if y.sum() > 0:
        return y + 1
    return y - 1


torch.compile(branch)(torch.ones(4))
