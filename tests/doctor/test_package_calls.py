"""Calls of a package by a program that uses torch's own loader or runner.

A plain Python function stands for the package, so nothing is compiled here.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from inductoscope.doctor.instructions import Instructions
from inductoscope.inside.doctor.checked_packages import PACKAGES, LoaderOnDemand, Packages, run_flat
from inductoscope.inside.doctor.checking_agent import package_hooks
from inductoscope.inside.doctor.exported_program import CompiledProgram, compiled_program
from inductoscope.inside.doctor.package_calls import (
    CheckedCalls,
    Demands,
    NewConstants,
    PackageCalls,
)
from inductoscope.inside.install import Installer
from inductoscope.inside.scope import SCOPE
from inductoscope.model.fold import load
from inductoscope.recording.events import Event, HookOff
from inductoscope.recording.location import create_recording
from inductoscope.recording.reader import open_recording


class Scaled(torch.nn.Module):
    def forward(
        self, x: torch.Tensor, scale: int, mask: torch.Tensor | None, y: torch.Tensor
    ) -> torch.Tensor:
        return x * scale + y if mask is None else x


# Of a package that does not say what it demands.
DEMANDS = Demands("no such package", None)
X, Y = torch.arange(12.0).reshape(3, 4), torch.ones(3, 4)
Said = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Said]:
    """Failures reported for every call."""
    folder = create_recording(["python"], output=tmp_path / "recording")
    SCOPE.open(folder)
    yield lambda: [(check.verdict, check.text) for check in load(folder).checks]
    SCOPE.close()


def events(place: Path) -> list[Event]:
    return [entry.event for entry in open_recording(place / "recording").entries()]


def program(place: Path, backend: str = "") -> CompiledProgram:
    """As torch gives it to AOTInductor: with None for everything that is no tensor."""
    exported = torch.export.export(Scaled(), (X, 2, None, Y))
    instructions = Instructions(backend=backend, investigate=False)
    return compiled_program(exported.graph_module, (X, None, None, Y), {}, instructions, place)


def run(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [x * 2 + y]


def test_a_loader_is_given_tensors_alone(tmp_path: Path, said: Said) -> None:
    calls = CheckedCalls(program(tmp_path), DEMANDS, is_flat=True)
    assert torch.equal(calls(run, (X, Y), {})[0], X * 2 + Y)
    calls(lambda x, y: [x * 3 + y], (X, Y), {})
    assert [verdict for verdict, _ in said()] == ["right", "wrong"]


def test_the_program_stands_in_for_what_a_loader_calls(tmp_path: Path, said: Said) -> None:
    calls = CheckedCalls(program(tmp_path, "eager"), DEMANDS, is_flat=True)
    given: list[Any] = []

    def refuse(*inputs: Any) -> None:
        given.extend(inputs)
        raise RuntimeError("expected inputs vector size to be 2, but got 1")

    assert torch.equal(calls(refuse, (X, Y), {})[0], X * 2 + Y)
    # Torch says what is wrong with a call, and not the program in eager.
    with pytest.raises(RuntimeError, match="expected inputs vector size"):
        calls(refuse, (X,), {})
    assert len(given) == 1
    assert said() == [("skipped", "it was called with 1 tensor; the program takes 2")]


VIEW = "constant weight: the new one is a view of 96 bytes; torch copies all of them"


@pytest.mark.parametrize(("broken", "is_kept"), [([VIEW], True), ([], False)])
def test_new_constants_are_kept_until_the_first_call(
    tmp_path: Path, said: Said, broken: list[str], is_kept: bool
) -> None:
    """And only if a trial with copies of them could show something."""
    calls = CheckedCalls(program(tmp_path), DEMANDS, is_flat=True)
    weight = torch.ones(4)
    kept = weakref.ref(weight)

    def give(weight: torch.Tensor = weight) -> None: ...

    new = NewConstants({"weight": weight}, with_copies=give, broken={"weight": broken})
    calls.replace_constants(new)
    del weight, give, new
    gc.collect()
    assert (kept() is not None) == is_kept
    calls(run, (X, Y), {})
    gc.collect()
    assert kept() is None


class Loader:
    """Stands for torch's, which gives every tensor up as soon as it is done with it."""

    def boxed_run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        self.inputs = inputs
        found = run(*inputs)
        inputs.clear()
        return found


def test_a_call_that_nobody_watches_is_left_alone(tmp_path: Path, said: Said) -> None:
    """Torch's own code calls a loader, too: what it gives away must not be held by anybody."""
    loader, inputs = Loader(), [X, Y]
    run_flat(Loader.boxed_run, loader, inputs)
    assert loader.inputs is inputs
    PACKAGES._calls[loader] = CheckedCalls(program(tmp_path), DEMANDS, is_flat=True)
    inputs = [X, Y]
    run_flat(Loader.boxed_run, loader, inputs)
    assert inputs == []
    assert [verdict for verdict, _ in said()] == ["right"]


def test_a_runner_whose_constants_the_program_changes(tmp_path: Path, said: Said) -> None:
    """They may be anything then, so that a difference would say nothing."""
    calls = CheckedCalls(program(tmp_path), DEMANDS, is_flat=True)
    calls.lose_constants()
    calls(lambda x, y: [x], (X, Y), {})
    assert said() == [("skipped", "the program took its constants into its own hands")]


class TakesConstants:
    """Stands for torch's loader, which takes constants where they lie."""

    def __init__(self) -> None:
        self.given: dict[str, torch.Tensor] = {}

    def load_constants(self, constants_map: dict[str, torch.Tensor], *flags: bool) -> None:
        self.given = constants_map

    def update_constant_buffer(self, tensor_map: dict[str, torch.Tensor], **flags: bool) -> None:
        self.given = tensor_map


class Hears(PackageCalls):
    """Failures reported for new constants."""

    def __init__(self) -> None:
        super().__init__("a package", DEMANDS)
        self.new: list[NewConstants] = []

    def replace_constants(self, new: NewConstants) -> None:
        self.new.append(new)


def test_a_program_that_stands_in_for_a_package_hears_of_its_new_constants() -> None:
    """Otherwise it would go on with the old ones; and torch's way with views would end it."""
    real, heard, packages = TakesConstants(), Hears(), Packages()
    loader = LoaderOnDemand(lambda: real)
    packages.watch_constants(loader, heard)
    view = torch.ones(9, 4)[:3]
    loader.load_constants({"weight": view}, False, True)
    assert real.given["weight"].untyped_storage().nbytes() == 48
    loader.update_constant_buffer(tensor_map={"weight": view}, use_inactive=False)
    assert real.given["weight"].untyped_storage().nbytes() == 48
    assert [new.given["weight"] is view for new in heard.new] == [True, True]


class RunnerOnGpu:
    """Stands for what a torch that was built for CUDA has, with a stream as its last argument."""

    def __init__(self, so_path: str, runners: int, device: str, cubin_dir: str) -> None:
        self.device = device

    def run(self, inputs: list[torch.Tensor], stream: int = 0) -> list[torch.Tensor]:
        return [inputs[0] * 2 + inputs[1]]


@pytest.mark.parametrize("is_built", [True, False])
def test_a_runner_for_a_gpu_is_watched_where_torch_has_one(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch, is_built: bool
) -> None:
    name, library = "AOTIModelContainerRunnerCuda", str(tmp_path / "model.so")
    if is_built:
        monkeypatch.setattr(torch._C._aoti, name, RunnerOnGpu, raising=False)
    monkeypatch.setitem(PACKAGES._libraries, library, program(tmp_path))
    instructions = Instructions(investigate=False)
    installer = Installer(package_hooks(instructions, tmp_path))
    installer.start()
    try:
        if is_built:
            runner = getattr(torch._C._aoti, name)(library, 1, "cuda", "")
            assert torch.equal(runner.run([X, Y], 7)[0], X * 2 + Y)
    finally:
        installer.stop()
    assert [verdict for verdict, _ in said()] == (["right"] if is_built else [])
    assert not [event for event in events(tmp_path) if isinstance(event, HookOff)]
