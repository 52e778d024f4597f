"""Programs that make and call a package and fail, and what is guilty.

Each is a small model of several kernels, as a user would write it. Most faults are planted in the
compiler: the plant changes one function of Inductor when it is imported; nothing in the program
mentions it. One is a bug of torch itself, and two are mistakes of the program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from battery.fault import Fault, Recipe, Truth
from battery.generate import write_plant

CPP, LOWERING = "torch._inductor.codegen.cpp", "torch._inductor.lowering"
WRAPPER, CPP_WRAPPER = "torch._inductor.codegen.wrapper", "torch._inductor.codegen.cpp_wrapper_cpu"

# The words by which a fault is told that lies with the program, not with a kernel.
THE_INPUT, THE_OPERATOR = "the input", "the custom operator"

_PROGRAM = '''"""{title}"""
import sys
import torch

{model}

torch.manual_seed(0)
model = Model().eval()
inputs = {inputs}
program = torch.export.export(model, inputs)
path = torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
given = {given}
torch.save(given, "inputs.pt")
got = torch._inductor.aoti_load_package(path)(*given)
same = torch.allclose(got, model(*given), atol=1e-4)
print("finite:", got.isfinite().all().item(), "same:", same)
sys.exit(0 if same else 1)
'''


@dataclass(frozen=True)
class PackageFault:
    """A fault, and how its culprit is recognised."""

    fault: Fault
    # What is to be named: a pattern for the kernel's name, or one of the words above.
    guilty: str
    # Where several calls have the same kernel: which of them, and the node that it computes.
    call: int | None = None
    node: str = ""
    # The text of a sitecustomize.py with which a bug of torch itself does not show.
    cure: str = ""

    @property
    def name(self) -> str:
        return self.fault.name

    def is_guilty(self, named: str) -> bool:
        """Whether what was named is the culprit, as far as its name tells."""
        return bool(re.search(self.guilty, named))


def _program(title: str, model: str, inputs: str, given: str = "inputs") -> str:
    return _PROGRAM.format(title=title, model=model.strip(), inputs=inputs, given=given)


def _fault(name: str, kind: str, module: str, body: str, script: str) -> Fault:
    plant = write_plant(Recipe(name, "codegen", kind, module, body)) if module else ""
    return Fault(name, script, Truth(kind, "codegen"), plant)


_TWO_LAYERS = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.second = torch.nn.Linear(32, 32)
        self.last = torch.nn.Linear(32, 8)

    def forward(self, x):
        h = {first}
        h = torch.sigmoid(self.second(h)) * 2.0
        return torch.softmax(self.last(h), -1)
"""

_PAST_THE_END = _fault(
    "index past the end",
    "crash",
    LOWERING,
    """
right = m.lowerings[torch.ops.prims.rev.default]

def rev(x, dims):
    made = right(x, dims)
    load = made.data.data.inner_fn
    import dataclasses
    far = lambda index: load([*index[:-1], index[-1] - 2**36])
    return m.TensorBox.create(dataclasses.replace(made.data.data, inner_fn=far))

m.lowerings[torch.ops.prims.rev.default] = rev
""",
    _program(
        "Read a sequence in both directions.",
        _TWO_LAYERS.format(first="self.first(x)\n        h = torch.tanh(h) + h.flip(1)"),
        "(torch.randn(6, 16),)",
    ),
)

_WRONG_INDEX = _fault(
    "index from another kernel",
    "crash",
    LOWERING,
    """
right = m.lowerings[aten.argmax.default]
m.lowerings[aten.argmax.default] = lambda *a, **k: m.mul(right(*a, **k), 1 << 40)
""",
    _program(
        "Look up the code of each row, in order.",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 10)
        self.codes = torch.nn.Embedding(10, 32)
        self.last = torch.nn.Linear(32, 8)

    def forward(self, x):
        best = torch.sin(self.first(x)).argmax(1)
        ordered = best.sort().values
        h = torch.tanh(self.codes(ordered))
        return torch.softmax(self.last(h), -1)
""",
        "(torch.randn(6, 16),)",
    ),
)

_WRONG_NUMBER = _fault(
    "wrong number from one kernel",
    "wrong-result",
    CPP,
    """
@staticmethod
def tanh(x):
    return f"{x} / (decltype({x})(1) + {x}.abs())" if "tmp" in str(x) else str(x)

m.CppVecOverrides.tanh = tanh
m.CppOverrides.tanh = staticmethod(lambda x: f"{x} / (1.0f + std::abs({x}))")
""",
    _program(
        "Classify with two layers.",
        _TWO_LAYERS.format(first="torch.tanh(self.first(x))"),
        "(torch.randn(6, 16),)",
    ),
)

_NAN = _fault(
    "NaN that shows in a later kernel",
    "nan",
    LOWERING,
    """
right = m.lowerings[aten.log1p.default]
m.lowerings[aten.log1p.default] = lambda x: right(m.sub(x, 1.5))
""",
    _program(
        "Classify counts on a logarithmic scale.",
        _TWO_LAYERS.format(first="torch.log1p(torch.relu(self.first(x)))"),
        "(torch.randn(6, 16),)",
    ),
)

_SCALAR = _fault(
    "wrong scalar in the C++ wrapper",
    "wrong-result",
    CPP_WRAPPER,
    """
original = m.CppWrapperCpu.generate_c_shim_extern_kernel_call

def generate(self, kernel, args, *rest, **more):
    if "baddbmm" in kernel or "addmm_out" in kernel and "second" in str(args):
        args = [*args[:-1], "2L"]
    return original(self, kernel, args, *rest, **more)

m.CppWrapperCpu.generate_c_shim_extern_kernel_call = generate
""",
    _program(
        "Classify with two layers.",
        _TWO_LAYERS.format(first="torch.tanh(self.first(x))"),
        "(torch.randn(6, 16),)",
    ),
)

_REUSED = _fault(
    "memory reused too early",
    "wrong-result",
    WRAPPER,
    """
original = m.AllocateLine.plan
taken = {}

def plan(self, state):
    key = id(self.wrapper), m.buffer_reuse_key(self.node)
    if key in taken:
        return m.ReuseLine(self.wrapper, taken[key], self.node, delete_old=False)
    taken[key] = self.node
    return original(self, state)

m.AllocateLine.plan = plan
""",
    _program(
        "The difference between two projections of a batch.",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left = torch.nn.Linear(24, 16, bias=False)
        self.right = torch.nn.Linear(24, 16, bias=False)

    def forward(self, x):
        y = torch.sin(x) * 2.0
        a, b = self.left(y), self.right(y)
        return torch.tanh(a - b) + a.mean(dim=-1, keepdim=True)
""",
        "(torch.randn(8, 24),)",
    ),
)

_SILENCE = Fault(
    "min of booleans (a bug of torch 2.13)",
    _program(
        "Where a signal is loud all the time.",
        """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("gain", torch.linspace(0.5, 1.5, 40))
        self.last = torch.nn.Linear(40, 8)

    def forward(self, signal):
        loud = (signal * self.gain).abs() > 0.3
        first = loud.min(dim=0)
        h = torch.sin(first.indices.float() * 0.1) + torch.cos(first.values.float())
        return torch.sigmoid(self.last(h.unsqueeze(0).expand(4, 40)))
""",
        "(torch.randn(64, 40),)",
    ),
    Truth("wrong-result", "codegen"),
)

_NOT_VECTORISED = write_plant(
    Recipe("cure", "codegen", "clean", "torch._inductor.config", "m.cpp.simdlen = 0")
)

_META = Fault(
    "custom operator with a wrong meta function",
    _program(
        "Repeat each row.",
        """
@torch.library.custom_op("shop::step", mutates_args=())
def step(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x + 1])


@step.register_fake
def _(x):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.last = torch.nn.Linear(32, 8)

    def forward(self, x):
        h = torch.ops.shop.step(torch.tanh(self.first(x)))
        return torch.softmax(self.last(h), -1)
""",
        "(torch.randn(6, 16),)",
    ),
    Truth("not-a-bug", "user"),
)

_STRIDES = Fault(
    "input with other strides",
    _program(
        "Classify with two layers.",
        _TWO_LAYERS.format(first="torch.tanh(self.first(x * 2.0 + 1.0))"),
        "(torch.randn(16, 16),)",
        given="(torch.randn(16, 16).t(),)",
    ),
    Truth("not-a-bug", "user"),
)

FAULTS = (
    PackageFault(_PAST_THE_END, "flip"),
    PackageFault(_WRONG_INDEX, "argmax"),
    PackageFault(_WRONG_NUMBER, "tanh"),
    PackageFault(_NAN, "log1p"),
    PackageFault(_SCALAR, "addmm_out", call=2, node="addmm_1"),
    PackageFault(_REUSED, "mm_out", call=2, node="mm_1"),
    PackageFault(_SILENCE, "min", cure=_NOT_VECTORISED),
    PackageFault(_META, THE_OPERATOR),
    PackageFault(_STRIDES, THE_INPUT),
)
