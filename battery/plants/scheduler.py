"""The scheduler: decisions about fusion and order."""

from __future__ import annotations

from battery.fault import Recipe

MODULE = "torch._inductor.scheduler"
# Two kernels or more, whatever the seed: an extern kernel stands in the middle.
_SPLIT = ("function", "module", "breaks")
_WEIGHTS = '''"""Weigh the columns of a square table by the sums of its rows."""
import sys
import torch


def weigh(x, bias):
    y = torch.sin(x) + bias
    weights = y.abs().sum(dim=1) + 1.0
    return torch.cos(x) * weights


torch.manual_seed(6)
x, bias = torch.randn(32, 32), torch.randn(32)
want = weigh(x, bias)
got = torch.compile(weigh)(x, bias)
same = torch.allclose(want, got, atol=1e-4)
print("finite:", got.isfinite().all().item(), "same:", same)
sys.exit(0 if same else 1)
'''

RECIPES = (
    Recipe(
        "sum",
        "scheduler",
        "wrong-result",
        MODULE,
        """
original = m.Scheduler.fusable_read_and_write

def fusable_read_and_write(self, read, write, **more):
    same = isinstance(read, m.MemoryDep) and read.name == write.name
    if same and len(read.index.free_symbols) == len(write.index.free_symbols) == 1:
        return True
    return original(self, read, write, **more)

m.Scheduler.fusable_read_and_write = fusable_read_and_write
""",
        ("fusable_read_and_write", "fusion", "can_fuse", "fuse"),
        ("loop-body", "codegen"),
        detail="fusion",
        script=_WEIGHTS,
    ),
    Recipe(
        "sum",
        "scheduler",
        "crash",
        MODULE,
        """
original = m.Scheduler.can_fuse

def can_fuse(self, node1, node2, *rest, **more):
    if node1.is_reduction() != node2.is_reduction():
        raise KeyError(node1.get_name())
    return original(self, node1, node2, *rest, **more)

m.Scheduler.can_fuse = can_fuse
""",
        ("can_fuse",),
    ),
    Recipe(
        "softmax",
        "scheduler",
        "crash",
        MODULE,
        """
original = m.Scheduler.compute_ancestors

def compute_ancestors(self):
    original(self)
    for node in self.nodes:
        assert len(node.ancestors) < 2, "ancestors of " + node.get_name()

m.Scheduler.compute_ancestors = compute_ancestors
""",
        ("compute_ancestors", "ancestors"),
        templates=_SPLIT,
        detail="ancestors",
    ),
    Recipe(
        "mean",
        "scheduler",
        "hang",
        MODULE,
        """
def fuse_nodes(self, nodes):
    while True:
        nodes = self.fuse_nodes_once(nodes, is_reorder_round=False)
        if not nodes:
            return nodes

m.Scheduler.fuse_nodes = fuse_nodes
""",
        ("fuse_nodes", "fusion"),
    ),
    Recipe(
        "layer_norm",
        "scheduler",
        "hang",
        MODULE,
        """
original = m.Scheduler.topological_sort_schedule

def topological_sort_schedule(self, nodes):
    before = None
    while before is not nodes:
        before, nodes = nodes, original(self, nodes)
    return nodes

m.Scheduler.topological_sort_schedule = topological_sort_schedule
""",
        ("topological_sort_schedule", "topological_sort"),
        detail="order",
    ),
)
