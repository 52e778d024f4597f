"""A ladder of sums and products, each rung made of the two before."""
import sys
import torch


def ladder(a, b, rungs):
    steps = [torch.tanh(a), torch.sigmoid(b)]
    for _ in range(rungs):
        total = steps[-1] + steps[-2]
        product = steps[-1] * steps[-2]
        steps += [total * 0.5, product]
    return steps[-1] + steps[-2]


torch.manual_seed(0)
a, b = torch.rand(()), torch.rand(())
want = ladder(a, b, 24)
print("eager ok", want.item(), flush=True)
got = torch.compile(ladder)(a, b, 24)
print("compiled ok", got.item())
sys.exit(0 if torch.allclose(want, got) else 1)
