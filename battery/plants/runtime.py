"""Code that runs around a compiled graph once it is compiled."""

from __future__ import annotations

from battery.fault import Recipe

RECIPES = (
    Recipe(
        "tanh",
        "runtime",
        "crash",
        "torch._inductor.output_code",
        """
original = m.CompiledFxGraph.__call__
calls = []

def __call__(self, inputs):
    calls.append(len(inputs))
    if len(calls) == 3:
        raise RuntimeError("stale handle of a compiled graph")
    return original(self, inputs)

m.CompiledFxGraph.__call__ = __call__
""",
        ("stale handle", "CompiledFxGraph", "third", "call 3"),
        ("wrapper",),
        detail="third-call",
        script='''"""Iterate a map until it settles."""
import sys
import torch


def step(x, w):
    y = torch.tanh(x @ w) * 0.9 + x * 0.1
    return y - y.mean(dim=-1, keepdim=True) * 0.05


torch.manual_seed(2)
x, w = torch.randn(8, 16), torch.randn(16, 16) / 4
want, got = x, x
compiled = torch.compile(step)
for _ in range(5):
    want, got = step(want, w), compiled(got, w)
same = torch.allclose(want, got, atol=1e-4)
print("finite:", got.isfinite().all().item(), "same:", same)
sys.exit(0 if same else 1)
''',
    ),
)
