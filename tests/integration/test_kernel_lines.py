"""A link from an operation to lines of a kernel: proven by changing the operation.

Each program is compiled twice, the second time with one operation replaced by another that is
written on as many lines. The kernels then differ in the lines of this operation and in no other.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

import pytest

from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.join import GraphJoin, lines_of_steps
from inductoscope.model.operation_trace import by_operation, trace
from inductoscope.recording.location import FOLDER_VARIABLE
from inductoscope.targets.recompile import recording_for_target
from inductoscope.torch_facts.gpu_targets import parse_target
from inductoscope.torch_facts.loop_bodies import Step, steps_of
from support.programs import Workplace

pytest.importorskip("torch")

# Python lines of the function, the operation that is changed, and what it is changed to. The same
# operations surround it, so that many lines of a kernel read alike.
PROGRAMS = {
    "chain": ("x.sin().add(1).EXP().add(1).sin()", "exp", "tanh"),
    "two_sums": ("(x.EXP() * y).sum(-1), (x * y + x).sum(-1), (x * y).sum(0)", "exp", "sin"),
    "gathered": ("torch.gather(x.relu(), 1, i) * torch.gather(y, 1, i).EXP()", "exp", "tanh"),
    "padded": ("torch.nn.functional.pad(x.EXP(), (1, 2)) + x.new_ones(())", "exp", "sin"),
    "normed": ("torch.nn.functional.layer_norm(x, (96,)).EXP() * x.exp2()", "exp", "sin"),
    "behind_a_view": ("x.sin().view(96, 37).EXP() + 1", "exp", "tanh"),
    "inside_a_gather": ("torch.gather(x.EXP(), 1, i).sin()", "exp", "tanh"),
    "with_an_index": ("x.long().EXP(torch.arange(96)).float()", "eq", "ne"),
    "twice": ("torch.where(y > 0, x.EXP(), x.tanh()) + x.tanh()", "exp", "sin"),
    "compared": ("torch.where(x.EXP, x, y)", "eq(1.0)", "ne(1.0)"),
    "chosen": ("torch.EXP + x.sin()", "where(y > 1, x, y)", "where(y > 1, y, x)"),
    "subtracted": ("x.sin().EXP(y) * (x + 2)", "sub", "mul"),
    "both": ("(x > 0).EXP(y > 1).float()", "logical_and", "logical_or"),
    "joined": ("torch.cat([x.EXP(), y.sin(), x], 1)", "exp", "tanh"),
    "joined_in_place": ("torch.cat([x.EXP().sum(0), y.sum(0)]), x.exp2()", "exp", "tanh"),
    "scattered": ("torch.zeros_like(x).scatter_add(1, i, y[:, :20].EXP())", "exp", "tanh"),
    "put": ("x.index_put((i[:, 0],), y.EXP()).sin()", "exp", "tanh"),
    "resized": (
        "torch.nn.functional.interpolate(x[None, None], scale_factor=2, mode='bilinear').EXP()",
        "exp",
        "tanh",
    ),
    "dropped": ("torch.nn.functional.dropout(x.EXP(), 0.5) * y", "exp", "tanh"),
    "gelu_gradient": ("torch.ops.aten.gelu_backward(y, x).EXP()", "sin", "cos"),
    "softmax_gradient": (
        "torch.ops.aten._softmax_backward_data(y, x, -1, torch.float32).EXP()",
        "sin",
        "cos",
    ),
    "scanned": ("x.EXP().cumsum(1)", "exp", "tanh"),
    "in_half_precision": ("(x.bfloat16().EXP() * y.bfloat16()).tanh()", "exp", "sin"),
}

# Lines of a loop body that hand a value on, or on which an operation works.
CARRIERS = ("load", "store", "constant", "index_expr", "to_dtype", "set_indirect")

# Only the texts of the kernels matter, so no compiler needs to run.
SCRIPT = """
import torch
from torch._inductor.async_compile import AsyncCompile
AsyncCompile.cpp_pybinding = lambda self, types, source: lambda *arguments: None
x, y = torch.randn(37, 96), torch.randn(37, 96)
i = torch.randint(0, 96, (37, 20))

@torch.compile(dynamic=True)
def without_code(x, y):
    size = x.shape[0] * 2
    sizes = torch.arange(size) + size
    return torch.cond(x[0, 0] > 0, torch.sin, torch.cos, (x,)).T.clone().T, y[sizes % 7]

without_code(x, y)
"""


def _script() -> str:
    parts = [SCRIPT]
    for name, (body, before, after) in PROGRAMS.items():
        for function, operation in ((name, before), (f"{name}_changed", after)):
            code = body.replace("EXP", operation)
            parts.append(f"def {function}(x, y, i):\n    return {code}\n")
            parts.append(f"torch.compile({function})(x, y, i)\n")
    return "\n".join(parts)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("links")


@pytest.fixture(scope="module")
def on_cpu(place: Path) -> Recording:
    workplace = Workplace(place, place / "cache")
    workplace.write("script.py", _script())
    outcome = workplace.run("script.py", TORCH_COMPILE_DISABLE="0")
    assert outcome.exit_code == 0, outcome.stderr
    return outcome.recording


@pytest.fixture(scope="module")
def on_gpu(place: Path, on_cpu: Recording) -> Recording:
    pytest.importorskip("triton")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(place / "targets"))
        # Nor is anything assembled: only written.
        patch.setattr("inductoscope.targets.recompile.has_triton", lambda: False)
        return load(recording_for_target(place / "recording", parse_target("cuda:90")))


# What is written for a line of a loop body: its kernel and number.
Line = tuple[int, int]


def _linked(recording: Recording, function: str, operation: str) -> dict[Step, set[Line]]:
    """The lines of loop bodies that belong to an operation, with what was written for each."""
    found: dict[Step, set[Line]] = defaultdict(set)
    for one in trace(recording, by_operation(operation)):
        if one.compile.function != function:
            continue
        join = GraphJoin(recording, one.compile, one.graph)
        places = {kernel.name: place for place, kernel in enumerate(one.graph.kernels)}
        for owner, steps in join.steps(one.node, list(one.scheduled)).items():
            for kernel, step in itertools.product(one.graph.kernels, steps):
                numbers = lines_of_steps(kernel, "", {owner: (step,)})
                found[step] |= {(places[kernel.name], number) for number in numbers}
    return found


def _changed(recording: Recording, function: str) -> set[tuple[int, int]]:
    """Kernel by kernel, the lines of a function's code that are others in the changed function."""
    found = set()
    for place, (before, after) in enumerate(
        zip(_texts(recording, function), _texts(recording, f"{function}_changed"), strict=True)
    ):
        old, new = before.splitlines(), after.splitlines()
        assert len(old) == len(new)
        heads = (n for n, line in enumerate(old) if "kernel(" in line or "def triton_" in line)
        first = next(heads, 0)
        found |= {
            (place, number)
            for number, (one, other) in enumerate(zip(old, new, strict=True), start=1)
            if one != other and number > first + 1
        }
    return found


def _texts(recording: Recording, function: str) -> list[str]:
    compile_ = next(c for c in recording.compiles if c.function == function)
    return [recording.payload(k.payload) for graph in compile_.inductor for k in graph.kernels]


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("backend", ["on_cpu", "on_gpu"])
def test_changing_an_operation_changes_the_lines_that_it_links_to(
    function: str, backend: str, request: pytest.FixtureRequest
) -> None:
    recording = request.getfixturevalue(backend)
    linked = _linked(recording, function, PROGRAMS[function][1].partition("(")[0])
    changed = _changed(recording, function)
    assert changed, "the two programs have the same kernels"
    assert changed <= set().union(*linked.values())
    # What it loads, stores and compares with reads the same in both.
    for step, lines in linked.items():
        assert lines & changed or step.name.rpartition(".")[2].startswith(CARRIERS), step


@pytest.mark.parametrize("backend", ["on_cpu", "on_gpu"])
def test_a_gather_has_the_load_that_it_addresses(
    backend: str, request: pytest.FixtureRequest
) -> None:
    """Also where its input is computed in place, and so loads at the index of the gather."""
    linked = _linked(request.getfixturevalue(backend), "inside_a_gather", "gather")
    loads = {
        step.text.partition("'")[2].partition("'")[0] for step in linked if "load" in step.name
    }
    assert loads == {"arg0_1", "arg1_1"}


@pytest.mark.parametrize("backend", ["on_cpu", "on_gpu"])
def test_every_operation_has_lines_or_a_reason_to_have_none(
    backend: str, request: pytest.FixtureRequest
) -> None:
    recording = request.getfixturevalue(backend)
    seen, reasons = set(), set()
    for one in trace(recording, lambda node: True):
        seen.add(one.node.operation)
        reasons.add(one.no_code.partition(":")[0].partition(",")[0])
        called = any(each.kernel.language == "extern" for each in one.kernels)
        has_lines = any(each.lines for each in one.kernels)
        assert has_lines or called or one.no_code, (one.compile.function, one.node.name)
        assert not (has_lines and one.no_code), one.no_code
    assert seen >= {"cat", "eq", "where", "sub", "logical_and", "gather", "index_put"}
    assert reasons >= {
        "a number",
        "a view",
        "it runs another graph",
        "one of the results of cond",
        "worked out while compiling",
    }


@pytest.mark.parametrize("backend", ["on_cpu", "on_gpu"])
def test_every_line_of_a_loop_body_belongs_to_an_operation(
    backend: str, request: pytest.FixtureRequest
) -> None:
    recording = request.getfixturevalue(backend)
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            join = GraphJoin(recording, compile_, graph)
            for leaf in (leaf for item in join.after for leaf in item.leaves if leaf.body):
                owned = {name for names in leaf.computes.values() for name in names}
                assert {step.name for step in steps_of(join.text(leaf.body))} <= owned


@pytest.mark.parametrize("backend", ["on_cpu", "on_gpu"])
def test_every_link_is_to_a_line_that_was_written_for_it(
    backend: str, request: pytest.FixtureRequest
) -> None:
    """The emitter's output is recorded as text, too: both records agree, brace by brace."""
    recording: Recording = request.getfixturevalue(backend)
    for graph in recording.graphs:
        for kernel in graph.kernels:
            source = recording.payload(kernel.payload).splitlines()
            written = {_beginning(text) for _, _, text in kernel.lines}
            assert kernel.language == "extern" or kernel.numbered
            for _, operation, number in kernel.numbered:
                line = source[number - 1].strip()
                assert _beginning(line) in written, (kernel.name, operation, number)


def _beginning(line: str) -> str:
    """Without what torch fills in when the kernel is complete, such as '<EP>'."""
    return line.partition("(")[0]
