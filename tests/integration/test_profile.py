"""`inductoscope profile` on real programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from inductoscope.model.fx import graph_from
from inductoscope.profiling.kernels.flops import matrix_work
from support.json_schema import violations

# The loop reads a matrix transposed, so it is far from what memory allows; sizes vary once.
PROGRAM = """\
import sys
import torch

def step(x, w):
    y = (x @ w).relu()
    return y.t().contiguous() + 1

compiled = torch.compile(step)
w = torch.randn(256, 256)
for _ in range(12):
    result = compiled(torch.ones(256, 256), w)
print("result", tuple(result.shape))
sys.exit(3)
"""


def profile(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "80"}
    command = [sys.executable, "-m", "inductoscope", "profile", "--quiet", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )


def test_a_program_is_profiled_and_ends_as_it_would_without_the_tool(tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(PROGRAM)
    done = profile(tmp_path, "--output", "recording", "--json", "profile.json", "bench.py")
    assert done.returncode == 3, done.stderr
    assert done.stdout == "result (256, 256)\n"
    assert max(map(len, done.stderr.splitlines())) <= 80 or "Warning" in done.stderr
    view = json.loads((tmp_path / "profile.json").read_text("utf-8"))
    assert violations("profile", view) == []
    rows = {row["kernel"]: row for row in view["kernels"]}
    product = rows["extern_kernels.mm"]
    assert product["matrix_flops"] == {"float32": 2 * 256**3}
    assert (product["read"], product["written"]) == (2 * 4 * 256**2, 4 * 256**2)
    assert product["floor"]["limit"] == "matrix units"
    loops = next(row for name, row in rows.items() if name.startswith("cpp_fused"))
    assert {"relu", "add"} <= set(loops["operations"])
    assert {place.rpartition("/")[2] for place in loops["places"]} >= {"bench.py:6"}
    (calls,) = view["functions"]
    assert (calls["name"], calls["calls"], len(calls["compiling"])) == ("step", 10, 1)
    (graph,) = view["graphs"]
    assert graph["eager"]["median"] > 0
    # The wrapper's kernels lie inside the wrapper, and that inside the compiled function.
    assert graph["kernel_seconds"] < calls["seconds"]["high"] * 1.5
    assert (tmp_path / "cache" / "inductoscope" / "machine").is_dir()


def test_a_program_that_compiles_nothing_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('hello')\n")
    done = profile(tmp_path, "--output", "recording", "plain.py")
    assert (done.returncode, done.stdout) == (4, "hello\n")
    assert "made no compiled call" in done.stderr


def test_an_option_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('hello')\n")
    done = profile(tmp_path, "--try", "max_autotun", "plain.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'max_autotune'?" in done.stderr


# --- operations are counted as torch counts them --------------------------------------------------

aten = torch.ops.aten
A = torch.randn
CALLS = {
    "mm": (aten.mm.default, (A(3, 5), A(5, 7))),
    "addmm": (aten.addmm.default, (A(7), A(3, 5), A(5, 7))),
    "bmm": (aten.bmm.default, (A(2, 3, 5), A(2, 5, 7))),
    "baddbmm": (aten.baddbmm.default, (A(2, 3, 7), A(2, 3, 5), A(2, 5, 7))),
    "convolution": (
        aten.convolution.default,
        (A(2, 4, 9, 9), A(6, 2, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2),
    ),
    "transposed": (
        aten.convolution.default,
        (A(2, 4, 9, 9), A(4, 6, 3, 3), None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1),
    ),
    "convolution_backward": (
        aten.convolution_backward.default,
        (A(2, 6, 7, 7), A(2, 4, 9, 9), A(6, 4, 3, 3), [0], [1, 1], [0, 0], [1, 1], False, [0, 0],
         1, [True, True, False]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_operations_are_counted_as_torch_counts_them(name: str) -> None:
    operation, arguments = CALLS[name]
    with FlopCounterMode(display=False) as counter:
        result = operation(*arguments)
    texts, nodes = [], []
    for number, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            nodes.append({"name": f"x{number}", "op": "placeholder", "value": described(argument)})
        texts.append(f"x{number}" if isinstance(argument, torch.Tensor) else repr(argument))
    first = result[0] if isinstance(result, tuple) else result
    call = {"name": "r", "op": "call_function", "target": str(operation), "value": described(first)}
    graph = graph_from({"nodes": [*nodes, {**call, "args": f"({', '.join(texts)},)"}]})
    assert graph is not None
    work = matrix_work(graph, graph.nodes[-1], int)
    assert work is not None
    assert (work.flops, work.dtype) == (counter.get_total_flops(), "torch.float32")


def described(tensor: torch.Tensor) -> dict[str, object]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype)}
