"""Power iteration with a counted loop."""
import torch
torch.manual_seed(0)
def iterate(a, v):
    def more(i, x):
        return i < 4
    def step(i, x):
        y = a @ x
        return i + 1, y / y.norm()
    n, v = torch.while_loop(more, step, (0, v))
    return v * 2
a, v = torch.randn(5, 5), torch.randn(5)
want = iterate(a, v)
got = torch.compile(iterate)(a, v)
print((want - got).abs().max())
