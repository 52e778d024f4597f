"""Differences that no compiler is to blame for."""

from __future__ import annotations

from battery.fault import Recipe

_HEAD = '''"""{title}"""
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F


'''
_END = """
print("finite:", got.isfinite().all().item(), "same:", same)
sys.exit(0 if same else 1)
"""


def _innocent(name: str, title: str, body: str, *names: str) -> Recipe:
    return Recipe(
        name,
        "user",
        "not-a-bug",
        culprits=names,
        also=("none",),
        script=_HEAD.format(title=title) + body.strip("\n") + _END,
    )


_RANDOM = ("random", "seed", "rng", "nondeterministic")
_ROUNDING = ("rounding", "precision", "tolerance", "noise", "float64", "order")

RECIPES = (
    _innocent(
        "dropout",
        "A regularised layer, still in training mode.",
        """
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 8))
x = torch.randn(10, 16)
want, got = net(x), torch.compile(net)(x)
same = torch.allclose(want, got, atol=1e-4)
""",
        "dropout",
        *_RANDOM,
    ),
    _innocent(
        "noise",
        "Augment a batch with noise.",
        """
def augment(x):
    y = torch.tanh(x) * 0.5
    y = y + 0.1 * torch.randn_like(x)
    return y - y.mean(dim=-1, keepdim=True)


torch.manual_seed(0)
x = torch.randn(10, 16)
want, got = augment(x), torch.compile(augment)(x)
same = torch.allclose(want, got, atol=1e-4)
""",
        "randn",
        *_RANDOM,
    ),
    _innocent(
        "uninitialised",
        "Collect rows in a buffer that is not filled to its end.",
        """
def collect(x):
    buffer = torch.empty(64, x.shape[-1])
    buffer[: x.shape[0]] = torch.sin(x) * 2.0
    return buffer * 1.5


torch.manual_seed(0)
x = torch.randn(10, 16)
junk = [torch.full((64, 16), float(i)) for i in range(1, 20)]
del junk
want = collect(x)
junk = [torch.full((64, 16), -float(i)) for i in range(1, 20)]
del junk
got = torch.compile(collect)(x)
same = torch.equal(want, got)
""",
        "empty",
        "uninitial",
    ),
    _innocent(
        "exact",
        "Compare sums of a long signal bit by bit.",
        """
def moments(x):
    y = x * 100.0 + 1234.5
    return torch.stack([(y * y).sum(), (y - y.mean()).sum(), y.var()])


torch.manual_seed(0)
x = torch.randn(200_000)
want, got = moments(x), torch.compile(moments)(x)
same = torch.equal(want, got)
""",
        *_ROUNDING,
    ),
    _innocent(
        "cancel",
        "A difference of large numbers that are nearly the same.",
        """
def residual(x):
    big = x * 1.0e4 + 3.0e4
    mean = (big * big).mean(dim=-1)
    return mean - big.mean(dim=-1) ** 2 - big.var(dim=-1, unbiased=False)


torch.manual_seed(0)
x = torch.randn(6, 5000)
want, got = residual(x), torch.compile(residual)(x)
same = torch.allclose(want, got, rtol=1e-3)
""",
        "cancel",
        "condition",
        *_ROUNDING,
    ),
    _innocent(
        "half",
        "A chain in bfloat16, compared as if it were float32.",
        """
def chain(x):
    y = torch.sin(x) * 1.7 + x
    y = torch.tanh(y * 0.9) + y * 0.3
    return (y * y - x).float()


torch.manual_seed(0)
x = torch.randn(12, 32, dtype=torch.bfloat16)
want, got = chain(x), torch.compile(chain)(x)
same = torch.allclose(want, got, rtol=1e-5, atol=1e-6)
""",
        "bfloat16",
        "bf16",
        *_ROUNDING,
    ),
    _innocent(
        "eager",
        "A model whose layers do not fit together.",
        """
net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(30, 8))
torch.manual_seed(0)
x = torch.randn(10, 16)
got = torch.compile(net)(x)
same = torch.allclose(net(x), got, atol=1e-4)
""",
        "eager",
        "shape",
        "mat1 and mat2",
    ),
)
