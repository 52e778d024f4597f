"""A large graph with one fault in it: named from what the program itself has compiled."""

from __future__ import annotations

import pytest

from inductoscope.model.fold import load
from support.programs import ONE_PROOF, Workplace

pytestmark = pytest.mark.spread

# About 90 operations. They are in a few kernels, because reductions do not fuse.
PROGRAM = """
import torch

def network(x):
    for layer in range(9):
        for _ in range(3):
            x = torch.sin(x) * 1.2 + 0.1
        if layer == 7:
            x = torch.nn.functional.silu(x) + torch.tanh(x)
        x = x - x.mean(-1, keepdim=True)
    return x

x = torch.randn(8, 32, requires_grad=True)
torch.compile(network)(x).sum().backward()
"""
WRONG_TANH = """
m.CppVecOverrides.tanh = staticmethod(lambda x: f"{x}.sin()")
m.CppOverrides.tanh = staticmethod(lambda x: f"std::sin({x})")
"""
WRONG_SILU = """
import torch
m.decompositions[torch.ops.aten.silu.default] = lambda x: x * torch.tanh(x)
"""


@pytest.mark.parametrize(
    ("module", "plant", "stage", "operation"),
    [
        ("torch._inductor.codegen.cpp", WRONG_TANH, "codegen", "tanh"),
        ("torch._inductor.decomposition", WRONG_SILU, "decomposition", "silu"),
    ],
    ids=["a kernel", "a decomposition"],
)
def test_the_fault_is_named_and_nothing_beside_it_is_accused(
    workplace: Workplace, module: str, plant: str, stage: str, operation: str
) -> None:
    workplace.write("network.py", PROGRAM)
    options = (*ONE_PROOF, "--no-workaround")
    found = workplace.doctor("network.py", options=options, **workplace.plant(module, plant))
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", stage)
    assert operation in found.verdict["culprit"]["op"]
    assert (found.verdict["repro"]["verified"], found.verdict["repro"]["nodes"]) == (True, 1)
    # No operation beside it was ever accused.
    told = [line for line in found.stderr.splitlines() if "→ place" in line]
    assert told
    assert [line for line in told if f"aten.{operation}" not in line] == []
    # The forward pass is wrong, so nobody waited for the compile of the backward pass.
    graphs = load(workplace.folder / "examination").graphs
    assert [graph.phase for graph in graphs] == ["forward"]
