"""Map feature ids to the slots of three hash tables of different size."""
import sys
import torch


def slots(ids, sizes, weight):
    mixed = (ids * 2654435761) & 0xFFFF
    slot = mixed.unsqueeze(1) % sizes
    share = slot.float() / sizes
    return slot, (share * weight).sum(dim=1).tanh()


torch.manual_seed(0)
ids = torch.arange(1, 9)
sizes = torch.tensor([13, 101, 257])
weight = torch.rand(3)
want = slots(ids, sizes, weight)
print("eager slots   :", want[0][0].tolist(), flush=True)
got = torch.compile(slots)(ids, sizes, weight)
print("compiled slots:", got[0][0].tolist())
sys.exit(0 if torch.equal(want[0], got[0]) else 1)
