"""`inductoscope aoti FILE`: a package is read as a stranger's file, and nothing in it is run."""

from __future__ import annotations

import contextlib
import io
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from inductoscope.errors import UnreadablePackage
from inductoscope.packages.elf import read_library
from inductoscope.packages.package import Package, read_package
from support.examples import inductoscope

DATA = Path(__file__).parents[1] / "data" / "packages"
SMALL, EXPORTED = DATA / "small.pt2", DATA / "exported.pt2"


@pytest.fixture(scope="module")
def package() -> Package:
    return read_package(SMALL)


def test_what_is_in_a_package(package: Package) -> None:
    (model,) = package.models
    assert model.wrapper is not None
    assert model.device == "cpu"
    assert model.custom_operators == ("shop::twice",)
    assert [constant.name for constant in model.wrapper.constants] == [
        "linear.weight",
        "table",
        "calls",
    ]
    (changed,) = (c for c in model.wrapper.constants if c.written_by)
    assert (changed.name, changed.kind) == ("calls", "buffer")
    assert [call.kind for call in model.wrapper.calls] == [
        "kernel",
        "library",
        "kernel",
        "operator",
        "kernel",
    ]
    assert "-march=native" in model.wrapper.compile_flags
    assert model.library is not None
    assert "libtorch_cpu.so" in model.library.needed
    assert "aoti_torch_cpu_addmm_out" in model.library.undefined
    assert "AOTInductorModelContainerRun" in model.library.defined


def test_the_command_lists_it_and_executes_nothing() -> None:
    answer = inductoscope("aoti", SMALL)
    assert "input 0       arg4_1: float32, [s77: 2 to 64, 16]" in answer.stdout
    assert "3   custom operator shop::twice" in answer.stdout
    assert "Nothing in the file was executed." in answer.stdout


def test_an_exported_program_says_how_to_compile_it() -> None:
    answer = inductoscope("aoti", EXPORTED)
    assert answer.exit_code == 1
    assert "exported with torch 2.13" in answer.stdout
    assert "holds an exported program and no compiled model" in answer.stdout


# --- damaged and hostile files --------------------------------------------------------------------


def repacked(
    target: Path, change: Callable[[zipfile.ZipInfo, bytes], bytes] = lambda item, data: data
) -> Path:
    """The stored package with its members changed."""
    with zipfile.ZipFile(SMALL) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            data = change(item, old.read(item))
            new.writestr(item, data)
    return target


def with_member(target: Path, name: str, data: bytes = b"", mode: int = 0) -> Path:
    shutil.copy(SMALL, target)
    with zipfile.ZipFile(target, "a") as archive:
        item = zipfile.ZipInfo(name)
        item.external_attr = mode << 16
        item.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(item, data)
    return target


def other_processor(item: zipfile.ZipInfo, data: bytes) -> bytes:
    if not item.filename.endswith(".so"):
        return data
    return data[:18] + struct.pack("<H", 243) + data[20:]


def test_a_library_for_another_processor_is_named_by_its_header(tmp_path: Path) -> None:
    answer = inductoscope("aoti", repacked(tmp_path / "other.pt2", other_processor))
    assert answer.exit_code == 1
    assert "NO: built for riscv64; this is " in answer.stdout
    assert "other.pt2 cannot run on this machine: " in " ".join(answer.stdout.split())


def cut(tmp_path: Path) -> Path:
    target = tmp_path / "cut.pt2"
    target.write_bytes(SMALL.read_bytes()[:50_000])
    return target


def flipped(tmp_path: Path) -> Path:
    whole = bytearray(repacked(tmp_path / "plain.pt2").read_bytes())
    whole[30_000] ^= 0xFF
    target = tmp_path / "flipped.pt2"
    target.write_bytes(whole)
    return target


def text(tmp_path: Path) -> Path:
    target = tmp_path / "text.pt2"
    target.write_text("not a package")
    return target


def empty(tmp_path: Path) -> Path:
    target = tmp_path / "empty.pt2"
    target.touch()
    return target


def patched(tmp_path: Path) -> Path:
    """The flags of a member say that it is a patch for another file."""
    whole = bytearray(repacked(tmp_path / "plain.pt2").read_bytes())
    whole[whole.index(b"PK\x01\x02") + 8] |= 0x20
    target = tmp_path / "patched.pt2"
    target.write_bytes(whole)
    return target


def any_zip(tmp_path: Path) -> Path:
    target = tmp_path / "any.zip"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("folder/readme.txt", "hello")
    return target


def any_library(tmp_path: Path) -> Path:
    import _ctypes

    target = tmp_path / "any.so"
    shutil.copy(_ctypes.__file__, target)
    return target


def broken_library(tmp_path: Path) -> Path:
    def change(item: zipfile.ZipInfo, data: bytes) -> bytes:
        return data[:5000] if item.filename.endswith(".so") else data

    return repacked(tmp_path / "broken.pt2", change)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (cut, "is cut off: it begins like a package"),
        (flipped, "is damaged: "),
        (patched, "is damaged: "),
        (text, "is not a package: neither a zip (.pt2) nor a shared library (.so)"),
        (empty, "is empty. Copy or build it again."),
        (any_zip, "holds neither a compiled model"),
        (any_library, "is a shared library, but not one of AOTInductor"),
        (broken_library, "is not a shared library that can be read"),
    ],
)
def test_what_is_not_a_package_gets_a_sentence(
    make: Callable[[Path], Path], sentence: str, tmp_path: Path
) -> None:
    answer = inductoscope("aoti", make(tmp_path))
    assert answer.exit_code == 2
    assert sentence in answer.stderr
    assert answer.stdout == ""


@pytest.mark.parametrize(
    ("name", "data", "mode", "sentence"),
    [
        ("../../outside", b"", 0, "leads out of its folder"),
        ("/etc/passwd", b"", 0, "leads out of its folder"),
        ("small/..\\outside", b"", 0, "leads out of its folder"),
        ("small/link", b"/etc/passwd", stat.S_IFLNK | 0o777, "is a link or a device"),
        ("small/archive_version", b"0", 0, "two of its members are called"),
        ("small/bomb", bytes(200 << 20), 0, "as in a zip bomb"),
    ],
    ids=["above", "absolute", "backslash", "link", "twice", "bomb"],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_zip_is_refused(
    name: str, data: bytes, mode: int, sentence: str, tmp_path: Path
) -> None:
    answer = inductoscope("aoti", with_member(tmp_path / "hostile.pt2", name, data, mode))
    assert answer.exit_code == 2
    assert "is refused: " in answer.stderr
    assert sentence in answer.stderr


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    """As in the bombs that unpack one stretch of bytes many times."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("small/a", bytes(1000))
        first = archive.infolist()[0]
        for number in range(5):
            again = zipfile.ZipInfo(f"small/{number}")
            again.header_offset, again.CRC = first.header_offset, first.CRC
            again.compress_size = again.file_size = first.file_size
            archive.filelist.append(again)
    target = tmp_path / "overlapping.pt2"
    target.write_bytes(inner.getvalue())
    assert "its members overlap" in inductoscope("aoti", target).stderr


def test_any_damage_to_a_library_is_an_error_of_ours(tmp_path: Path) -> None:
    with zipfile.ZipFile(SMALL) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".so"))
        library = archive.read(name)
    (sections,) = struct.unpack_from("<Q", library, 40)
    for at in (*range(64), *range(sections, len(library), 7)):
        changed = bytearray(library)
        changed[at] ^= 0xFF
        with contextlib.suppress(UnreadablePackage):  # Any other error is a fault of the reader.
            read_library(memoryview(bytes(changed)), name)


def test_a_library_that_announces_too_many_versions(package: Package) -> None:
    """The count says a million million; the last entry says that it is the last."""
    with zipfile.ZipFile(SMALL) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".so"))
        library = archive.read(name)
    tag = struct.pack("<Q", 0x6FFFFFFF)
    before, after = library.split(tag, 1)
    lying = before + tag + struct.pack("<Q", 10**12) + after[8:]
    assert package.models[0].library is not None
    assert read_library(memoryview(lying), name).versions == package.models[0].library.versions


def test_symbols_that_a_library_offers_are_not_those_that_it_needs() -> None:
    with zipfile.ZipFile(SMALL) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".so"))
        library = read_library(memoryview(archive.read(name)), name)
    assert "AOTInductorModelContainerRun" in library.defined
    assert "aoti_torch_cpu_addmm_out" not in library.defined


def test_a_script_is_examined_by_the_doctor(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    answer = inductoscope("aoti", script)
    assert answer.exit_code == 4
    assert "not-checked: Nothing was compiled" in answer.stdout


def test_a_package_takes_no_arguments() -> None:
    answer = inductoscope("aoti", SMALL, "--", "--epochs")
    assert answer.exit_code == 2
    assert "is a package, which takes no arguments: --epochs" in answer.stderr
