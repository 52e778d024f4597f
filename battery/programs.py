"""Programs of 8 to 30 operations with one operation embedded: models, training, breaks, dynamic.

Every program ends by comparing eager with compiled, with exit code 0 or 1.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from battery.operations import OPERATIONS


@dataclass(frozen=True)
class Filler:
    """A line around the operation."""

    line: str
    uses: tuple[str, ...] = ()
    # Whether a difference before it is still a difference after it.
    keeps: bool = True


FILLERS = (
    Filler("x = x * {a} + {b}"),
    Filler("x = x + {a} * start"),
    Filler("x = x * {a} - start * {b}"),
    Filler("x = x / (1.0 + start * start)"),
    Filler("x = torch.sin(x)", ("sin",)),
    Filler("x = x * torch.cos(start)", ("cos",)),
    Filler("x = x * torch.sigmoid(start)", ("sigmoid", "exp")),
    Filler("x = x @ w", ("matmul",)),
    Filler("x = x + w.sum(dim=0) * {b}", ("sum",)),
    Filler("x = torch.tanh(x)", ("tanh",), keeps=False),
    Filler("x = F.relu(x) + {b} * x", ("relu", "maximum"), keeps=False),
    Filler("x = x - x.mean(dim=-1, keepdim=True)", ("mean",), keeps=False),
    Filler("x = x.clamp(-4.0, 4.0)", ("clamp", "minimum", "maximum"), keeps=False),
    Filler("x = torch.where(x > {b}, x, x * {a})", ("where",), keeps=False),
    Filler("x = x / (1.0 + x.abs())", ("abs",), keeps=False),
    Filler("x = x - x.amax(dim=-1, keepdim=True) * {b}", ("amax",), keeps=False),
)


@dataclass(frozen=True)
class Body:
    """Code that a template puts into its function: lines before and after the middle."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    rows: int
    cols: int

    def lines(self, indent: str, between: str = "") -> str:
        middle = (between,) if between else ()
        return "\n".join(indent + line for line in (*self.before, *middle, *self.after))


def draw_body(chance: random.Random, operation: str, avoid: tuple[str, ...]) -> Body:
    """The operation in the middle of lines that do not use what the fault changes."""
    embedded = OPERATIONS[operation]
    clear = [f for f in FILLERS if not {*f.uses} & {*embedded.uses, *avoid}]
    before = [_fill(chance, f) for f in chance.sample(clear, chance.randint(2, 4))]
    keeping = [f for f in clear if f.keeps]
    after = [_fill(chance, f) for f in chance.sample(keeping, min(len(keeping), 3))]
    return Body(
        before=("start = x", *before, *embedded.lines),
        after=tuple(after),
        rows=chance.randint(6, 16),
        cols=chance.choice((17, 24, 32, 37)),
    )


def _fill(chance: random.Random, filler: Filler) -> str:
    a, b = chance.choice((0.5, 0.75, 1.25)), chance.choice((0.1, 0.2, 0.3))
    return filler.line.format(a=a, b=b)


HEAD = '''"""{title}"""
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F


'''
DATA = """
torch.manual_seed({seed})
x, w = torch.randn({rows}, {cols}), torch.randn({cols}, {cols}) / {cols} ** 0.5
index = torch.randint(0, {cols}, ({rows}, {cols}))
"""
END = """
same = all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(want, got))
print("finite:", all(b.isfinite().all().item() for b in got), "same:", same)
sys.exit(0 if same else 1)
"""


def write_function(body: Body) -> str:
    return (
        f"def scores(x, w, index):\n{body.lines('    ')}\n    return x\n\n{DATA}"
        "want = [scores(x, w, index)]\n"
        'print("eager ok", flush=True)\n'
        "got = [torch.compile(scores)(x, w, index)]"
    )


def write_breaks(body: Body) -> str:
    between = 'print("half way", flush=True)'
    return (
        f"def scores(x, w, index):\n{body.lines('    ', between)}\n    return x\n\n{DATA}"
        "want = [scores(x, w, index)]\n"
        "got = [torch.compile(scores)(x, w, index)]"
    )


def write_dynamic(body: Body) -> str:
    return (
        f"def scores(x, w, index):\n{body.lines('    ')}\n    return x\n\n{DATA}"
        "batches = [(x, w, index), (x[:-1] * 1.5, w, index[:-1])]\n"
        "want = [scores(*batch) for batch in batches]\n"
        'print("eager ok", flush=True)\n'
        "compiled = torch.compile(scores, dynamic=True)\n"
        "got = [compiled(*batch) for batch in batches]"
    )


_MODEL = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear({cols}, {cols})
        self.leave = nn.Linear({cols}, {cols})

    def forward(self, x, index):
        w = self.leave.weight
        x = self.enter(x) * 2.0
"""


def write_module(body: Body) -> str:
    return (
        f"{_MODEL}{body.lines(' ' * 8)}\n        return x + self.leave(start)\n\n{DATA}"
        "net = Net().eval()\n"
        "with torch.no_grad():\n"
        "    want = [net(x, index)]\n"
        '    print("eager ok", flush=True)\n'
        "    got = [torch.compile(net)(x, index)]"
    )


def write_training(body: Body) -> str:
    return (
        f"{_MODEL}{body.lines(' ' * 8)}\n        return x + self.leave(start)\n\n\n"
        "def train(model, x, index):\n"
        "    net.zero_grad()\n"
        "    out = model(x, index)\n"
        "    (out * out).mean().backward()\n"
        "    return [out.detach(), *(p.grad.clone() for p in net.parameters())]\n\n"
        f"{DATA}"
        "net = Net()\n"
        "want = train(net, x, index)\n"
        'print("eager ok", flush=True)\n'
        "got = train(torch.compile(net), x, index)"
    )


TEMPLATES: dict[str, Callable[[Body], str]] = {
    "function": write_function,
    "module": write_module,
    "training": write_training,
    "breaks": write_breaks,
    "dynamic": write_dynamic,
}


def write_program(
    chance: random.Random, operation: str, template: str, avoid: tuple[str, ...]
) -> str:
    body = draw_body(chance, operation, avoid)
    text = HEAD + TEMPLATES[template](body) + END
    return text.format(
        title=f"Scores of a batch ({template}).",
        seed=chance.randint(0, 999),
        rows=body.rows,
        cols=body.cols,
    )
