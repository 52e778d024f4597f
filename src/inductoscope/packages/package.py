"""Reads a package: models, guards, constants, kernels, custom operators, how it was built.

Nothing in it is executed, and nothing is unpacked to disk.
"""

from __future__ import annotations

import json
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.errors import UnreadablePackage, UsageError
from inductoscope.model.entities import Compile, Recording
from inductoscope.packages.archive import Archive, damaged, open_archive
from inductoscope.packages.elf import SharedLibrary, is_elf, read_library
from inductoscope.torch_facts.package_wrappers import WrapperText, read_wrapper
from inductoscope.torch_facts.stages import AOT_INDUCTOR

_MODELS = "data/aotinductor/"
_WEIGHTS = "data/weights/"
_MOST_WRAPPER = 32 << 20  # bytes; torch writes a few of them per kernel
_KERNEL_FILES = (".cubin", ".hsaco", ".fatbin", ".spv", ".zebin", ".ptx")

# The exceptions that a malformed file can raise in its reader.
_MALFORMED = (ValueError, IndexError, KeyError, TypeError, RecursionError, struct.error)


@dataclass(frozen=True)
class PackagedModel:
    name: str
    metadata: Mapping[str, str]
    wrapper: WrapperText | None
    library: SharedLibrary | None
    library_name: str
    library_bytes: int
    operators: tuple[str, ...]  # called through torch's dispatcher, in numerical order
    kernel_files: tuple[str, ...]  # for GPUs
    weights_files: Mapping[str, str]  # by constant, for those that are not in the library

    @property
    def device(self) -> str:
        """The device type that the model runs on."""
        return self.metadata.get("AOTI_DEVICE_KEY", "")

    @property
    def custom_operators(self) -> tuple[str, ...]:
        """The operators that are not torch's own."""
        own = ("aten::", "prims::", "prim::", "inductor::", "quantized::", "mkldnn::", "c10d::")
        named = (name for name in self.operators if not name.startswith(own))
        return tuple(dict.fromkeys(named))

    @property
    def compute_capability(self) -> str:
        """The compute capability of the target GPU; empty for a CPU."""
        return self.metadata.get("AOTI_COMPUTE_CAPABILITY", "")


@dataclass(frozen=True)
class PackagedProgram:
    """A program from torch.export: an uncompiled graph that eager can run."""

    name: str
    torch_version: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    path: Path
    kind: str  # package, exported program or library
    bytes: int
    version: str
    models: tuple[PackagedModel, ...]
    programs: tuple[PackagedProgram, ...]
    extra: tuple[str, ...]  # files that the user added
    weights_bytes: int  # of weights outside of libraries

    def model(self, name: str | None) -> PackagedModel:
        """Return the model of this name; by default the only one, or the one called `model`."""
        names = [model.name for model in self.models]
        if name is None and len(self.models) == 1:
            return self.models[0]
        for model in self.models:
            if model.name == (name or "model"):
                return model
        if not names:
            raise UsageError(
                f"{self.path} holds no compiled model. Compile the exported program: "
                "torch._inductor.aoti_compile_and_package(torch.export.load(PATH))."
            )
        what = f"no model {name}" if name else f"{len(names)} models"
        raise UsageError(f"{self.path} holds {what}. Name one with --model: {', '.join(names)}.")


def read_package(path: Path, *, verify: bool = True) -> Package:
    """Read a `.pt2` or a `.so`. `verify` checks all checksums first."""
    if not path.exists():
        raise UsageError(f"{path} does not exist.")
    if not path.is_file():
        raise UsageError(f"{path} is not a file. Give the .pt2 or .so itself.")
    try:
        if is_elf(path):
            return _library_alone(path)
        archive = open_archive(path)
        if verify:
            archive.check()
        return _package(archive)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except _MALFORMED as error:
        raise damaged(path, f"something in it is not as torch writes it ({error})") from error


def _library_alone(path: Path) -> Package:
    """Read a library of aot_compile; its wrapper is in the same folder if that was kept."""
    with open(path, "rb") as file:
        library = read_library(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), str(path))
    if not any(name.startswith("AOTInductorModelContainer") for name in library.defined):
        raise UnreadablePackage(
            f"{path} is a shared library, but not one of AOTInductor: it has no function "
            "AOTInductorModelContainerCreate. torch._inductor.aot_compile writes one."
        )
    wrapper = _beside(path, ".cpp")
    metadata = _mapping(_beside(path.with_name(f"{path.stem}_metadata"), ".json"))
    model = PackagedModel(
        name=path.stem,
        metadata={str(key): str(value) for key, value in metadata.items()},
        wrapper=read_wrapper(wrapper) if wrapper else None,
        library=library,
        library_name=path.name,
        library_bytes=path.stat().st_size,
        operators=tuple(_operators(_mapping(_beside(path, ".json")))),
        kernel_files=(),
        weights_files={},
    )
    return Package(path, "library", path.stat().st_size, "", (model,), (), (), 0)


def _beside(path: Path, suffix: str) -> str:
    other = path.with_name(path.name.removesuffix(".so") + suffix)
    try:
        return other.read_text("utf-8", "replace")
    except OSError:
        return ""


def _package(archive: Archive) -> Package:
    names = list(archive.members)
    version = archive.text("archive_version")
    models = tuple(_model(archive, *found) for found in sorted(_folders(names).items()))
    programs = tuple(_programs(archive, names))
    if not models and not programs:
        raise UnreadablePackage(
            f"{archive.path} is a zip, but holds neither a compiled model ({_MODELS}...) nor an "
            "exported program (models/...). torch._inductor.aoti_compile_and_package writes one."
        )
    return Package(
        path=archive.path,
        kind="package" if models else "exported program",
        bytes=archive.path.stat().st_size,
        version=(version or "").strip(),
        models=models,
        programs=programs,
        extra=tuple(name.removeprefix("extra/") for name in _in(names, "extra/")),
        weights_bytes=sum(archive.members[name].file_size for name in _in(names, _WEIGHTS)),
    )


def _in(names: list[str], folder: str) -> Iterator[str]:
    return (name for name in names if name.startswith(folder))


def _folders(names: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in _in(names, _MODELS):
        model, slash, _ = name.removeprefix(_MODELS).partition("/")
        found.setdefault(model, []).extend([name] if slash else [])
    return found


def _model(archive: Archive, name: str, files: list[str]) -> PackagedModel:
    folder = f"{_MODELS}{name}/"
    wrapper = _with_end(files, ".wrapper.cpp") or _with_end(files, ".cpp")
    stem = (wrapper or _with_end(files, ".so")).rpartition(".")[0]
    library = f"{stem}.so" if f"{stem}.so" in archive.members else _with_end(files, ".so")
    text = archive.text(wrapper, _MOST_WRAPPER) if wrapper else None
    metadata = _mapping(archive.text(f"{stem}_metadata.json"))
    weights = _mapping(archive.text(f"{folder}weights_config.json"))
    return PackagedModel(
        name=name,
        metadata={str(key): str(value) for key, value in metadata.items()},
        wrapper=read_wrapper(text) if text else None,
        library=read_library(archive.data(library), library) if library else None,
        library_name=library.rpartition("/")[2],
        library_bytes=archive.members[library].file_size if library else 0,
        operators=tuple(_operators(_mapping(archive.text(f"{stem}.json")))),
        kernel_files=tuple(
            file.removeprefix(folder) for file in files if file.endswith(_KERNEL_FILES)
        ),
        weights_files={
            str(key): str(value[0])
            for key, value in weights.items()
            if isinstance(value, list) and value
        },
    )


def _with_end(files: list[str], end: str) -> str:
    return next((file for file in files if file.endswith(end)), "")


def _operators(listed: Mapping[str, Any]) -> Iterator[str]:
    nodes = listed.get("nodes")
    for entry in nodes if isinstance(nodes, list) else ():
        node = entry.get("node") if isinstance(entry, dict) else None
        if isinstance(node, dict) and isinstance(node.get("target"), str):
            yield node["target"]


def _programs(archive: Archive, names: list[str]) -> Iterator[PackagedProgram]:
    for name in _in(names, "models/"):
        if not name.endswith(".json"):
            continue
        program = _mapping(archive.text(name))
        targets = re.findall(r'"target": "torch\.ops\.([\w.]+)"', archive.text(name) or "")
        yield PackagedProgram(
            name=name.removeprefix("models/").removesuffix(".json"),
            torch_version=str(program.get("torch_version", "")),
            operators=tuple(dict.fromkeys(targets)),
        )


def _mapping(text: str | None) -> Mapping[str, Any]:
    """Parse a JSON object; return an empty one for anything else."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- The package that a recorded compile made, read from the wrapper in the recording -------------

# A text that only AOTInductor generates.
_PACKAGE = "AOTInductorModel::run_impl("


def recorded_package(recording: Recording, compile_: Compile) -> WrapperText | None:
    """Return the wrapper of the package that a compile made; None if it made none."""
    for graph in compile_.inductor:
        found = package_of_wrapper(recording.payload(graph.wrapper))
        if found is not None:
            return found
    return None


def count_guards(recording: Recording, compile_: Compile) -> int:
    """Count the guards of a frame, or the input checks of a package."""
    package = recorded_package(recording, compile_) if compile_.flow == AOT_INDUCTOR else None
    return package.guards.count if package else compile_.guard_count


def package_of_wrapper(text: str) -> WrapperText | None:
    """Read the text of a package's wrapper; None for other wrappers."""
    return read_wrapper(text) if _PACKAGE in text else None
