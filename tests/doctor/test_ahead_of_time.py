"""AOTInductor: what a package computes is held against the program that it was made from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx import symbolic_trace

from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.instructions import Instructions
from inductoscope.inside.doctor.checked_packages import Packages
from inductoscope.inside.doctor.exported_program import CompiledProgram
from inductoscope.inside.doctor.package_calls import CallsFromElsewhere, Demands, NewConstants
from inductoscope.inside.program_settings import MarkedSize
from inductoscope.inside.repro.failure_script import script_text
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import digest, examine
from inductoscope.torch_facts.stages import AOT_INDUCTOR
from support.graphs import numbers
from support.programs import TOOL, Workplace


def scores(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
    return (torch.relu(x @ w).sum(dim=1),)


def candidate(**more: Any) -> Candidate:
    recipes = ("torch.ones(6, 4)", "torch.ones(4, 8)")
    return Candidate(
        symbolic_trace(scores),
        (numbers(6, 4), numbers(4, 8)),
        recipes=recipes,
        flow=AOT_INDUCTOR,
        constants=frozenset({"w"}),
        marks=(MarkedSize("x", 0, "mark_dynamic", 2, 64),),
        **more,
    )


@pytest.fixture
def static_compiler(tmp_path: Path) -> str:
    """Links every library with a copy of libstdc++ in it."""
    script = tmp_path / "static-g++"
    script.write_text(
        "#!/bin/bash\n"
        'case " $* " in *" -shared "*) exec g++ -static-libstdc++ "$@";; *) exec g++ "$@";; esac\n'
    )
    script.chmod(0o755)
    return str(script)


def test_a_candidate_is_tried_through_a_package_of_its_own(static_compiler: str) -> None:
    """Here with a lowering that is wrong, and linked in a way that loading it would crash."""

    def tried() -> Failure | None:
        import torch._inductor.config
        from torch._inductor.lowering import lowerings

        torch._inductor.config.cpp.cxx = (static_compiler,)

        relu, mul = torch.ops.aten.relu.default, torch.ops.aten.mul.Tensor
        right = lowerings[relu]
        lowerings[relu] = lambda x: lowerings[mul](right(x), 1.5)
        return examine(candidate())

    found = Forks(seconds=300).ask(tried).result
    assert found["kind"] == WRONG


def test_a_script_for_a_machine_whose_packages_bring_a_copy_of_the_cpp_library(
    static_compiler: str,
) -> None:
    import torch._inductor.config

    line = 'ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)'
    failure = Failure(WRONG, "output 0 is 3")
    assert "ctypes" not in script_text(candidate(), failure, "It is wrong.")
    with torch._inductor.config.patch({"cpp.cxx": (static_compiler,)}):
        text = script_text(candidate(), failure, "It is wrong.")
    assert text.index("import ctypes") < text.index(line) < text.index("aoti_load_package")


def test_a_run_in_eager_does_not_load_the_package_that_it_replaces(tmp_path: Path) -> None:
    """One that cannot be loaded would end it, and the program would be blamed."""
    path = tmp_path / "model.pt2"
    path.write_bytes(b"a package")
    asked: list[str] = []

    def load() -> Any:
        asked.append("load")
        return SimpleNamespace(loader=SimpleNamespace(get_metadata=dict))

    for backend, loads in (("", ["load"]), ("eager", [])):
        packages = Packages()
        instructions = Instructions(backend=backend)
        program = CompiledProgram("aoti/0", None, {}, (), instructions, tmp_path)  # type: ignore[arg-type]
        packages._libraries[str(tmp_path / "model.so")] = program
        packages.note_package(path, [str(tmp_path / "model.so")])
        asked.clear()
        model = packages.loaded(load, path, "model")
        assert asked == loads
        # A program that asks the package for something gets it.
        assert model.loader.get_metadata() == {}
        assert asked == ["load"]
    path.write_bytes(b"half")
    assert packages.loaded(load, path, "model") is not None
    assert asked == ["load", "load"]  # What became of the file is the program's own doing.


def test_the_way_to_the_compiler_is_part_of_what_a_candidate_is() -> None:
    """Otherwise the answer for torch.compile would be taken for that of a package."""
    packaged = candidate()
    just_in_time = Candidate(packaged.module, packaged.inputs, marks=packaged.marks)
    assert digest(packaged) != digest(just_in_time)


def test_the_script_exports_packages_loads_and_calls(tmp_path: Path) -> None:
    """Run as it is where nothing is wrong, so it ends with 0."""
    text = script_text(candidate(), Failure(WRONG, "wrong", aspect="value"), "it is wrong")
    assert "self.register_buffer" in text  # The weight is a constant of the package.
    assert "dynamic_shapes=({0: torch.export.Dim.AUTO(min=2, max=64)},)" in text
    assert "aoti_compile_and_package" in text
    assert "mark_dynamic" not in text
    script = tmp_path / "repro.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "compiled:" in done.stdout


PACKAGED = """
import torch
from torch.export import Dim

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x * 2 + 1).sum(1)

torch.manual_seed(0)
x = torch.randn(16, 16)
rows = Dim("rows", min=2, max=64)
program = torch.export.export(Model(), (x,), dynamic_shapes={{"x": {{0: rows}}}})
path = torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
model = torch._inductor.aoti_load_package(path)
print(model(x)[0])
print(model({given})[0])
"""

SERVED = """
import torch
model = torch._inductor.aoti_load_package("model.pt2")
print(model(torch.randn(100, 16))[0])
"""


@pytest.mark.spread
def test_an_input_that_the_package_was_not_made_for(workplace: Workplace) -> None:
    """Strides are part of what a package is made for; it computes with whatever it gets."""
    workplace.write("export_and_run.py", PACKAGED.format(given="torch.randn(16, 16).t()"))
    found = workplace.doctor("export_and_run.py")
    assert found.exit_code == 1
    verdict = found.verdict
    assert (verdict["verdict"], verdict["stage"]) == ("not-a-bug", "user")
    assert "input 0 (x): stride 0 is 1; the package accepts 16" in verdict["summary"]
    assert verdict["culprit"]["source"] == "export_and_run.py:16"
    assert "AOTI_RUNTIME_CHECK_INPUTS=1" in found.names
    # The package of that program, served by another one.
    workplace.write("serve.py", SERVED)
    served = workplace.call([*TOOL, "aoti", "--json", "served.json", "serve.py"])
    assert served.returncode == 1
    verdict = json.loads((workplace.folder / "served.json").read_text())
    assert verdict["verdict"] == "not-a-bug"
    assert "dimension 0 is 100; the package accepts 2 to 64" in verdict["summary"]


# Torch's own runner is given tensors alone, where the program takes a number and None as well.
BARE = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(16, 16))

    def forward(self, x, scale, mask, y):
        return torch.tanh(x @ self.weight * scale + y) if mask is None else x

x, y = torch.ones(16, 16), torch.arange(256.0).reshape(16, 16)
exported = torch.export.export(Scaled(), (x, 2, None, y))
library = torch._inductor.aot_compile(exported.module(check_guards=False), (x, 2, None, y))
runner = torch._C._aoti.AOTIModelContainerRunnerCpu(library, 1)
print(runner.run([x, y])[0].sum(), runner.run([x + 1, y])[0].sum())
"""


@pytest.mark.spread
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(PACKAGED.format(given="torch.randn(9, 16)"), id="a size not exported with"),
        pytest.param(BARE, id="the runner of torch"),
    ],
)
def test_calls_of_a_healthy_package_are_compared(workplace: Workplace, program: str) -> None:
    workplace.write("export_and_run.py", program)
    found = workplace.doctor("export_and_run.py")
    assert (found.exit_code, found.verdict["verdict"]) == (0, "clean")
    assert "2 calls of 1 compiled graph match eager" in found.verdict["summary"]


# Torch copies all of the memory behind the view, far past the end of the package's own.
OVERFLOWS = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(16, 16))

    def forward(self, x):
        return x @ self.weight

x = torch.ones(4, 16)
package = torch._inductor.aoti_compile_and_package(torch.export.export(Scaled(), (x,)))
model = torch._inductor.aoti_load_package(package)
many = torch.ones(1 << 24, 16)
model.load_constants({"weight": many[:16]}, check_full_update=True)
print(model(x).sum())
"""


@pytest.mark.spread
def test_a_view_that_torch_writes_past_the_end_of_a_package_is_not_the_programs_fault(
    workplace: Workplace,
) -> None:
    """The process dies in load_constants: what it was given is known before that."""
    workplace.write("overflows.py", OVERFLOWS)
    found = workplace.doctor("overflows.py")
    verdict = found.verdict
    assert (verdict["verdict"], verdict["stage"]) == ("crash", "runtime"), verdict["summary"]
    assert "load_constants of torch takes a view wrongly: constant weight" in verdict["summary"]
    assert verdict["culprit"]["source"] == "overflows.py:16"


class Heard(CallsFromElsewhere):
    """Failures reported for new constants."""

    def __init__(self, path: str) -> None:
        super().__init__("model", Demands(path, "model"), None)
        self.new: list[NewConstants] = []

    def replace_constants(self, new: NewConstants) -> None:
        self.new.append(new)


def test_new_constants_are_heard_of_whoever_gives_them(tmp_path: Path) -> None:
    """Otherwise calls would be compared with the old ones, and a healthy package looked wrong."""
    x = numbers(3, 64)
    exported = torch.export.export(torch.nn.Linear(64, 32, bias=False), (x,))
    path = torch._inductor.aoti_compile_and_package(
        exported, package_path=str(tmp_path / "model.pt2")
    )
    model = torch._inductor.aoti_load_package(path)
    packages, heard = Packages(), Heard(path)
    packages.watch_constants(model.loader, heard)
    weight = {"weight": torch.ones(32, 64)}
    model.load_constants(weight, check_full_update=True)
    model.loader.load_constants(weight, False, True, user_managed=True)
    assert [(sorted(new.given), new.is_copied, new.texts) for new in heard.new] == [
        (["weight"], True, []),
        (["weight"], False, []),
    ]
    torch.testing.assert_close(model(x), x.sum(1, keepdim=True).expand(3, 32))
    # A view: torch would copy all of the memory behind it, over what lies beside the constant.
    assert heard.judge_constants(NewConstants({"weight": torch.ones(33, 64)[:32]})).texts == [
        "constant weight: the new one is a view of 8448 bytes; torch copies all of them, and the "
        "package has room for 8192"
    ]
