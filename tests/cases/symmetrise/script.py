"""Scale the rows of a table in place, then make it symmetric."""
import sys
import torch


def balance(table, order):
    gain = 1.0 + torch.sigmoid(table.mean())
    table.index_put_((order,), table[order] * gain)
    table.add_(table.flip(0))
    return table, table.std(dim=1)


torch.manual_seed(0)
table = torch.rand(6, 8)
order = torch.arange(6)
want = balance(table.clone(), order)
got = torch.compile(balance)(table.clone(), order)
err = (want[0] - got[0]).abs().amax(dim=1)
print("max error per row:", [round(e, 4) for e in err.tolist()])
sys.exit(0 if err.max() < 1e-4 else 1)
