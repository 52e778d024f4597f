"""The Python wrapper around the kernels: allocation, reuse, arguments of extern kernels."""

from __future__ import annotations

from battery.fault import Recipe

MODULE = "torch._inductor.codegen.wrapper"
_STATIC = ("function", "module", "breaks")
_PAIR = '''"""The difference between two projections of a batch."""
import sys
import torch


def differ(x, left, right):
    y = torch.sin(x) * 2.0
    a, b = torch.mm(y, left), torch.mm(y, right)
    return torch.tanh(a - b) + a.mean(dim=-1, keepdim=True)


torch.manual_seed(3)
x, left, right = torch.randn(8, 24), torch.randn(24, 16), torch.randn(24, 16)
want = differ(x, left, right)
got = torch.compile(differ)(x, left, right)
same = torch.allclose(want, got, atol=1e-4)
print("finite:", got.isfinite().all().item(), "same:", same)
sys.exit(0 if same else 1)
'''

RECIPES = (
    Recipe(
        "mm",
        "wrapper",
        "wrong-result",
        MODULE,
        """
original = m.PythonWrapperCodegen._generate_extern_kernel_out_helper

def swapped(self, kernel, out, out_view, args, *rest, **more):
    if kernel == "extern_kernels.mm" and args[0].startswith("buf"):
        args = [args[0], args[0]]
    return original(self, kernel, out, out_view, args, *rest, **more)

m.PythonWrapperCodegen._generate_extern_kernel_out_helper = swapped
""",
        ("extern_kernels.mm", "aten.mm", "mm", "swapped"),
        ("codegen", "runtime"),
        detail="arguments",
        script='''"""Score pairs of features with a learned metric."""
import sys
import torch


def metric(x, w):
    scaled = torch.sin(x) * 2.0
    pairs = torch.mm(scaled, w)
    return torch.tanh(pairs) + pairs.mean(dim=-1, keepdim=True)


torch.manual_seed(5)
x, w = torch.randn(24, 24), torch.randn(24, 24)
want = metric(x, w)
got = torch.compile(metric)(x, w)
same = torch.allclose(want, got, atol=1e-4)
print("finite:", got.isfinite().all().item(), "same:", same)
sys.exit(0 if same else 1)
''',
    ),
    Recipe(
        "full",
        "wrapper",
        "wrong-result",
        MODULE,
        """
original = m.PythonWrapperCodegen.make_allocation

def make_allocation(self, name, device, dtype, shape, stride, *rest, **more):
    if len(shape) == 2 and shape[0] == shape[1]:
        stride = tuple(reversed(stride))
    return original(self, name, device, dtype, shape, stride, *rest, **more)

m.PythonWrapperCodegen.make_allocation = make_allocation
""",
        ("make_allocation", "allocation", "stride", "empty_strided"),
        ("codegen", "runtime"),
        detail="allocation",
        script='''"""Smooth a square grid of measurements."""
import sys
import torch


def smooth(grid, noise):
    level = grid.mean(dim=0, keepdim=True)
    calm = (grid - level) * 0.5 + torch.full((20,), 0.75)
    return torch.sin(calm) + noise * 0.1


torch.manual_seed(7)
grid, noise = torch.randn(20, 20), torch.randn(20, 20)
want = smooth(grid, noise)
got = torch.compile(smooth)(grid, noise)
same = torch.allclose(want, got, atol=1e-4)
print("finite:", got.isfinite().all().item(), "same:", same)
sys.exit(0 if same else 1)
''',
    ),
    Recipe(
        "matmul",
        "wrapper",
        "wrong-result",
        MODULE,
        """
original = m.AllocateLine.plan
taken = {}

def plan(self, state):
    key = id(state), m.buffer_reuse_key(self.node)
    if key in taken:
        return m.ReuseLine(self.wrapper, taken[key], self.node, delete_old=False)
    taken[key] = self.node
    return original(self, state)

m.AllocateLine.plan = plan
""",
        ("reuse", "overwrit", "allocat", "extern_kernels.mm", "aten.mm"),
        ("scheduler", "codegen", "runtime"),
        detail="reuse",
        script=_PAIR,
    ),
    Recipe(
        "mean",
        "wrapper",
        "crash",
        MODULE,
        """
original = m.PythonWrapperCodegen.memory_plan_reuse

def memory_plan_reuse(self):
    original(self)
    self.lines[len(self.lines)].plan()

m.PythonWrapperCodegen.memory_plan_reuse = memory_plan_reuse
""",
        ("memory_plan_reuse",),
        ("codegen",),
        detail="planning",
    ),
    Recipe(
        "matmul",
        "wrapper",
        "crash",
        MODULE,
        """
original = m.PythonWrapperCodegen._generate_extern_kernel_out_helper

def unbound(self, kernel, out, out_view, args, *rest, **more):
    return original(self, kernel, out + "_view", out_view, args, *rest, **more)

m.PythonWrapperCodegen._generate_extern_kernel_out_helper = unbound
""",
        ("_view", "extern_kernels"),
        ("runtime", "codegen"),
        _STATIC,
        detail="unbound",
    ),
)
