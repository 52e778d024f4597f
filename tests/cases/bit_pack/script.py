"""Read an int64 table as pairs of int32, then reset three of its columns."""
import sys
import torch


def repack(table):
    pairs = table.view(torch.int32) * 2
    pairs.sub_(-4)
    total = table.sum(dim=0)
    table[:, 2:5] = 2
    return pairs.view(torch.int64), total


table = torch.arange(-12, 12, dtype=torch.int64).reshape(4, 6)
want = repack(table.clone())
got = torch.compile(repack)(table.clone())
print("eager   :", want[0][0].tolist())
print("compiled:", got[0][0].tolist())
sys.exit(0 if torch.equal(want[0], got[0]) else 1)
