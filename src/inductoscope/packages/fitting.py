"""Checks whether a package can run on this machine, without importing torch or loading it."""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from inductoscope.packages import cpp_library
from inductoscope.packages.constants import CPU, on_other_device
from inductoscope.packages.elf import SharedLibrary, mapped
from inductoscope.packages.package import Package, PackagedModel
from inductoscope.wording import count_of

_SECONDS = 20


@dataclass(frozen=True)
class LocalMachine:
    """Properties of this machine that decide whether a package can run here."""

    platform: str  # as sys.platform calls it
    processor: str  # as platform.machine() calls it
    processor_flags: frozenset[str]
    c_library: str  # the version of glibc; empty for another C library
    torch_folder: Path | None
    torch_version: str
    # Name and compute capability; None if nvidia-smi does not report them.
    gpus: tuple[tuple[str, str], ...] | None
    loaded_first: tuple[Path, ...] = ()  # libraries that the user loads before a package

    @property
    def torch_libraries(self) -> tuple[Path, ...]:
        if self.torch_folder is None:
            return ()
        return tuple(sorted((self.torch_folder / "lib").glob("lib*.so*")))

    @cached_property
    def readable_libraries(self) -> tuple[SharedLibrary, ...]:
        """Those that define what a package calls: torch's, and those that the user loads first."""
        torch = (n for n in self.torch_libraries if n.name.startswith(("libtorch", "libc10")))
        found = []
        for path in (*torch, *self.loaded_first):
            with contextlib.suppress(OSError, ValueError, LookupError, struct.error):
                found.append(mapped(path))
        return tuple(found)

    @property
    def torch_devices(self) -> tuple[str, ...]:
        """The device types that the installed torch was built for."""
        kinds = {"libtorch_cuda.so": "cuda", "libtorch_hip.so": "cuda", "libtorch_xpu.so": "xpu"}
        names = {library.name for library in self.torch_libraries}
        return ("cpu", *sorted({kind for name, kind in kinds.items() if name in names}))

    @property
    def has_rocm(self) -> bool:
        """Whether the installed torch is built for ROCm, which calls AMD GPUs `cuda`."""
        return any(library.name == "libtorch_hip.so" for library in self.torch_libraries)


def look_at_this_machine(loaded_first: tuple[Path, ...] = ()) -> LocalMachine:
    """Describe this machine from files, and from nvidia-smi if it is installed."""
    folder = _torch_folder()
    version = folder / "version.py" if folder is not None else Path()
    flags = _found_in(Path("/proc/cpuinfo"), r"^(?:flags|Features)\s*:(.*)$")
    library, c_library = platform.libc_ver()
    return LocalMachine(
        platform=sys.platform,
        processor=platform.machine(),
        processor_flags=frozenset(flags.split()),
        c_library=c_library if library == "glibc" else "",
        torch_folder=folder,
        torch_version=_found_in(version, r"^__version__ = ['\"]([^'\"]+)"),
        gpus=_gpus(),
        loaded_first=loaded_first,
    )


def _torch_folder() -> Path | None:
    found = importlib.util.find_spec("torch")
    return Path(found.origin).parent if found is not None and found.origin else None


def _found_in(path: Path, pattern: str) -> str:
    """Return the first group of a pattern in a file; empty if either is missing."""
    with contextlib.suppress(OSError):
        found = re.search(pattern, path.read_text("utf-8", "replace"), re.MULTILINE)
        return found[1] if found else ""
    return ""


def _gpus() -> tuple[tuple[str, str], ...] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    rows = (line.rpartition(",") for line in done.stdout.splitlines())
    return tuple((name.strip(), capability.strip()) for name, comma, capability in rows if comma)


# --- Conditions for a package to run on this machine, and how each was checked --------------------

ARCHIVE_VERSION = "0"  # the only one that torch 2.11 to 2.15 reads

# The CPU flags in /proc/cpuinfo that each instruction set requires. The metadata holds one or more
# words: AVX512 AVX512_VNNI AMX_TILE.
_INSTRUCTIONS: dict[str, tuple[str, ...]] = {
    "AVX512": ("avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"),
    "AVX2": ("avx2", "fma"),
    "ASIMD": ("asimd",),
    "NEON": ("asimd",),
    "SVE": ("sve",),
    "SVE128": ("sve",),
    "SVE256": ("sve",),
    "INVALID_VEC_ISA": (),  # The code is not vectorised.
    "AVX512_VNNI": ("avx512_vnni",),
    "AMX_TILE": ("amx_tile", "amx_bf16", "amx_int8"),
}
# Instruction sets that only some kernels use, such as matrix products.
_MAYBE_USED = ("AVX512_VNNI", "AMX_TILE")
_MULTI_ARCHITECTURE = (".fatbin", ".ptx")  # The driver can compile these for a newer GPU.

# C shims, one per operator; also for custom operators (aot_inductor.custom_ops_to_c_shims).
_OPERATOR_SHIM = re.compile(r"aoti_torch_(?:cpu|cuda|xpu|mps|mtia|hpu|npu|aten|mkldnn)_")
# Libraries other than torch's that a package links to.
_SYSTEM_LIBRARIES = re.compile(
    r"(?:lib(?:c|m|dl|rt|pthread|util|stdc\+\+|gcc_s|gomp|iomp5|omp|atomic|cuda|cudart|z|sycl|"
    r"ze_loader|amdhip64)(?:-[\da-f]+)?|ld-linux[\w-]*)\.so(?:[.\d]*)"
)


@dataclass(frozen=True)
class Fit:
    """One condition, and whether it holds."""

    what: str
    fits: bool | None  # None: it cannot be told without running the package
    text: str
    established: str


def fits(package: Package, model: PackagedModel, here: LocalMachine) -> tuple[Fit, ...]:
    """Check all conditions for this model to run here. Nothing is loaded."""
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
    machine, how = model.metadata.get("AOTI_MACHINE", ""), "read from the package's metadata"
    if model.library is not None:  # The library takes precedence over the metadata.
        machine, how = model.library.machine, f"read from the ELF header of {model.library_name}"
    if machine:
        text = f"built for {machine}; this is {here.processor}"
        yield Fit("processor", machine == here.processor, text, how)


def _instructions(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    machine = model.library.machine if model.library is not None else here.processor
    if model.metadata.get("AOTI_MACHINE", machine) != here.processor:
        return
    words = model.metadata.get("AOTI_CPU_ISA", "").upper().split()
    if words and here.processor_flags:
        yield _vector_fit(words, here, model.device)
    flags = model.wrapper.compile_flags if model.wrapper else ()
    if "-march=native" in flags:
        text = (
            "compiled with -march=native, for the very processor that built it; whether this one "
            "has all of its instructions shows only when it runs"
        )
        yield Fit("instructions", None, text, "read from the compile command in the wrapper")


def _vector_fit(words: list[str], here: LocalMachine, device: str) -> Fit:
    """Check vector instructions; certain only for those that all vectorized kernels use."""
    how = "read from the package's metadata and /proc/cpuinfo"
    uses = f"uses {' '.join(words)}"
    used = {flag: word for word in words for flag in _INSTRUCTIONS.get(word, ())}
    lacking = [flag for flag in used if flag not in here.processor_flags]
    if lacking:
        every_time = any(used[flag] not in _MAYBE_USED for flag in lacking)
        lacks = f"{uses}; this processor lacks {', '.join(lacking)}"
        if every_time and device in ("", "cpu"):
            return Fit("instructions", False, f"{lacks}, so it would end with SIGILL", how)
        text = f"{lacks}: it ends with SIGILL if a kernel uses them"
        return Fit("instructions", None, text, how)
    unknown = [word for word in words if word not in _INSTRUCTIONS]
    if unknown:
        text = f"{uses}; which instructions {' '.join(unknown)} stands for is not known here"
        return Fit("instructions", None, text, how)
    return Fit("instructions", True, f"{uses}, which this processor has", how)


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
    if here.gpus is None or here.has_rocm:
        text = "which GPUs are here is not known: nvidia-smi is not installed or gave no answer"
        if here.has_rocm:
            text = "the installed torch is for AMD GPUs, which are not looked at"
        yield Fit("GPU", None, text, how)
        return
    if not here.gpus:
        yield Fit("GPU", False, "no NVIDIA GPU is visible here", how)
        return
    wanted = _capability(model.compute_capability)
    if wanted is None:
        return
    answers = {_runs_on(model, wanted, _capability(capability)) for _, capability in here.gpus}
    # One matching GPU is enough.
    fine = next(answer for answer in (True, None, False) if answer in answers)
    there = ", ".join(dict.fromkeys(f"{name} has {capability}" for name, capability in here.gpus))
    text = f"its kernels are for compute capability {wanted[0]}.{wanted[1]}; {there}"
    yield Fit("GPU", fine, text, f"read from the package's metadata; {how}")


def _runs_on(
    model: PackagedModel, wanted: tuple[int, int], own: tuple[int, int] | None
) -> bool | None:
    """Check a GPU: machine code runs on later minor versions of the same major version only."""
    if own is not None and own[0] == wanted[0] and own[1] >= wanted[1]:
        return True
    portable = any(name.endswith(_MULTI_ARCHITECTURE) for name in model.kernel_files)
    # Without kernel files, kernels are in the library, or there are none.
    is_unknown = own is None or not model.kernel_files or (portable and own > wanted)
    return None if is_unknown else False


def _capability(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,3}?)\.?(\d)", text)
    return (int(found.group(1)), int(found.group(2))) if found else None


def _torch_functions(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    """Check for functions of a newer torch that are missing here and make loading fail."""
    if model.library is None:
        return
    if here.torch_folder is None:
        yield Fit("torch", None, "torch is not installed here", "looked for it")
        return
    wanted = [name for name in model.library.undefined if name.startswith("aoti_torch_")]
    if not here.readable_libraries or model.library.machine != here.processor:
        return
    offered = frozenset[str]().union(*(library.defined for library in here.readable_libraries))
    lacking = [name for name in wanted if name not in offered]
    how = f"compared the symbols of {model.library_name} with those of torch's libraries"
    calls = f"calls {count_of(len(wanted), 'function')} of torch"
    certain = [name for name in lacking if not _may_be_elsewhere(name, model)]
    shown = _first_of(certain or lacking, 5)
    if certain:
        text = (
            f"{calls}; the installed torch {here.torch_version} lacks {len(certain)} of them "
            f"({shown}), so it cannot be loaded: it was built with a newer torch or another build "
            "of it. Install that one, or build the package again with this one"
        )
        yield Fit("torch", False, text, how)
    elif lacking:
        text = (
            f"{calls}; torch {here.torch_version} lacks {len(lacking)} of them ({shown}). Those of "
            "a custom operator come from its library: give it with --ops FILE"
        )
        yield Fit("torch", None, text, how)
    else:
        yield Fit("torch", True, f"{calls}; torch {here.torch_version} has all of them", how)


def _first_of(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _may_be_elsewhere(name: str, model: PackagedModel) -> bool:
    """Check whether a library other than torch's may define a function."""
    needed = model.library.needed if model.library else ()
    own = ("libtorch", "libc10", "libaoti")
    if any(not n.startswith(own) and not _SYSTEM_LIBRARIES.fullmatch(n) for n in needed):
        return True
    if model.wrapper is not None:
        # The wrapper itself declares the functions of custom operators; torch's headers the rest.
        return name in model.wrapper.declared_functions
    return _OPERATOR_SHIM.match(name) is not None


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


def _cpp_library(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    """Check for a copy of libstdc++ besides torch's, which may or may not cause conflicts."""
    used = {name for library in here.readable_libraries for name in library.needed}
    if cpp_library.brings_own(model.library) and cpp_library.NAME in used:
        text = (
            f"brings a copy of libstdc++, and torch uses {cpp_library.NAME}: loading it can end in "
            "a segmentation fault or std::bad_cast. Its compiler linked libstdc++ statically"
        )
        how = f"found std::locale among the symbols that {model.library_name} offers"
        yield Fit("C++ library", None, text, how)


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
        f"{count_of(len(missing), 'constant')} not in the package ({_first_of(missing, 3)}): give "
        "them with load_constants before it runs"
    )
    yield Fit("weights", None, text, how)


def _constant_devices(model: PackagedModel, here: LocalMachine) -> Iterator[Fit]:
    found = on_other_device(model.wrapper.constants if model.wrapper else (), model.device)
    how = "read from the wrapper's list of constants"
    for device in dict.fromkeys(constant.device for constant in found):
        names = [constant.name for constant in found if constant.device == device]
        text = f"{count_of(len(names), 'constant')} on {device} ({_first_of(names, 3)}), not on "
        text += model.device
        if device == CPU:
            text += (
                ": torch 2.11 and later builds packages that leave it there; one that an earlier "
            )
            text += f"torch built moves it to {model.device}, where code for the CPU cannot read it"
            yield Fit("constants", None, text, how)
        else:
            yield Fit("constants", False, f"{text}: torch refuses to load it", how)


CHECKS: tuple[Callable[[PackagedModel, LocalMachine], Iterator[Fit]], ...] = (
    _platform,
    _processor,
    _instructions,
    _device,
    _torch_functions,
    _c_library,
    _cpp_library,
    _operators,
    _weights,
    _constant_devices,
)
