"""A link from an operation to lines of a kernel: proven by changing the operation.

Each program is compiled twice, the second time with one operation replaced by another that is
written on as many lines. The kernels then differ in the lines of this operation and in no other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from inductoscope.kernels.target import parse_target
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.trace import by_operation, trace
from inductoscope.recording.location import FOLDER_VARIABLE
from inductoscope.targets.recompile.stored import recording_for_target
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
}

# Only the texts of the kernels matter, so no compiler needs to run.
SCRIPT = """
import torch
from torch._inductor.async_compile import AsyncCompile
AsyncCompile.cpp_pybinding = lambda self, types, source: lambda *arguments: None
x, y = torch.randn(37, 96), torch.randn(37, 96)
i = torch.randint(0, 96, (37, 20))
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
        return load(recording_for_target(place / "recording", parse_target("cuda:90")))


def _linked(recording: Recording, function: str, operation: str) -> set[tuple[int, int]]:
    """Kernel by kernel, the lines that an operation of a function leads to."""
    found = set()
    for one in trace(recording, by_operation(operation)):
        if one.compile.function == function:
            names = [kernel.name for kernel in one.graph.kernels]
            for each in one.kernels:
                found |= {(names.index(each.kernel.name), number) for number, _ in each.lines}
    return found


def _changed(recording: Recording, function: str) -> set[tuple[int, int]]:
    """Kernel by kernel, the lines of a function's code that are others in the changed function."""
    found = set()
    for place, (before, after) in enumerate(
        zip(_texts(recording, function), _texts(recording, f"{function}_changed"), strict=True)
    ):
        old, new = before.splitlines(), after.splitlines()
        assert len(old) == len(new)
        first = next(n for n, line in enumerate(old) if "kernel(" in line or "def triton_" in line)
        found |= {
            (place, number)
            for number, (one, other) in enumerate(zip(old, new, strict=True), start=1)
            if one != other and number > first + 1
        }
    return found


def _texts(recording: Recording, function: str) -> list[str]:
    compile_ = next(c for c in recording.compiles if c.function == function)
    return [recording.payload(k.digest) for graph in compile_.inductor for k in graph.kernels]


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("backend", ["on_cpu", "on_gpu"])
def test_changing_an_operation_changes_the_lines_that_it_links_to(
    function: str, backend: str, request: pytest.FixtureRequest
) -> None:
    recording = request.getfixturevalue(backend)
    linked = _linked(recording, function, PROGRAMS[function][1])
    changed = _changed(recording, function)
    assert changed, "the two programs have the same kernels"
    # A load or a store that belongs to it reads the same in both.
    assert changed <= linked
    texts = _texts(recording, function)
    for kernel, number in linked - changed:
        line = texts[kernel].splitlines()[number - 1]
        assert any(word in line for word in ("load", "store", "_ptr", "static_cast<float>")), line


@pytest.mark.parametrize("backend", ["on_cpu", "on_gpu"])
def test_every_link_is_to_a_line_that_was_written_for_it(
    backend: str, request: pytest.FixtureRequest
) -> None:
    """What the emitter wrote is recorded as text, too: both records agree, brace by brace."""
    recording: Recording = request.getfixturevalue(backend)
    for graph in recording.graphs:
        for kernel in graph.kernels:
            source = recording.payload(kernel.digest).splitlines()
            written = {_beginning(text) for _, _, text in kernel.lines}
            assert kernel.language == "extern" or kernel.numbered
            for _, operation, number in kernel.numbered:
                line = source[number - 1].strip()
                assert _beginning(line) in written, (kernel.name, operation, number)


def _beginning(line: str) -> str:
    """Without what torch fills in when the kernel is complete, such as '<EP>'."""
    return line.partition("(")[0]
