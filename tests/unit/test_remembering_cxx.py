"""The compiler that the tests compile with: what it may answer from memory, and what it may not."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.programs import SEARCH_PATH, install_compiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

SOURCE = 'extern "C" int answer() { return 42; }\n'


class Compiler:
    """A compiler with a memory of its own, and a count of how often the real one was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._calls = folder / "calls"
        counting = folder / "counting" / "g++"
        counting.parent.mkdir()
        real = shutil.which("g++", path=SEARCH_PATH)
        counting.write_text(f'#!/bin/sh\necho >>"{self._calls}"\nexec {real} "$@"\n')
        counting.chmod(0o755)
        path = os.pathsep.join([str(counting.parent), SEARCH_PATH])
        self._program = install_compiler(folder / "remembering", path) / "g++"

    def __call__(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(word) for word in (self._program, *words)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def library(self, text: str, *options: str, name: str = "kernel") -> Path:
        """Compile a text in a folder of its own, as torch does; the library that came of it."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "main.cpp").write_text(text)
        library = folder / "main.so"
        self(folder / "main.cpp", "-shared", "-fPIC", *options, "-o", library)
        return library

    @property
    def calls(self) -> int:
        return len(self._calls.read_text()) if self._calls.exists() else 0


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path)


def test_the_same_text_elsewhere_is_compiled_once(compiler: Compiler) -> None:
    first, second = (compiler.library(SOURCE, name=name) for name in ("one", "two"))
    assert compiler.calls == 1
    assert first.read_bytes() == second.read_bytes()
    assert ctypes.CDLL(str(second)).answer() == 42


def test_another_text_and_another_flag_are_compiled(compiler: Compiler) -> None:
    compiler.library(SOURCE, name="one")
    changed = compiler.library(SOURCE.replace("42", "43"), name="two")
    compiler.library(SOURCE, "-O2", name="three")
    compiler.library(SOURCE, "-include", "cstdint", name="four")
    assert compiler.calls == 4
    assert ctypes.CDLL(str(changed)).answer() == 43


def test_what_the_compiler_refuses_it_refuses_every_time(compiler: Compiler) -> None:
    source = compiler.folder / "wrong.cpp"
    source.write_text("int answer() { return no_such_name; }\n")
    for _ in range(2):
        done = compiler(source, "-shared", "-o", compiler.folder / "wrong.so")
        assert done.returncode == 1
        assert "no_such_name" in done.stderr
    assert compiler.calls == 2


def test_a_source_that_includes_a_file_of_its_own_is_compiled(compiler: Compiler) -> None:
    """The text says nothing of what is in that file."""
    own = compiler.folder / "own.h"
    own.write_text("#define ANSWER 1\n")
    source = f'#include "{own}"\n' + SOURCE.replace("42", "ANSWER")
    compiler.library(source, name="one")
    own.write_text("#define ANSWER 2\n")
    assert ctypes.CDLL(str(compiler.library(source, name="two"))).answer() == 2


def test_several_sources_and_questions_are_for_the_real_one(compiler: Compiler) -> None:
    for name in ("one", "two"):
        (compiler.folder / f"{name}.cpp").write_text(f"int {name}() {{ return 0; }}\n")
    sources = [compiler.folder / "one.cpp", compiler.folder / "two.cpp"]
    for _ in range(2):
        both = compiler.folder / "both.so"
        assert compiler(*sources, "-shared", "-fPIC", "-o", both).returncode == 0
        assert "Free Software Foundation" in compiler("--version").stdout
    assert compiler.calls == 4


def test_a_place_that_cannot_be_written_is_for_the_real_one_to_complain_of(
    compiler: Compiler,
) -> None:
    compiler.library(SOURCE, name="one")
    source = compiler.folder / "one" / "main.cpp"
    done = compiler(source, "-shared", "-fPIC", "-o", compiler.folder / "missing" / "main.so")
    assert compiler.calls == 2
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr


def test_tests_find_it_where_programs_look_for_a_compiler() -> None:
    found = shutil.which("g++")
    assert found is not None
    assert Path(found).parent.name == "remembering"
    assert os.environ["PATH"].endswith(SEARCH_PATH)


def test_it_says_of_itself_what_the_real_one_says() -> None:
    """torch puts this into the names of headers, which all programs are to share."""
    own, real = (
        subprocess.run(["g++", "-v"], env={"PATH": path}, capture_output=True, check=True)
        for path in (os.environ["PATH"], SEARCH_PATH)
    )
    assert own.stderr == real.stderr
