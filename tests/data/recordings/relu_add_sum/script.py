"""The smallest example with every level: a pointwise chain that ends in a reduction."""

import torch


def chain(x):
    return x.relu().add(1).sum(-1)


torch.compile(chain)(torch.randn(10, 100))
