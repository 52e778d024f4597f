"""From a misbehaving script to a verdict: a fault, what the user types, what the doctor says.

Faults are planted through a start-up hook of the user's own; the programs do not know of them.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from programs import TOOL, Workplace

CASES = Path(__file__).resolve().parent / "cases"

# A start-up hook that changes one torch module when it is imported.
PLANT = """
import importlib.machinery, sys

def change(m):
{body}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "{module}":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            change(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""

MODEL = """
import sys, torch

def model(x, w):
    h = torch.tanh(x @ w)
    h = torch.relu(h - h.mean(dim=0))
    return torch.softmax(h, dim=-1).sum(dim=0) + h.amax(dim=0)

torch.manual_seed(0)
x, w = torch.randn(6, 8), torch.randn(8, 5)
want = model(x, w)
got = torch.compile(model)(x, w)
sys.exit(0 if torch.allclose(want, got, atol=1e-4) else 1)
"""


def plant(workplace: Workplace, module: str, body: str) -> dict[str, str]:
    """Write the hook and return the environment that brings it in."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    workplace.write("plant/sitecustomize.py", PLANT.format(module=module, body=lines))
    return {"PYTHONPATH": str(workplace.folder / "plant")}


# --- what is wrong with the compiler --------------------------------------------------------------


def test_a_wrong_lowering_is_named_cut_down_proven_and_got_round(workplace: Workplace) -> None:
    workplace.write("model.py", MODEL)
    wrong = """
import torch
tanh, mul = torch.ops.aten.tanh.default, torch.ops.aten.mul.Tensor
right = m.lowerings[tanh]
m.lowerings[tanh] = lambda x: m.lowerings[mul](right(x), 1.5)
"""
    found = workplace.doctor("model.py", **plant(workplace, "torch._inductor.lowering", wrong))
    verdict = found.verdict
    assert found.exit_code == 1
    assert (verdict["verdict"], verdict["stage"]) == ("wrong-result", "lowering")
    assert verdict["culprit"]["op"] == "aten.tanh.default"
    assert verdict["culprit"]["source"] == "model.py:5"
    assert verdict["confidence"] == "proven"
    repro = verdict["repro"]
    assert (repro["verified"], repro["failed"], repro["of"], repro["nodes"]) == (True, 3, 3, 1)
    assert "torch.tanh(" in Path(repro["path"]).read_text()
    assert verdict["workaround"]["verified"]
    assert "aten.tanh.default" in verdict["workaround"]["code"]
    assert Path(verdict["issue"]).read_text().startswith("# [inductor] ")
    assert "aten.tanh.default" in found.stdout


def test_the_reproducer_needs_the_same_environment_and_nothing_else(workplace: Workplace) -> None:
    """Without the planted fault the very script passes."""
    workplace.write("model.py", MODEL)
    wrong = """
def tanh(x):
    return f"({x} * 0.5)"
m.CppOverrides.tanh = staticmethod(tanh)
m.CppVecOverrides.tanh = staticmethod(lambda x: f"({x} * {x})")
"""
    environment = plant(workplace, "torch._inductor.codegen.cpp", wrong)
    # A graph in the cache does not know whether the fault was there when it was compiled.
    without_caches = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    found = workplace.doctor("model.py", options=("--no-workaround",), **environment)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "codegen")
    script = found.verdict["repro"]["path"]
    assert workplace.run_plain(script, **environment, **without_caches).exit_code == 1
    assert workplace.run_plain(script, **without_caches).exit_code == 0


def test_code_that_the_cpp_compiler_refuses(workplace: Workplace) -> None:
    workplace.write("model.py", MODEL)
    wrong = """
m.CppOverrides.relu = staticmethod(lambda x: "no_such_function(0)")
m.CppVecOverrides.relu = staticmethod(lambda x: "no_such_function(0)")
"""
    found = workplace.doctor(
        "model.py",
        options=("--no-workaround",),
        **plant(workplace, "torch._inductor.codegen.cpp", wrong),
    )
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("compile-error", "cpp-compile")
    assert "no_such_function" in found.names
    assert found.verdict["culprit"]["op"].startswith("aten.relu")
    assert found.verdict["repro"]["verified"]


def test_a_kernel_that_kills_the_process(workplace: Workplace) -> None:
    workplace.write("model.py", MODEL)
    wrong = """
m.CppOverrides.tanh = staticmethod(lambda x: "(__builtin_trap(), 0.0f)")
m.CppVecOverrides.tanh = staticmethod(lambda x: f"(__builtin_trap(), {x})")
"""
    found = workplace.doctor(
        "model.py",
        options=("--no-workaround",),
        **plant(workplace, "torch._inductor.codegen.cpp", wrong),
    )
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("crash", "runtime")
    assert found.verdict["culprit"]["op"].startswith("aten.tanh")
    assert found.verdict["culprit"]["kernel"].startswith("cpp_fused_")
    assert found.verdict["repro"]["verified"]


def test_a_compile_that_never_ends(workplace: Workplace) -> None:
    workplace.write("model.py", MODEL)
    endless = """
def fuse_nodes(self, nodes):
    while True:
        nodes = self.fuse_nodes_once(nodes, is_reorder_round=False)
m.Scheduler.fuse_nodes = fuse_nodes
"""
    found = workplace.doctor(
        "model.py",
        options=("--stall", "8", "--no-workaround"),
        **plant(workplace, "torch._inductor.scheduler", endless),
    )
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("hang", "scheduler")
    assert "fuse_nodes" in found.names
    assert found.verdict["repro"]["verified"]


@pytest.mark.parametrize("name", ["token_positions", "scalar_budget", "period_gradient"])
def test_real_bugs_of_torch(name: str, workplace: Workplace) -> None:
    """Open bugs of torch 2.13, nothing planted; on another torch they may be gone."""
    import json

    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13"):
        pytest.skip("the truth about this case is known for torch 2.13")
    truth = json.loads((CASES / name / "truth.json").read_text())
    workplace.write("script.py", (CASES / name / "script.py").read_text())
    found = workplace.doctor("script.py", options=("--no-workaround",))
    assert found.verdict["verdict"] == truth["kind"]
    assert found.verdict["stage"] in [truth["stage"], *truth["stage_also_ok"]]
    assert any(culprit.lower() in found.names.lower() for culprit in truth["culprit_names"])
    assert found.verdict["repro"]["verified"]


# --- what is not ----------------------------------------------------------------------------------


def test_a_healthy_model_with_gradients_is_clean(workplace: Workplace) -> None:
    workplace.write(
        "train.py",
        "import torch\n"
        "from torch import nn\n"
        "model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))\n"
        "step = torch.compile(model)\n"
        "for size in (4, 6):\n"
        "    step(torch.randn(size, 8)).square().mean().backward()\n",
    )
    found = workplace.doctor("train.py")
    assert (found.exit_code, found.verdict["verdict"]) == (0, "clean")
    assert "calls agree with eager" in found.names


def test_a_program_that_compares_rounding(workplace: Workplace) -> None:
    workplace.write(
        "energy.py",
        "import sys, torch\n"
        "def energy(x):\n"
        "    y = x * 1000.0 + 12345.0\n"
        "    return (y - y.mean()).sum()\n"
        "torch.manual_seed(0)\n"
        "x = torch.randn(30_000)\n"
        "sys.exit(0 if torch.equal(energy(x), torch.compile(energy)(x)) else 1)\n",
    )
    found = workplace.doctor("energy.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-a-bug", "none")
    assert "away from float64" in found.names
    assert found.verdict["repro"] is None


def test_a_program_that_fails_in_eager_too(workplace: Workplace) -> None:
    workplace.write(
        "wrong.py",
        "import torch\n"
        "f = torch.compile(lambda x: x * 2)\n"
        "print(f(torch.ones(3)))\n"
        "raise ValueError('the data file is missing')\n",
    )
    found = workplace.doctor("wrong.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-a-bug", "user")
    assert "the data file is missing" in found.names


def test_a_branch_on_data_is_dynamos_and_its_function_is_the_reproducer(
    workplace: Workplace,
) -> None:
    workplace.write(
        "branch.py",
        "import torch\n"
        "LIMIT = 0.5\n"
        "def halve(x):\n"
        "    return x / 2\n"
        "def refine(x):\n"
        "    if x.norm() < LIMIT:\n"
        "        return x\n"
        "    return halve(x)\n"
        "torch.compile(refine, fullgraph=True)(torch.randn(4))\n",
    )
    found = workplace.doctor("branch.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-inductor", "dynamo")
    assert found.verdict["culprit"]["source"].endswith("branch.py:6")
    assert found.verdict["repro"]["verified"]
    assert "LIMIT = 0.5" in Path(found.verdict["repro"]["path"]).read_text()


# --- odd programs ---------------------------------------------------------------------------------


def test_a_program_without_torch_compile(workplace: Workplace) -> None:
    workplace.write("plain.py", "import torch\nprint(torch.ones(2).sum())\n")
    found = workplace.doctor("plain.py")
    assert (found.exit_code, found.verdict["verdict"]) == (0, "clean")
    assert "nothing was compiled" in found.verdict["summary"]


def test_arguments_and_standard_input_reach_every_run(workplace: Workplace) -> None:
    workplace.write(
        "asks.py",
        "import sys, torch\n"
        "assert sys.argv[1:] == ['--epochs', '2']\n"
        "assert sys.stdin.read() == 'seven\\n'\n"
        "print(torch.compile(lambda x: x + 1)(torch.ones(2)))\n",
    )
    done = subprocess.run(
        [*TOOL, "doctor", "--json", "-", "asks.py", "--epochs", "2"],
        cwd=workplace.folder,
        env=workplace.environment(INDUCTOSCOPE_RECORDINGS=str(workplace.folder / "r")),
        input="seven\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert '"verdict": "clean"' in done.stdout
    assert done.returncode == 0


def test_no_cpp_compiler(workplace: Workplace) -> None:
    workplace.write("model.py", MODEL)
    found = workplace.doctor("model.py", options=("--no-workaround",), CXX="/no/such/compiler")
    assert found.verdict["verdict"] in ("compile-error", "crash")
    assert "no/such/compiler" in found.names or "C++ compiler" in found.names


def test_ctrl_c_ends_with_what_is_known_and_leaves_nothing_running(workplace: Workplace) -> None:
    workplace.write("forever.py", "import time, torch\ntime.sleep(1000)\n")
    child = subprocess.Popen(
        [*TOOL, "doctor", "--output", "out", "--json", "verdict.json", "forever.py"],
        cwd=workplace.folder,
        env=workplace.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    _wait_for(lambda: list((workplace.folder / "out" / "streams").glob("*.jsonl")))
    program = _children(child.pid)
    assert program
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert "not finished" in output
    assert child.returncode == 1
    _wait_for(lambda: not any(Path("/proc", pid).exists() for pid in program))


def _wait_for(condition: object) -> None:
    for _ in range(300):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def _children(pid: int) -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if parent == str(pid):
                found.append(path.name)
    return found


def test_bad_usage_says_what_to_do(workplace: Workplace) -> None:
    done = subprocess.run(
        [*TOOL, "doctor", "missing.py"],
        cwd=workplace.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "missing.py does not exist" in done.stderr
