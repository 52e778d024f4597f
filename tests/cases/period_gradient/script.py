"""Learn the period of a sawtooth: gradient of the wrapped phase."""
import sys
import torch


def loss(phase, period, weight):
    scale = torch.sigmoid(weight) + 0.5
    saw = torch.remainder(phase, period)
    return (saw * scale).sum() + 0.01 * (period * period).sum()


def run(fn):
    period = torch.tensor([0.1, 0.1, 0.2, 0.1, 0.4, 0.2], requires_grad=True)
    value = fn(torch.tensor([1.0, 0.5, 6.0, 0.3, 2.4, 0.8]), period, torch.linspace(-1, 1, 6))
    value.backward()
    return value.item(), period.grad


want = run(loss)
got = run(torch.compile(loss))
print("loss:", want[0], got[0])
print("eager gradient   :", [round(v, 2) for v in want[1].tolist()])
print("compiled gradient:", [round(v, 2) for v in got[1].tolist()])
sys.exit(0 if torch.allclose(want[1], got[1], atol=1e-3) else 1)
