"""`inductoscope profile` on real programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from inductoscope.model.fx import graph_from
from inductoscope.profiling.kernel_work import matrix_work
from support.json_schema import violations
from support.waiting import wait_until

# torch makes one addmm of the product and the sum. The loop reads a matrix transposed, so it is far
# from what memory allows.
PROGRAM = """\
import sys
import torch

def step(x, w, b):
    y = (x @ w + b).relu()
    return y.t().contiguous() + 1

compiled = torch.compile(step)
torch.manual_seed(0)
w, b = torch.randn(256, 256), torch.randn(256)
for _ in range(12):
    result = compiled(torch.ones(256, 256), w, b)
print("result", tuple(result.shape))
sys.exit(3)
"""


def profile(
    folder: Path, *words: str, limits: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(limits or folder / "cache"),
        "COLUMNS": "80",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }
    command = [sys.executable, "-m", "inductoscope", "profile", "--quiet", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )


def test_a_program_is_profiled_and_ends_as_it_would_without_the_tool(
    tmp_path: Path, machine_limits: Path
) -> None:
    (tmp_path / "bench.py").write_text(PROGRAM)
    words = ("--output", "recording", "--json", "profile.json", "bench.py")
    done = profile(tmp_path, *words, limits=machine_limits)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "result (256, 256)\n"
    assert max(map(len, done.stderr.splitlines())) <= 80 or "Warning" in done.stderr
    view = json.loads((tmp_path / "profile.json").read_text("utf-8"))
    assert violations("profile", view) == []
    rows = {row["kernel"]: row for row in view["kernels"]}
    product = rows["extern_kernels.addmm"]
    assert product["matrix_flops"] == {"float32": 2 * 256**3}
    assert (product["read"], product["written"]) == (4 * (2 * 256**2 + 256), 4 * 256**2)
    # What eager needs for the same work is the time of all operations, also of those whose nodes
    # torch has replaced or computes inside of another.
    regions = {region["kernels"][0]: set(region["operations"]) for region in view["regions"]}
    assert regions["extern_kernels.addmm"] == {"matmul", "add"}
    assert product["floor"]["limit"] == "matrix units"
    loops = next(row for name, row in rows.items() if name.startswith("cpp_fused"))
    assert {"relu", "add"} <= set(loops["operations"])
    assert regions[loops["kernel"]] == {"y", "t", "contiguous", "add_1"}
    assert {place.rpartition("/")[2] for place in loops["places"]} >= {"bench.py:6"}
    (calls,) = view["functions"]
    assert (calls["name"], calls["calls"], len(calls["compiling"])) == ("step", 10, 1)
    (graph,) = view["graphs"]
    assert graph["eager"]["median"] > 0
    # The wrapper's kernels lie inside the wrapper, and that inside the compiled function.
    assert graph["kernel_seconds"] < calls["seconds"]["high"] * 1.5
    assert (machine_limits / "inductoscope" / "machine").is_dir()


def test_a_program_that_compiles_nothing_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('hello')\n")
    done = profile(tmp_path, "--output", "recording", "plain.py")
    assert (done.returncode, done.stdout) == (4, "hello\n")
    assert "made no compiled call" in done.stderr


@pytest.mark.parametrize("mode", ["--advise", "--autotune", "--memory", "--compile"])
def test_a_program_that_fails_ends_so_and_the_tool_says_it(tmp_path: Path, mode: str) -> None:
    (tmp_path / "fails.py").write_text("raise ValueError('boom')\n")
    done = profile(tmp_path, mode, "--output", "recording", "--json", "found.json", "fails.py")
    assert done.returncode == 1
    assert "ValueError: boom" in done.stderr
    tail = done.stderr.partition("ValueError: boom")[2]
    assert "nothing was tried" in tail or "was compiled" in tail or "No compiled call" in tail
    assert json.loads((tmp_path / "found.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("fails", "code", "words"),
    [
        ("raise ValueError('boom')", 1, ("ValueError: boom", "ended with exit code 1, so nothing")),
        ("import os; os.abort()", -signal.SIGABRT, ("ended with signal 6, so nothing was tried",)),
    ],
)
def test_a_program_that_fails_ends_so_when_settings_are_tried(
    tmp_path: Path, fails: str, code: int, words: tuple[str, ...]
) -> None:
    """And it is run once, not with every setting."""
    (tmp_path / "fails.py").write_text(f"open('runs', 'a').write('x')\n{fails}\n")
    done = profile(tmp_path, "--try", "freezing", "--json", "found.json", "fails.py")
    assert done.returncode == code, done.stderr
    assert [text for text in words if text not in done.stderr] == []
    assert (tmp_path / "runs").read_text() == "x"
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert violations("profile", found) == []
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    assert found["base"]["note"].startswith(f"the program ended with {how}")
    (tried,) = found["tries"]
    assert tried["note"]
    assert tried["runs"] == 0


@pytest.mark.parametrize("mode", [(), ("--advise",), ("--compile",)])
def test_what_was_found_is_shown_even_if_it_cannot_be_kept(
    tmp_path: Path, mode: tuple[str, ...]
) -> None:
    (tmp_path / "plain.py").write_text("print('hello')\n")
    done = profile(tmp_path, *mode, "--output", "recording", "--json", "/dev/full", "plain.py")
    assert (done.returncode, done.stdout) == (3, "hello\n")
    assert "compiled" in done.stderr
    assert done.stderr.rstrip().endswith("/dev/full cannot be written: No space left on device.")


def test_a_program_that_calls_nothing_compiled_gets_no_trial(tmp_path: Path) -> None:
    (tmp_path / "never.py").write_text("print('hello')\n")
    done = profile(tmp_path, "--advise", "--output", "recording", "--json", "a.json", "never.py")
    assert (done.returncode, done.stdout) == (4, "hello\n")
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert found["runs"] == 0
    assert found["error"].startswith("The program made no compiled call")
    assert "often enough" not in done.stderr


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


CPP = """\
import sys
import torch
import torch._inductor.config

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x, -1)

x = torch.rand(64, 64)
exported = torch.export.export(Model(), (x,))
package = torch._inductor.aoti_compile_and_package(exported, package_path=sys.argv[1])
loaded = torch._inductor.aoti_load_package(package)
torch._inductor.config.cpp_wrapper = True
compiled = torch.compile(Model())
for _ in range(12):
    assert torch.equal(loaded(x), compiled(x))
print(package)
"""


def test_kernels_in_cpp_wrappers_and_packages_are_timed_one_by_one(
    tmp_path: Path, machine_limits: Path
) -> None:
    """And the package that the program writes is as it would be without the tool."""
    (tmp_path / "bench.py").write_text(CPP)
    words = ("--no-eager", "--output", "kept", "--json", "p.json", "bench.py", "model.pt2")
    done = profile(tmp_path, *words, limits=machine_limits)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).name == "model.pt2"
    assert "USDT" not in done.stderr
    view = json.loads((tmp_path / "p.json").read_text("utf-8"))
    assert violations("profile", view) == []
    kernels: dict[str, set[str]] = {}
    for row in view["kernels"]:
        assert row["measured_by"] == "profiler"
        assert row["calls"] >= 5
        assert row["floor"] is not None
        assert row["wrapper_line"] > 0
        assert row["places"]
        kernels.setdefault(row["graph"], set()).add(row["kernel"])
    assert set(kernels) == {"aoti/0 inference", "0/0 inference"}
    for graph in view["graphs"]:
        spans = graph["usual_call"]["kernels"]
        assert {span["kernel"] for span in spans} == kernels[graph["graph"]]
        assert all(span["wrapper_line"] > 0 for span in spans)
    for names in kernels.values():
        assert "extern_kernels.mm" in names
        assert any(name.startswith("cpp_fused__softmax") for name in names)
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        texts = [archive.read(n).decode() for n in archive.namelist() if n.endswith("wrapper.cpp")]
    assert texts
    assert not any("RecordFunction" in text for text in texts)
    assert not list(tmp_path.glob("kept/**/packages"))


def test_an_interrupt_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    """No process, no temporary folder; here while the program runs with a setting."""
    pid, temporary = tmp_path / "pid", tmp_path / "tmp"
    temporary.mkdir()
    (tmp_path / "long.py").write_text(
        f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(300)\n"
    )
    tool = subprocess.Popen(
        [sys.executable, "-m", "inductoscope", "profile", "--try", "max_autotune", "long.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: pid.exists() and pid.read_text() != "", seconds=200)
        tool.send_signal(signal.SIGINT)
        _, said = tool.communicate(timeout=60)
    finally:
        tool.kill()
    assert tool.returncode != 0
    assert "Traceback" not in said
    assert not Path(f"/proc/{pid.read_text()}").exists()
    assert not list(temporary.glob("inductoscope*"))
