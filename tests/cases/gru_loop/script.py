"""A gated recurrent loop over time, with gradients."""
import sys
import torch


def run(x, h, wx, wh):
    states = []
    for t in range(x.shape[1]):
        gx, gh = x[:, t] @ wx, h @ wh
        z = torch.sigmoid(gx[:, :8] + gh[:, :8])
        n = torch.tanh(gx[:, 8:] + z * gh[:, 8:])
        h = (1 - z) * n + z * h
        states.append(h)
    out = torch.stack(states, dim=1)
    return (out * out).mean(), out


def grads(fn):
    torch.manual_seed(0)
    x, h = torch.randn(3, 5, 6), torch.zeros(3, 8)
    wx, wh = (torch.randn(6, 16) * 0.3).requires_grad_(), (torch.randn(8, 16) * 0.3).requires_grad_()
    loss, out = fn(x, h, wx, wh)
    loss.backward()
    return out.detach(), wx.grad, wh.grad


want, got = grads(run), grads(torch.compile(run))
err = max((a - b).abs().max().item() for a, b in zip(want, got))
print("max abs error:", err)
sys.exit(0 if err < 1e-5 else 1)
