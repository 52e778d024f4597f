"""Route a batch through one of two branches, chosen by a flag."""
import sys
import torch


def route(x, flag):
    def left(t):
        v = t[:, ::2]
        index = torch.tensor([[0, 0, 1], [1, 1, 2], [2, 2, 0], [0, 0, 2]])
        return v.scatter_add(1, index, torch.ones(4, 3))

    def right(t):
        return t[:, 1::2] - 3.0

    y = torch.cond(flag, left, right, (x,))
    return y.sum(dim=1), y.argmax(dim=1)


x = torch.arange(24, dtype=torch.float32).reshape(4, 6)
flag = torch.tensor(True)
want = route(x, flag)
print("eager   :", want[0].tolist(), flush=True)
got = torch.compile(route)(x, flag)
print("compiled:", got[0].tolist())
sys.exit(0 if torch.allclose(want[0], got[0]) else 1)
