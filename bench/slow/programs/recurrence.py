"""Each result needs the two before it: the scheduler's size doubles (pytorch/pytorch#148073)."""

import torch


@torch.compile
def recurrence(a, b):
    last = [a, b]
    for _ in range(7):
        last = [last[-1] + last[-2], last[-1] * last[-2]]
    return last[-2] + last[-1]


a = torch.zeros((), requires_grad=True)
b = torch.zeros((), requires_grad=True)
recurrence(a, b).backward()
print(a.grad)
