"""Whether a package can run on this machine: each condition, and how the answer was found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inductoscope.packages.elf import ElfFile, mapped
from inductoscope.packages.package import Package, PackagedModel
from inductoscope.packages.this_machine import LocalMachine
from inductoscope.vocabulary.counting import count_of

ARCHIVE_VERSION = "0"  # the only one that torch 2.11 to 2.15 reads

# What the generated code of each instruction set uses, by the names of /proc/cpuinfo.
_INSTRUCTIONS = {
    "AVX512": ("avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"),
    "AVX2": ("avx2", "fma"),
    "ASIMD": ("asimd",),
    "NEON": ("asimd",),
    "SVE": ("sve",),
    "SVE128": ("sve",),
    "SVE256": ("sve",),
    "AMX": ("amx_tile",),
    "AVX512_AMX": ("amx_tile", "avx512f"),
}


@dataclass(frozen=True)
class Fit:
    """One condition."""

    what: str
    fits: bool | None  # None: it cannot be told without running the package
    text: str
    established: str


def fits(package: Package, model: PackagedModel, here: LocalMachine) -> tuple[Fit, ...]:
    """Everything that decides whether this model can run here. Nothing is loaded."""
    found = [fit for check in CHECKS for fit in check(model, here)]
    return (*_format(package), *found)


def _format(package: Package) -> Iterator[Fit]:
    if package.kind == "library":
        return
    fine = package.version == ARCHIVE_VERSION
    text = f"version {package.version or 'not stated'}"
    if not fine:
        text += f"; torch 2.11 to 2.15 reads version {ARCHIVE_VERSION} only"
    yield Fit("archive", fine, text, "read from archive_version in the package")


def _platform(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    wanted = model.metadata.get("AOTI_PLATFORM")
    if wanted:
        text = f"built for {wanted}; this is {here.platform}"
        yield Fit("system", wanted == here.platform, text, "read from the package's metadata")


def _processor(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    if model.library is not None:
        machine = model.library.machine
        text = f"built for {machine}; this is {here.processor}"
        how = f"read from the ELF header of {model.library_name}"
        yield Fit("processor", machine == here.processor, text, how)
        if machine != here.processor:
            return
    wanted = model.metadata.get("AOTI_MACHINE")
    if wanted and (wanted != here.processor or model.library is None):
        # torch only warns: what the library is built for decides.
        fine = None if model.library is not None else wanted == here.processor
        text = f"its metadata says {wanted}; this is {here.processor}"
        text += ", and so is its library: the two disagree" if model.library is not None else ""
        yield Fit("processor", fine, text, "read from the package's metadata")


def _instructions(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    wanted = model.metadata.get("AOTI_CPU_ISA", "").upper()
    if model.metadata.get("AOTI_MACHINE", here.processor) != here.processor:
        return
    how = "read from the package's metadata and /proc/cpuinfo"
    if wanted in _INSTRUCTIONS and here.processor_flags:
        lacking = [flag for flag in _INSTRUCTIONS[wanted] if flag not in here.processor_flags]
        text = f"uses {wanted}" + (
            f"; this processor lacks {', '.join(lacking)}, so it would end with SIGILL"
            if lacking
            else ", which this processor has"
        )
        yield Fit("instructions", not lacking, text, how)
    flags = model.wrapper.compile_flags if model.wrapper else ()
    if "-march=native" in flags:
        text = (
            "compiled with -march=native, for the very processor that built it; whether this one "
            "has all of its instructions shows only when it runs"
        )
        yield Fit("instructions", None, text, "read from the compile command in the wrapper")


def _device(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    wanted = model.device
    if not wanted:
        return
    how = "read from the package's metadata and torch's lib folder"
    if here.torch_folder is not None:
        fine = wanted in here.torch_devices or wanted not in ("cuda", "xpu")
        text = f"runs on {wanted}"
        text += "" if fine else f"; the installed torch {here.torch_version} was built without it"
        yield Fit("device", fine, text, how)
    if wanted == "cuda":
        yield from _gpu(model, here)


def _gpu(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    how = "asked nvidia-smi"
    if not here.gpus:
        yield Fit("GPU", False, "no NVIDIA GPU is visible here", how)
        return
    wanted = _capability(model.compute_capability)
    if wanted is None:
        return
    for name, capability in here.gpus:
        own = _capability(capability)
        # Machine code runs on later minor versions of the same generation, never on another one.
        fine = own is not None and own[0] == wanted[0] and own[1] >= wanted[1]
        text = (
            f"its kernels are for compute capability {wanted[0]}.{wanted[1]}; {name} has "
            f"{capability}"
        )
        yield Fit("GPU", fine, text, f"read from the package's metadata; {how}")


def _capability(text: str) -> tuple[int, int] | None:
    digits = re.sub(r"\D", "", text)
    return (int(digits[:-1]), int(digits[-1])) if len(digits) >= 2 else None


def _torch_functions(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    """What a package of a newer torch calls and this one lacks: loading ends with an error."""
    if model.library is None:
        return
    if here.torch_folder is None:
        yield Fit("torch", None, "torch is not installed here", "looked for it")
        return
    wanted = [name for name in model.library.undefined if name.startswith("aoti_torch_")]
    libraries = list(_readable(here))
    if not libraries or model.library.machine != here.processor:
        return
    lacking = [name for name in wanted if not any(file.has_symbol(name) for file in libraries)]
    how = f"compared the symbols of {model.library_name} with those of torch's libraries"
    calls = f"calls {count_of(len(wanted), 'function')} of torch"
    if lacking:
        shown = ", ".join(lacking[:5]) + (", ..." if len(lacking) > 5 else "")
        text = (
            f"{calls}; the installed torch {here.torch_version} lacks {len(lacking)} of them "
            f"({shown}), so it cannot be loaded: it was built with a newer torch or another build "
            "of it. Install that one, or build the package again with this one"
        )
    else:
        text = f"{calls}; torch {here.torch_version} has all of them"
    yield Fit("torch", not lacking, text, how)


def _readable(here: LocalMachine) -> Iterator[ElfFile]:
    for library in here.torch_libraries:
        if library.name.startswith(("libtorch", "libc10")):
            try:
                yield mapped(library)
            except (OSError, ValueError):
                continue


def _c_library(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    if model.library is None or not here.c_library:
        return
    asked = [v.removeprefix("GLIBC_") for v in model.library.versions if v.startswith("GLIBC_")]
    numbers = [tuple(map(int, v.split("."))) for v in asked if re.fullmatch(r"\d+(\.\d+)*", v)]
    if not numbers:
        return
    newest = max(numbers)
    own = tuple(map(int, re.findall(r"\d+", here.c_library)))
    text = f"needs glibc {'.'.join(map(str, newest))}; this machine has {here.c_library}"
    yield Fit("C library", own >= newest, text, f"read from the versions in {model.library_name}")


def _operators(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    for name in model.custom_operators:
        text = (
            f"calls {name}, which torch does not have: load what defines it before the package, "
            "here with --ops FILE"
        )
        yield Fit("operator", None, text, "read from the package's list of operators")


def _weights(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    wrapper = model.wrapper
    if wrapper is None or wrapper.has_weights is not False or not wrapper.constants:
        return
    missing = [c.name for c in wrapper.constants if c.name not in model.weights_files]
    how = "read from the wrapper and the list of the package's files"
    if not missing:
        text = "are in the package, beside the library: load it with load_weights_from_disk=True"
        yield Fit("weights", True, text, how)
        return
    text = (
        f"{count_of(len(missing), 'constant')} not in the package ({', '.join(missing[:3])}"
        f"{', ...' if len(missing) > 3 else ''}): give them with load_constants before it runs"
    )
    yield Fit("weights", None, text, how)


CHECKS: tuple[Callable[[PackagedModel, LocalMachine], Iterator[Fit]], ...] = (
    _platform,
    _processor,
    _instructions,
    _device,
    _torch_functions,
    _c_library,
    _operators,
    _weights,
)
