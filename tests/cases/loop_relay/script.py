"""Write rows into a carried buffer in a while loop."""
import torch
from torch._higher_order_ops.while_loop import while_loop
torch.manual_seed(0)
def relay(x, index):
    h = x.tanh()
    def more(i, value):
        return i < 2
    def step(i, value):
        return i + 1, torch.scatter(value.clone(), 0, index, h)
    return while_loop(more, step, (torch.tensor(0), h))[1] + 1
x, index = torch.randn(4, 4), torch.tensor([[0], [1], [2], [3]])
want = relay(x, index)
got = torch.compile(relay)(x, index)
assert torch.allclose(want, got)
