"""From a misbehaving script to a verdict: a fault, what the user types, what the doctor says.

Faults are planted through a start-up hook of the user's own; the programs do not know of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.programs import ONE_PROOF, SMALL_MODEL, TINY_MODEL, Workplace

pytestmark = pytest.mark.spread

# --- what is wrong with the compiler --------------------------------------------------------------


def test_a_wrong_lowering_is_named_cut_down_proven_and_got_round(workplace: Workplace) -> None:
    """Without the planted fault the very reproducer passes."""
    workplace.write("model.py", SMALL_MODEL)
    wrong = """
import torch
tanh, mul = torch.ops.aten.tanh.default, torch.ops.aten.mul.Tensor
right = m.lowerings[tanh]
m.lowerings[tanh] = lambda x: m.lowerings[mul](right(x), 1.5)
"""
    # With as many proofs as it makes by itself.
    planted = workplace.plant("torch._inductor.lowering", wrong)
    found = workplace.doctor("model.py", options=(), **planted)
    verdict = found.verdict
    assert found.exit_code == 1
    assert (verdict["verdict"], verdict["stage"]) == ("wrong-result", "lowering")
    assert verdict["culprit"]["op"] == "aten.tanh.default"
    assert verdict["culprit"]["source"] == "model.py:5"
    assert verdict["confidence"] == "proven"
    (value,) = verdict["values"]
    assert value["wrong"] > 0
    assert abs(float(value["actual"]) - float(value["expected"])) > 0.01
    repro = verdict["repro"]
    assert (repro["verified"], repro["failed"], repro["of"], repro["nodes"]) == (True, 3, 3, 1)
    assert "torch.tanh(" in Path(repro["path"]).read_text()
    assert verdict["workaround"]["verified"]
    assert "aten.tanh.default" in verdict["workaround"]["code"]
    assert Path(verdict["issue"]).read_text().startswith("# [inductor] ")
    assert "aten.tanh.default" in found.stdout
    # A graph in the cache does not know whether the fault was there when it was compiled.
    without_caches = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    assert workplace.run_plain(repro["path"], **without_caches).exit_code == 0


def test_an_error_that_only_eager_raises(workplace: Workplace) -> None:
    """pytorch#193757: the decomposition loses the check of the targets."""
    workplace.write(
        "loss.py",
        "import torch\n"
        "@torch.compile\n"
        "def loss(logits, targets):\n"
        "    chances = torch.sigmoid(logits) * 0.5\n"
        "    return torch.nn.functional.binary_cross_entropy(chances, targets) * 2\n"
        "print(loss(torch.randn(4), torch.full((4,), 1.5)))\n",
    )
    found = workplace.doctor("loss.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "decomposition")
    assert found.verdict["confidence"] == "proven"
    assert found.verdict["culprit"]["op"] == "aten.binary_cross_entropy.default"
    assert found.verdict["repro"]["verified"]
    assert found.verdict["repro"]["nodes"] == 1
    # The program then raises, as it does in eager.
    assert found.verdict["workaround"]["verified"]


def test_code_that_the_cpp_compiler_refuses(workplace: Workplace) -> None:
    workplace.write("model.py", TINY_MODEL)
    wrong = """
m.CppOverrides.relu = staticmethod(lambda x: "no_such_function(0)")
m.CppVecOverrides.relu = staticmethod(lambda x: "no_such_function(0)")
"""
    found = workplace.doctor(
        "model.py",
        options=("--no-workaround", *ONE_PROOF),
        **workplace.plant("torch._inductor.codegen.cpp", wrong),
    )
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("compile-error", "cpp-compile")
    assert "no_such_function" in found.names
    assert found.verdict["culprit"]["op"].startswith("aten.relu")
    assert found.verdict["repro"]["verified"]


def test_a_compile_that_never_ends(workplace: Workplace) -> None:
    workplace.write("model.py", TINY_MODEL)
    # With pauses: what is tried in the meantime has the processor.
    endless = """
import time
def fuse_nodes(self, nodes):
    while True:
        nodes = self.fuse_nodes_once(nodes, is_reorder_round=False)
        time.sleep(0.05)
m.Scheduler.fuse_nodes = fuse_nodes
"""
    found = workplace.doctor(
        "model.py",
        options=("--stall", "8", "--no-workaround", *ONE_PROOF),
        **workplace.plant("torch._inductor.scheduler", endless),
    )
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("hang", "scheduler")
    assert found.verdict["culprit"]["function"] == "fuse_nodes"
    assert found.verdict["repro"]["verified"]


# --- a failure that comes late --------------------------------------------------------------------

LATE = """
import torch

torch.manual_seed(0)
step = torch.compile(lambda x: torch.tanh(x) * 2)
for number in range(50):
    y = step(torch.rand(8, 32) * (100 if number == 40 else 1))
print("done")
"""
WRONG_IF_LARGE = """
m.CppOverrides.tanh = staticmethod(lambda x: f"(std::tanh({x}) + ({x} > 5 ? 0.3f : 0.0f))")
m.CppVecOverrides.tanh = staticmethod(
    lambda x: f"({x}.tanh() + decltype({x})::blendv(0.0f, 0.3f, {x} > decltype({x})(5.0f)))"
)
"""


def test_a_fault_in_step_40_is_found_in_the_first_run_and_one_more_tries_the_workaround(
    workplace: Workplace,
) -> None:
    """Planted: tanh is wrong for large numbers. The program itself does not notice."""
    workplace.write("late.py", LATE)
    found = workplace.doctor(
        "late.py", **workplace.plant("torch._inductor.codegen.cpp", WRONG_IF_LARGE)
    )
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "codegen")
    assert found.verdict["workaround"]["verified"]
    assert found.stderr.count("on the program") == 1
    assert len(list((workplace.folder / "examination/doctor").glob("run-*"))) == 1
