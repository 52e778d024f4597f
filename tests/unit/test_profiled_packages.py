"""Packages that a program compiles are its own: a copy with kernel profiling is loaded instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inductoscope.inside.profiling.profiled_packages import SETTING, ProfiledPackages


class Model:
    """A package, loaded."""

    def __init__(self, text: str) -> None:
        self.text = text


class PlainCompiler:
    """Compiles a program into a file that holds its settings, and loads it."""

    def __init__(self, folder: Path) -> None:
        self.packages = ProfiledPackages(folder / "profile")
        compiling, loading = (hook.wraps[0].replacement for hook in self.packages.hooks())
        self.compile: Callable[..., Any] = compiling(self._compile)
        self.load: Callable[..., Any] = loading(lambda path: Model(Path(path).read_text()))
        self.refuses_profiling = False
        self.compiled: list[dict[str, Any]] = []

    def _compile(
        self, program: str, *, package_path: Any = None, inductor_configs: Any = None
    ) -> str:
        settings = inductor_configs or {}
        if program == "broken" or (self.refuses_profiling and SETTING in settings):
            raise RuntimeError("cannot be compiled")
        self.compiled.append(settings)
        Path(package_path).write_text(f"{program} {sorted(settings)}")
        return str(package_path)


@pytest.fixture
def compiler(tmp_path: Path) -> PlainCompiler:
    return PlainCompiler(tmp_path)


def test_the_package_is_as_ever_and_its_copy_is_loaded(
    compiler: PlainCompiler, tmp_path: Path
) -> None:
    path = tmp_path / "m.pt2"
    written = compiler.compile("a", package_path=path, inductor_configs={"freezing": True})
    assert written == str(path)
    assert path.read_text() == "a ['freezing']"
    model = compiler.load(written)
    assert model.text == f"a ['{SETTING}', 'freezing']"
    assert compiler.packages.path_of(model) == written
    compiler.packages.remove_copies()
    assert not list((tmp_path / "profile").iterdir())
    assert path.exists()


def test_a_package_that_the_program_exchanged_is_loaded_itself(
    compiler: PlainCompiler, tmp_path: Path
) -> None:
    path = tmp_path / "m.pt2"
    compiler.compile("a", package_path=path)
    path.write_text("of another program")
    assert compiler.load(path).text == "of another program"
    (tmp_path / "old.pt2").write_text("compiled yesterday")
    assert compiler.load(tmp_path / "old.pt2").text == "compiled yesterday"


def test_without_a_copy_the_program_goes_on(compiler: PlainCompiler, tmp_path: Path) -> None:
    compiler.refuses_profiling = True
    written = compiler.compile("a", package_path=tmp_path / "m.pt2")
    assert compiler.compiled == [{}]
    assert compiler.load(written).text == "a []"


def test_a_program_that_cannot_be_compiled_fails_as_ever(
    compiler: PlainCompiler, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="cannot be compiled"):
        compiler.compile("broken", package_path=tmp_path / "m.pt2")
