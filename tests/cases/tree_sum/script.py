"""Value of a deep chain of nested scopes, by recursion."""
import sys
import torch


def value(scope, depth, leak):
    if depth == 0:
        return torch.tanh(scope)
    return value(scope * leak, depth - 1, leak) + 0.01


def evaluate(x):
    y = torch.nn.functional.softplus(x)
    z = value(y, 300, 0.999)
    return z.sum() + y.mean()


torch.manual_seed(0)
x = torch.randn(16)
want = evaluate(x)
print("eager   :", want.item(), flush=True)
got = torch.compile(evaluate)(x)
print("compiled:", got.item())
sys.exit(0 if torch.allclose(want, got) else 1)
