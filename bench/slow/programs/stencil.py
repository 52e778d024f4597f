"""A costly value is computed anew for each of the neighbours that read it."""

import torch


@torch.compile
def smooth(x):
    y = x
    for _ in range(4):
        y = torch.lgamma(torch.erf(y) + 1.5)
    rows = [y[i : i + 998] for i in range(3)]
    return sum(row[:, j : j + 998] for row in rows for j in range(3)) / 9


x = torch.randn(1000, 1000)
for _ in range(40):
    result = smooth(x)
print(result.shape)
