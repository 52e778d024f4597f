"""A package that brings its own copy of the C++ library: told without loading it, and what it does.

A compiler that links libstdc++ statically makes such packages. Loaded beside torch, they crash.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.packages import cpp_library
from inductoscope.packages.elf import read_library
from inductoscope.packages.execution import RunOutcome, findings_of_both, may_be_the_copy
from inductoscope.packages.fitting import fits, look_at_this_machine
from inductoscope.packages.package import Package, read_package

SMALL = Path(__file__).parents[1] / "data" / "packages" / "small.pt2"
SOURCE = """
#include <iostream>
extern "C" void AOTInductorModelContainerCreate(int n) { std::cout << n; }
"""


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One that links libstdc++ dynamically and one that does not, however g++ was configured."""
    folder = tmp_path_factory.mktemp("compilers")
    for name in ("dynamic", "static"):
        # The driver of C adds no library of C++ itself.
        libraries = f"-Wl,-B{name} -lstdc++ -Wl,-Bdynamic -lm"
        (folder / name).write_text(f'#!/bin/sh\nexec gcc "$@" {libraries}\n')
        (folder / name).chmod(0o755)
    return {name: str(folder / name) for name in ("dynamic", "static")}


@pytest.fixture(scope="module")
def libraries(
    tmp_path_factory: pytest.TempPathFactory, compilers: dict[str, str]
) -> dict[str, Path]:
    """The same source linked in three ways."""
    folder = tmp_path_factory.mktemp("linked")
    (folder / "source.cpp").write_text(SOURCE)
    subprocess.run(["g++", "-c", "-fPIC", "source.cpp"], cwd=folder, check=True)
    ways = {
        "shared": [compilers["dynamic"]],
        "copied": [compilers["static"]],
        "hidden": [compilers["static"], "-Wl,--exclude-libs,ALL"],
    }
    for name, compiler in ways.items():
        command = [*compiler, "-shared", "source.o", "-o", f"{name}.so"]
        subprocess.run(command, cwd=folder, check=True)
    return {name: folder / f"{name}.so" for name in ways}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("shared", False),
        ("copied", True),
        ("hidden", False),  # The loader does not see the copy: nothing gets mixed up.
    ],
)
def test_a_copy_is_told_by_the_symbols_that_the_library_offers(
    libraries: dict[str, Path], name: str, answer: bool
) -> None:
    path = libraries[name]
    assert cpp_library.file_brings_own(path) is answer
    assert cpp_library.brings_own(read_library(memoryview(path.read_bytes()), name)) is answer


def test_a_file_that_is_no_library_brings_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(b"\x7fELF" + bytes(100))
    assert not cpp_library.file_brings_own(tmp_path / "model.so")
    assert not cpp_library.file_brings_own(tmp_path / "missing.so")


def with_library(path: Path) -> Package:
    """The stored package with another library in it."""
    package = read_package(SMALL)
    library = read_library(memoryview(path.read_bytes()), path.name)
    return replace(package, models=(replace(package.models[0], library=library),))


def test_a_copy_is_a_row_of_whether_it_fits(
    libraries: dict[str, Path], snapshot: SnapshotAssertion
) -> None:
    here = look_at_this_machine()
    package = with_library(libraries["copied"])
    (row,) = (fit for fit in fits(package, package.models[0], here) if fit.what == "C++ library")
    assert row.fits is None
    assert row.text == snapshot
    package = with_library(libraries["shared"])
    assert "C++ library" not in [fit.what for fit in fits(package, package.models[0], here)]


def test_which_libstdcxx_a_compiler_takes(tmp_path: Path, compilers: dict[str, str]) -> None:
    assert cpp_library.linked_by([compilers["dynamic"]]).endswith("libstdc++.so")
    assert cpp_library.linked_by([compilers["static"]]).endswith("libstdc++.a")
    assert cpp_library.linked_by([str(tmp_path / "none")]) == ""


# --- what two runs say ----------------------------------------------------------------------------

DIED = RunOutcome("dies", "load", "", "SIGSEGV", -11, 1.0, (), (), (), "")
RAN = replace(DIED, outcome="runs", stage="run", signal="", exit_code=0)


def test_a_second_run_is_made_only_where_the_copy_may_matter(libraries: dict[str, Path]) -> None:
    copied, shared = (with_library(libraries[name]).models[0] for name in ("copied", "shared"))
    assert may_be_the_copy(DIED, copied)
    assert not may_be_the_copy(DIED, shared)
    assert not may_be_the_copy(RAN, copied)


@pytest.mark.parametrize(
    ("second", "problem", "sentence"),
    [
        (RAN, True, "with libstdc++.so.6 loaded first, the same run ends well"),
        (
            replace(DIED, stage="run"),
            True,
            "the same run goes further, and then dies while running the model",
        ),
        (
            replace(DIED, signal="SIGABRT"),
            False,
            "With libstdc++.so.6 loaded first it dies while loading the package (SIGABRT), too",
        ),
    ],
    ids=["cured", "goes further", "dies, too"],
)
def test_what_the_second_run_says(
    libraries: dict[str, Path], second: RunOutcome, problem: bool, sentence: str
) -> None:
    model = with_library(libraries["copied"]).models[0]
    found = {finding.name: finding for finding in findings_of_both(DIED, second, model)}
    assert found["cpp_library"].is_problem is problem
    assert sentence in found["cpp_library"].text
    assert ("remedy" in found) is problem
    assert found["cpp_library"].confidence == "proven"
    if problem:
        assert 'ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)' in found["remedy"].text


@pytest.mark.parametrize(
    "first",
    [replace(DIED, stage="run"), replace(DIED, outcome="does not end", signal="")],
    ids=["the model may fail now and then", "the machine may be slow once"],
)
def test_one_good_run_is_no_proof_of_what_does_not_always_fail(
    libraries: dict[str, Path],
    first: RunOutcome,
    snapshot: SnapshotAssertion,
) -> None:
    found = next(iter(findings_of_both(first, RAN, with_library(libraries["copied"]).models[0])))
    assert found.text == snapshot
    assert (found.is_problem, found.confidence) == (True, "likely")
