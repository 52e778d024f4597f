"""Write two rows of a table that starts as one repeated row."""
import sys
import torch


def fill(row, rows, values):
    table = torch.relu(row).expand(4, 8)
    table = torch.index_add(table, 0, rows, values)
    return table, table.sum(dim=0)


torch.manual_seed(0)
row, rows, values = torch.rand(1, 8), torch.tensor([0, 2]), torch.rand(2, 8)
want = fill(row, rows, values)
got = torch.compile(fill)(row, rows, values)
print("eager   :", [round(v, 3) for v in want[0][:, 0].tolist()])
print("compiled:", [round(v, 3) for v in got[0][:, 0].tolist()])
sys.exit(0 if torch.allclose(want[0], got[0]) else 1)
