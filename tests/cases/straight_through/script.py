"""Gradient through a quantiser with a straight-through estimator."""
import sys
import torch


class Quantise(torch.autograd.Function):
    """Rounds in the forward, passes the gradient straight through in the backward."""

    @staticmethod
    def forward(x, step):
        return torch.round(x / step) * step

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def loss(weight, x, target):
    quantised = Quantise.apply(weight, 0.25)
    prediction = torch.sigmoid(x @ quantised)
    return (prediction - target).square().mean()


def step(weight, x, target):
    gradient = torch.func.grad(loss)(weight, x, target)
    return weight - 0.1 * gradient


torch.manual_seed(0)
weight, x, target = torch.randn(6, 3), torch.randn(20, 6), torch.rand(20, 3)
want = step(weight, x, target)
got = torch.compile(step)(weight, x, target)
print("moved in eager:", (want - weight).abs().max().item(), "compiled:", (got - weight).abs().max().item())
sys.exit(0 if torch.allclose(want, got, atol=1e-6) else 1)
