"""`inductoscope aoti FILE`: whether a package fits this machine, and what cannot be told."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.cli.commands.aoti import _examined
from inductoscope.packages.fitting import Fit, LocalMachine, fits, look_at_this_machine
from inductoscope.packages.package import Package, read_package
from inductoscope.torch_facts.package_wrappers import read_wrapper

SMALL = Path(__file__).parents[1] / "data" / "packages" / "small.pt2"

# The machine that the stored package was built on.
BUILDER = LocalMachine("linux", "aarch64", frozenset({"asimd"}), "2.36", None, "2.13.0", ())


@pytest.fixture(scope="module")
def package() -> Package:
    return read_package(SMALL)


def on(here: LocalMachine, package: Package) -> dict[str, Fit]:
    found = fits(package, package.models[0], here)
    return {fit.what: fit for fit in sorted(found, key=lambda fit: fit.fits is not False)[::-1]}


def test_it_fits_the_machine_that_built_it(package: Package) -> None:
    assert all(fit.fits is not False for fit in on(BUILDER, package).values())


def test_another_processor_is_told_from_the_library_itself(
    package: Package, snapshot: SnapshotAssertion
) -> None:
    fit = on(replace(BUILDER, processor="x86_64"), package)["processor"]
    assert fit.fits is False
    assert fit.text == snapshot
    assert fit.established.startswith("read from the ELF header of ")


def test_instructions_that_the_processor_lacks(package: Package) -> None:
    model = replace(package.models[0], metadata={"AOTI_CPU_ISA": "AVX512"})
    other = replace(package, models=(model,))
    here = replace(BUILDER, processor_flags=frozenset({"avx2", "fma"}))
    fit = on(here, other)["instructions"]
    assert fit.fits is False
    assert "lacks avx512f" in fit.text


def for_gpu(package: Package, *kernel_files: str) -> Package:
    metadata = {"AOTI_DEVICE_KEY": "cuda", "AOTI_COMPUTE_CAPABILITY": "90"}
    model = replace(package.models[0], metadata=metadata, kernel_files=kernel_files)
    return replace(package, models=(model,))


def test_a_package_for_a_gpu(package: Package, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    cuda = for_gpu(package, "kernel.cubin")
    assert on(BUILDER, cuda)["GPU"].text == snapshot
    newer = on(replace(BUILDER, gpus=(("B200", "10.0"),)), cuda)["GPU"]
    assert newer.fits is False
    assert newer.text == snapshot
    assert on(replace(BUILDER, gpus=(("H200", "9.0"),)), cuda)["GPU"].fits
    assert on(replace(BUILDER, gpus=(("B200", "10.0"), ("H200", "9.0"))), cuda)["GPU"].fits
    (tmp_path / "lib").mkdir()
    without = on(replace(BUILDER, torch_folder=tmp_path), cuda)["device"]
    assert without.text == snapshot


def test_a_constant_that_is_not_where_the_package_runs(
    package: Package, snapshot: SnapshotAssertion
) -> None:
    """All constants of the stored package are on the CPU."""
    assert "constants" not in on(BUILDER, package)
    left = on(BUILDER, for_gpu(package))["constants"]
    assert left.fits is None
    assert left.text.startswith("3 constants on cpu (linear.weight, table, calls), not on cuda: ")
    wrapper = package.models[0].wrapper
    assert wrapper is not None
    moved = replace(wrapper, constants=(replace(wrapper.constants[0], device="cuda"),))
    other = replace(package, models=(replace(package.models[0], wrapper=moved),))
    refused = on(BUILDER, other)["constants"]
    assert refused.fits is False
    assert refused.text == snapshot


@pytest.mark.parametrize(
    ("files", "gpu", "answer"),
    [
        (("k.fatbin",), "10.0", None),  # The driver can compile the PTX in it.
        (("k.cubin", "k.ptx"), "10.0", None),
        (("k.fatbin",), "8.0", False),
        ((), "10.0", None),  # The kernels are in the library, if it has any.
        (("k.cubin",), "[N/A]", None),
    ],
)
def test_kernels_for_another_gpu(
    package: Package, files: tuple[str, ...], gpu: str, answer: bool | None
) -> None:
    here = replace(BUILDER, gpus=(("GPU", gpu),))
    assert on(here, for_gpu(package, *files))["GPU"].fits is answer


def test_without_an_answer_from_nvidia_smi_the_gpu_is_unknown(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = for_gpu(package, "kernel.cubin")
    assert on(replace(BUILDER, gpus=None), cuda)["GPU"].fits is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look_at_this_machine().gpus is None
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    assert look_at_this_machine().gpus is None


def test_a_torch_for_amd_gpus_is_not_judged_by_nvidia_smi(package: Package, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_hip.so").touch()
    fit = on(replace(BUILDER, torch_folder=tmp_path), for_gpu(package, "k.hsaco"))["GPU"]
    assert fit.fits is None


@pytest.mark.parametrize(
    ("words", "flags", "answer"),
    [
        ("AVX512 AVX512_VNNI AMX_TILE", "avx2 fma", False),
        ("AVX512 AVX512_VNNI", "avx512f avx512dq avx512vl avx512bw fma", None),
        ("AVX512 AVX512_VNNI", "avx512f avx512dq avx512vl avx512bw fma avx512_vnni", True),
        ("AVX2", "avx2 fma", True),
        ("AVX1024", "avx2 fma", None),
        ("INVALID_VEC_ISA", "avx2", True),
    ],
)
def test_each_word_of_the_instruction_set_counts(
    package: Package, words: str, flags: str, answer: bool | None
) -> None:
    model = replace(package.models[0], metadata={"AOTI_CPU_ISA": words}, wrapper=None)
    here = replace(BUILDER, processor_flags=frozenset(flags.split()))
    assert on(here, replace(package, models=(model,)))["instructions"].fits is answer


def test_an_older_c_library(package: Package, snapshot: SnapshotAssertion) -> None:
    fit = on(replace(BUILDER, c_library="2.31"), package)["C library"]
    assert fit.fits is False
    assert fit.text == snapshot


def test_a_package_of_a_newer_torch_calls_what_this_one_lacks(
    package: Package,
    tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:
    """A torch whose libraries offer what the stored library offers, which is no shim at all."""
    (tmp_path / "lib").mkdir()
    with zipfile.ZipFile(SMALL) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".so"))
        (tmp_path / "lib" / "libtorch_cpu.so").write_bytes(archive.read(name))
    fit = on(replace(BUILDER, torch_folder=tmp_path), package)["torch"]
    assert fit.fits is False
    assert fit.text == snapshot


def test_functions_of_a_custom_operator_are_no_sign_of_a_newer_torch(
    package: Package, tmp_path: Path
) -> None:
    (tmp_path / "lib").mkdir()
    with zipfile.ZipFile(SMALL) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".so"))
        (tmp_path / "lib" / "libtorch_cpu.so").write_bytes(archive.read(name))
    here = replace(BUILDER, torch_folder=tmp_path)
    (model,) = package.models
    assert model.library is not None
    library = replace(model.library, undefined=("aoti_torch_cpu_twice",))
    declared = read_wrapper('extern "C" {\nextern AOTITorchError aoti_torch_cpu_twice(\nint);\n}\n')
    assert declared.declared_functions == ("aoti_torch_cpu_twice",)

    def answer(**changes: object) -> bool | None:
        changed = replace(model, **{"library": library, **changes})  # type: ignore[arg-type]
        return on(here, replace(package, models=(changed,)))["torch"].fits

    assert answer() is False  # The wrapper does not declare it, so a header of torch does.
    assert answer(wrapper=declared) is None
    assert answer(wrapper=None) is None
    assert answer(library=replace(library, needed=("libshop.so",))) is None
    runtime = replace(library, undefined=("aoti_torch_new_function",))
    assert answer(wrapper=None, library=runtime) is False


def test_a_function_is_looked_up_in_the_files_of_ops(package: Package, tmp_path: Path) -> None:
    """The library of the stored package stands for one that defines operators."""
    (tmp_path / "lib").mkdir()
    with zipfile.ZipFile(SMALL) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".so"))
        (tmp_path / "ops.so").write_bytes(archive.read(name))
    here = replace(BUILDER, torch_folder=tmp_path, loaded_first=(tmp_path / "ops.so",))
    assert ["AOTInductorModelContainerRun" in one.defined for one in here.readable_libraries] == [
        True
    ]


def test_only_the_model_that_runs_is_judged(tmp_path: Path) -> None:
    """Beside the stored model lies one for another processor."""
    both = tmp_path / "both.pt2"
    with zipfile.ZipFile(SMALL) as old, zipfile.ZipFile(both, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            new.writestr(item.filename, data)
            if "/aotinductor/model/" in item.filename:
                name = item.filename.replace("/aotinductor/model/", "/aotinductor/other/")
                is_library = name.endswith(".so")
                riscv = data[:18] + struct.pack("<H", 243) + data[20:]
                new.writestr(name, riscv if is_library else data)
    alone = _examined(both, "model", None, quiet=True)
    assert [bool(model["fits"]) for model in alone["models"]] == [True, False]
    assert "riscv64" not in str([model["fits"] for model in alone["models"]])
    every = _examined(both, None, None, quiet=True)
    assert "riscv64" in str([model["fits"] for model in every["models"]])
