"""Bugs that torch 2.13 has by itself: nothing is patched."""

from __future__ import annotations

from battery.fault import Recipe

_END = """
print("finite:", all(b.isfinite().all().item() for b in got), "same:", same)
sys.exit(0 if same else 1)
"""
# pytorch/pytorch#197895
_BUCKETS = '''"""Place ages in buckets, and average what falls into each."""
import sys
import torch


def place(ages, width, values):
    scaled = ages * 1.0
    bucket = torch.floor_divide(scaled, width)
    centred = values - values.mean()
    return bucket, torch.tanh(centred) * 2.0


torch.manual_seed(0)
ages = torch.tensor([1.0, 0.5, 6.0, 0.3, 2.4, 0.8, 3.3, 0.7])
width = torch.tensor([0.1, 0.1, 0.2, 0.1, 0.4, 0.2, 0.3, 0.1])
values = torch.randn(8, 16)
want, got = place(ages, width, values), torch.compile(place)(ages, width, values)
same = torch.equal(want[0], got[0]) and torch.allclose(want[1], got[1], atol=1e-4)'''
# pytorch/pytorch#184893
_SILENCE = '''"""In which step does each sensor fall silent first?"""
import sys
import torch


def silence(signal, gain):
    loud = (signal * gain).abs() > 0.3
    first = loud.min(dim=0)
    power = (signal * signal).sum(dim=0).sqrt()
    return [first.values.float(), first.indices.float(), power]


torch.manual_seed(4)
signal, gain = torch.randn(10, 24), torch.rand(24)
want, got = silence(signal, gain), torch.compile(silence)(signal, gain)
same = all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))'''
# pytorch/pytorch#196570
_DIAGONAL = '''"""Mix rows by weights that leave out each row itself."""
import sys
import torch


def mix(x, w):
    scores = torch.sin(x @ w)
    bias = torch.full((8, 8), 1000.0)
    bias[torch.arange(8).unsqueeze(0), torch.arange(8).unsqueeze(1)] = 0
    return [torch.softmax(scores * 2.0 - bias, dim=-1)]


torch.manual_seed(0)
x, w = torch.randn(8, 16), torch.randn(16, 8)
want, got = mix(x, w), torch.compile(mix)(x, w)
same = all(torch.allclose(a, b, atol=1e-4) for a, b in zip(want, got))'''
# pytorch/pytorch#195320
_ATTENTION = '''"""Attention whose keys are turned in another way than usual."""
import sys
import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        q = self.q(x).view(b, t, self.heads, self.size).permute(0, 2, 1, 3)
        k = self.k(x).view(b, t, self.heads, self.size).permute(0, 2, 3, 1)
        v = self.v(x).view(b, t, self.heads, self.size).permute(0, 2, 1, 3)
        w = (torch.matmul(q, k) * 0.35).softmax(dim=-1)
        return torch.matmul(w, v).permute(0, 2, 1, 3).reshape(b, t, c) + x


torch.manual_seed(0)
net, x = Attention().eval(), torch.randn(2, 4, 32)
with torch.no_grad():
    want, got = [net(x)], [torch.compile(net)(x)]
same = all(torch.allclose(a, b, atol=1e-3) for a, b in zip(want, got))'''

RECIPES = (
    Recipe(
        "floor_divide",
        "lowering",
        "wrong-result",
        culprits=("floor_divide", "aten.div", "floordiv", "div_prim", "div"),
        also=("codegen", "decomposition"),
        script=_BUCKETS + _END,
        detail="natural",
    ),
    Recipe(
        "argmin",
        "codegen",
        "wrong-result",
        culprits=("argmin", "reduction_combine_vec", "aten.min"),
        also=("lowering",),
        script=_SILENCE + _END,
        detail="natural",
    ),
    Recipe(
        "index_put",
        "codegen",
        "crash",
        culprits=("outer_loop_fusion", "outer-loop", "get_read_expr"),
        also=("scheduler",),
        script=_DIAGONAL + _END,
        detail="natural",
    ),
    Recipe(
        "attention",
        "joint-pass",
        "wrong-result",
        culprits=("fuse_attention", "sfdp", "scaled_dot_product_attention"),
        also=("post-grad-pass",),
        script=_ATTENTION + _END,
        detail="natural",
    ),
)
