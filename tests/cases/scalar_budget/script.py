"""Running budget of a schedule that may be a single number."""
import sys
import torch


def spend(cost, rate):
    budget = torch.full((), 5.0)
    total = budget.cumsum(0)
    load = torch.softmax(cost * rate, dim=0)
    return total - (load * cost).sum(), torch.sqrt(load).max()


torch.manual_seed(0)
cost = torch.rand(9)
want = spend(cost, 2.0)
print("eager ok", want[0].item(), flush=True)
got = torch.compile(spend)(cost, 2.0)
print("compiled ok", got[0].item())
sys.exit(0 if torch.allclose(want[0], got[0]) else 1)
