"""Programs of many kinds that nothing is wrong with; all must come out clean."""

from __future__ import annotations

_HEAD = '''"""{title}"""
import math
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F


'''
_END = """
same = all(
    torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) for a, b in zip(want, got)
)
print("same:", same)
sys.exit(0 if same else 1)
"""

# Title and text of each; `want` and `got` are lists of tensors at their end.
_PROGRAMS: dict[str, tuple[str, str]] = {
    "transformer": (
        "One block of a transformer, inference.",
        """
class Block(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


torch.manual_seed(0)
net, x = Block().eval(), torch.randn(2, 9, 32)
with torch.no_grad():
    want, got = [net(x)], [torch.compile(net)(x)]
""",
    ),
    "masked_attention": (
        "Attention with a legitimate mask of -inf.",
        """
def attend(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    future = torch.triu(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool), diagonal=1)
    scores = scores.masked_fill(future, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v, scores


torch.manual_seed(0)
q, k, v = (torch.randn(2, 7, 16) for _ in range(3))
want, got = attend(q, k, v), torch.compile(attend)(q, k, v)
""",
    ),
    "training": (
        "Three steps of a classifier, forward and backward.",
        """
def train(model, net, x, t):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), t)
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in net.parameters())]


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.Tanh(), nn.Linear(24, 5))


one, two = make(), make()
x, t = torch.randn(12, 16), torch.randint(0, 5, (12,))
want, got = train(one, one, x, t), train(torch.compile(two), two, x, t)
""",
    ),
    "convolution": (
        "A small image network with batch norm, inference.",
        """
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 8, 3, stride=2), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
)
torch.manual_seed(0)
net, x = net.eval(), torch.randn(2, 3, 16, 16)
with torch.no_grad():
    want, got = [net(x)], [torch.compile(net)(x)]
""",
    ),
    "recurrent": (
        "A gated recurrent cell, unrolled.",
        """
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 12)

    def forward(self, xs, h):
        outs = []
        for x in xs.unbind(1):
            h = self.cell(x, h)
            outs.append(h)
        return torch.stack(outs, dim=1)


torch.manual_seed(0)
net, xs, h = Gated().eval(), torch.randn(3, 4, 8), torch.zeros(3, 12)
with torch.no_grad():
    want, got = [net(xs, h)], [torch.compile(net)(xs, h)]
""",
    ),
    "graph_breaks": (
        "A function with prints and a branch on data.",
        """
def process(x):
    y = torch.sin(x) * 2.0
    print("half way", y.shape)
    if y.sum() > 0:
        y = y - y.mean()
    else:
        y = y + y.mean()
    return torch.relu(y) + 0.5 * y


torch.manual_seed(0)
x = torch.randn(8, 20)
want, got = [process(x)], [torch.compile(process)(x)]
""",
    ),
    "dynamic": (
        "Batches of changing length.",
        """
def pool(x, w):
    y = F.gelu(x @ w)
    z = y - y.amax(dim=0, keepdim=True)
    return torch.softmax(z, dim=-1).cumsum(dim=0)


torch.manual_seed(0)
w = torch.randn(16, 16)
batches = [torch.randn(n, 16) for n in (5, 8, 13)]
compiled = torch.compile(pool, dynamic=True)
want, got = [pool(x, w) for x in batches], [compiled(x, w) for x in batches]
""",
    ),
    "integers": (
        "Counting with integers and masks.",
        """
def count(ids, weight):
    even = (ids % 2 == 0) & (ids // 3 > 1)
    hist = torch.zeros(16, dtype=torch.int64).scatter_add(0, ids, torch.ones_like(ids))
    ranks = torch.argsort(hist, stable=True)
    return [hist, ranks, torch.where(even, ids, -ids), weight[ids].cumsum(dim=0)]


torch.manual_seed(0)
ids, weight = torch.randint(0, 16, (40,)), torch.arange(16)
want, got = count(ids, weight), torch.compile(count)(ids, weight)
""",
    ),
    "mutation": (
        "A running buffer that is changed in place, and views of it.",
        """
def update(buffer, x):
    buffer.mul_(0.9).add_(x, alpha=0.1)
    window = buffer[2:6]
    window.clamp_(-0.5, 0.5)
    return buffer.sum(dim=-1), window * 2.0


torch.manual_seed(0)
x, first, second = torch.randn(8, 12), torch.zeros(8, 12), torch.zeros(8, 12)
compiled = torch.compile(update)
want = [*update(first, x), *update(first, x * 2), first]
got = [*compiled(second, x), *compiled(second, x * 2), second]
""",
    ),
    "embedding": (
        "Loss of a small language model, with gradients.",
        """
class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(40, 16), nn.Embedding(10, 16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 40)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def gradients(model, net):
    net.zero_grad()
    loss = model(ids, targets)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in net.parameters())]


torch.manual_seed(0)
net = Language()
ids, targets = torch.randint(0, 40, (3, 10)), torch.randint(0, 40, (3, 10))
want, got = gradients(net, net), gradients(torch.compile(net), net)
""",
    ),
    "bfloat16": (
        "A layer in bfloat16, compared as bfloat16 should be.",
        """
def layer(x, w):
    y = F.silu(x @ w)
    return [(y * 0.5 + x).float() / 8]


torch.manual_seed(0)
x = torch.randn(8, 32).to(torch.bfloat16)
w = (torch.randn(32, 32) / 8).to(torch.bfloat16)
want, got = layer(x, w), torch.compile(layer)(x, w)
same = torch.allclose(want[0], got[0], rtol=3e-2, atol=2e-2)
want, got = [torch.tensor(1.0)], [torch.tensor(float(same))]
""",
    ),
    "honest_nan": (
        "NaN and Inf that eager has too.",
        """
def ratios(x, y):
    ratio = x / y
    logs = torch.log(x)
    return [ratio, logs, torch.nan_to_num(logs, nan=0.0, posinf=1.0, neginf=-1.0), ratio.isnan()]


x, y = torch.tensor([1.0, 0.0, -2.0, 3.0] * 5), torch.tensor([0.0, 0.0, 1.0, 2.0] * 5)
want, got = ratios(x, y), torch.compile(ratios)(x, y)
want, got = [t.float() for t in want], [t.float() for t in got]
""",
    ),
    "seeded_dropout": (
        "Dropout with the same generator on both sides.",
        """
import torch._inductor.config

torch._inductor.config.fallback_random = True
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 8))
x = torch.randn(10, 16)
compiled = torch.compile(net)
torch.manual_seed(4)
want = [net(x)]
torch.manual_seed(4)
got = [compiled(x)]
""",
    ),
    "selection": (
        "Sorting, the best few, and where they were.",
        """
def best(x):
    top = torch.topk(x, 3, dim=-1)
    order = torch.sort(x, dim=0, descending=True)
    low = x.min(dim=1)
    return [top.values, top.indices, order.values, low.values, low.indices, x.argmax(dim=0)]


torch.manual_seed(0)
x = torch.randn(9, 21)
want, got = best(x), torch.compile(best)(x)
want, got = [t.float() for t in want], [t.float() for t in got]
""",
    ),
}

HEALTHY: dict[str, str] = {
    name.replace("_", "-"): _HEAD.format(title=title) + body.strip("\n") + _END
    for name, (title, body) in _PROGRAMS.items()
}
