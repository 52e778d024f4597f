"""Dynamo: what it cannot capture, and what it captures wrongly."""

from __future__ import annotations

from battery.fault import Recipe

_BRANCH = '''"""Refine until the largest entry is small."""
import sys
import torch


def refine(x, w):
    y = torch.tanh(x @ w)
    scaled = y * 0.5 + x
    if scaled.abs().max() > 1.0:
        scaled = scaled / scaled.abs().max()
    return scaled.softmax(dim=-1)


torch.manual_seed(1)
x, w = torch.randn(8, 12), torch.randn(12, 12)
print("eager ok", refine(x, w).shape, flush=True)
print("compiled ok", torch.compile(refine, fullgraph=True)(x, w).shape)
sys.exit(0)
'''
_PRINT = '''"""Report the scores while they are computed."""
import sys
import torch


def report(x, w):
    scores = torch.sin(x @ w) + x.mean(dim=-1, keepdim=True)
    print("scores of", scores.shape)
    return (scores - scores.mean()).cumsum(dim=0)


torch.manual_seed(1)
x, w = torch.randn(8, 12), torch.randn(12, 12)
print("eager ok", report(x, w).shape, flush=True)
print("compiled ok", torch.compile(report, fullgraph=True)(x, w).shape)
sys.exit(0)
'''
_FILE = '''"""Log a running mean to a file while computing."""
import os
import sys
import torch


def logged(x, w):
    y = torch.tanh(x @ w)
    with open(os.devnull, "w") as log:
        log.write(str(y.shape))
    return y - y.mean(dim=0)


torch.manual_seed(1)
x, w = torch.randn(8, 12), torch.randn(12, 12)
print("eager ok", logged(x, w).shape, flush=True)
print("compiled ok", torch.compile(logged, fullgraph=True)(x, w).shape)
sys.exit(0)
'''
_FLAG = '''"""A layer with a switch for its normalisation."""
import sys
import torch


def layer(x, w, normalise):
    y = torch.tanh(x @ w) * 2.0
    if normalise:
        y = y - y.mean(dim=-1, keepdim=True)
    return y * y + x


torch.manual_seed(1)
x, w = torch.randn(8, 12), torch.randn(12, 12)
compiled = torch.compile(layer)
want = [layer(x, w, flag) for flag in (True, False)]
got = [compiled(x, w, flag) for flag in (True, False)]
same = all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))
print("finite:", all(b.isfinite().all().item() for b in got), "same:", same)
sys.exit(0 if same else 1)
'''


def _refused(operation: str, script: str, *names: str) -> Recipe:
    return Recipe(
        operation,
        "dynamo",
        "not-inductor",
        culprits=("dynamo", "graph break", "fullgraph", *names),
        also=("user",),
        script=script,
    )


RECIPES = (
    _refused("branch", _BRANCH, "data-dependent"),
    _refused("print", _PRINT, "print"),
    _refused("file", _FILE, "open"),
    Recipe(
        "flag",
        "dynamo",
        "not-inductor",
        "torch._dynamo.guards",
        """
def BOOL_MATCH(self, guard):
    return None

m.GuardBuilder.BOOL_MATCH = BOOL_MATCH
""",
        ("dynamo", "guard"),
        script=_FLAG,
    ),
)
