"""One step of meta-learning: the loss after an inner gradient step, differentiated."""
import sys
import torch


@torch.compile
def predict(x, w1, w2):
    return torch.tanh(x @ w1) @ w2


def meta_gradient(x, y, w1, w2, model):
    inner = (model(x, w1, w2) - y).square().mean()
    g1, g2 = torch.autograd.grad(inner, (w1, w2), create_graph=True)
    outer = (model(x.flip(0), w1 - 0.1 * g1, w2 - 0.1 * g2) - y).square().mean()
    return torch.autograd.grad(outer, (w1, w2))


def plain(x, w1, w2):
    return torch.tanh(x @ w1) @ w2


torch.manual_seed(0)
x, y = torch.randn(8, 5), torch.randn(8, 2)
w1 = torch.randn(5, 7, requires_grad=True)
w2 = torch.randn(7, 2, requires_grad=True)
want = meta_gradient(x, y, w1, w2, plain)
print("eager   :", want[0].norm().item(), flush=True)
got = meta_gradient(x, y, w1, w2, predict)
print("compiled:", got[0].norm().item())
sys.exit(0 if all(torch.allclose(a, b, atol=1e-5) for a, b in zip(want, got)) else 1)
