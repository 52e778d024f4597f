"""Runs generated C++ kernels under AddressSanitizer and UndefinedBehaviorSanitizer.

A fork compiles the candidate and stores the generated wrapper, with the sources of its kernels, and
its arguments. A fresh process, in which the sanitizers are loaded first, builds the same sources
with them and calls the wrapper once. The compiler does not run there, so the sources also contain
faults that the program itself has put into the compiler.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from inductoscope.errors import ToolFailure
from inductoscope.inside.search.candidate import Candidate, compiled_plainly
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import compiled, compiling, replaced, run_compiled
from inductoscope.inside.search.placement import placed
from inductoscope.processes.children import ChildLimits, run_program

_WRAPPER, _CALL = "wrapper.py", "call.pt"
# Integer overflow and unaligned vectors are allowed in torch.
_FLAGS = (
    "-fsanitize=address,undefined -fno-sanitize=signed-integer-overflow,alignment "
    "-fno-omit-frame-pointer -O1 -g"
)
# GCC does not check the loads and stores of ARM's vectors, which are built into it.
_ARM_VECTORS = "arm_vectors.h"
_ARM_TYPES = "f16 f32 f64 s8 s16 s32 s64 u8 u16 u32 u64"
# The sanitizer reserves more address space than any machine has memory.
_ADDRESS_SPACE_GIB = float(1 << 20)
_SECONDS = 300.0

# In the child, in a Python that knows nothing of inductoscope. Where torch has an allocator of its
# own, the sanitizer does not know its memory: so buffers and arguments come from malloc.
_RUN = f"""
import ctypes, torch

malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p


def memory(size, stride, dtype):
    count = 1 + sum((n - 1) * step for n, step in zip(size, stride))
    if 0 in size:
        return torch.empty_strided(size, stride, dtype=dtype)
    length = count * dtype.itemsize
    got = (ctypes.c_char * length).from_address(malloc(ctypes.c_size_t(length)))
    flat = torch.frombuffer(got, dtype=torch.uint8)
    return torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), 0, size, stride)


def moved(value):
    if type(value) is not torch.Tensor or torch.empty_like(value).stride() != value.stride():
        return value
    return memory(value.size(), value.stride(), value.dtype).copy_(value)


torch._C._dynamo.guards._empty_strided_cpu = memory
stored = torch.load({_CALL!r}, weights_only=False)
constants = {{name: moved(value) for name, value in stored["constants"].items()}}
names = {{"__name__": "wrapper", "__file__": {_WRAPPER!r}, **constants}}
exec(compile(open({_WRAPPER!r}).read(), {_WRAPPER!r}, "exec"), names)
with torch.no_grad():
    names["call"]([moved(value) for value in stored["arguments"]])
print("the call has returned")
"""


@dataclass(frozen=True)
class SanitizerFinding:
    """Undefined behaviour, or an invalid access, in a generated kernel."""

    # 'heap-buffer-overflow', or what UndefinedBehaviorSanitizer says.
    error: str
    # 'READ of size 16', and where that is: '0 bytes after 1600-byte region'.
    access: str = ""
    place: str = ""
    kernel: str = ""
    source: str = ""  # the line of the generated source

    @property
    def text(self) -> str:
        what = ", ".join(part for part in (self.error, self.access, self.place) if part)
        return f"kernel {self.kernel or '(unknown)'}: {what}; in the line `{self.source}`"


def run_sanitized(candidate: Candidate, forks: Forks, folder: Path) -> tuple[SanitizerFinding, ...]:
    """Call the candidate's C++ kernels once under the sanitizers; creates `folder`.

    Raises `ToolFailure` if the sanitizers cannot run.
    """
    libraries = _libraries()
    if not libraries:
        raise ToolFailure("g++ has no AddressSanitizer on this machine (libasan)")
    folder.mkdir(parents=True)
    # The kernels are the same, whatever calls them; behind a Python wrapper they are in one file.
    plain = compiled_plainly(candidate)
    forks.ask(lambda: _store(placed(plain), folder))
    if not (folder / _CALL).exists():
        raise ToolFailure("the candidate does not compile as far as a call")
    code = run_program(
        [sys.executable, "-c", _RUN],
        ChildLimits(seconds=_SECONDS, memory_gib=_ADDRESS_SPACE_GIB),
        folder,
        environment=_environment(folder, libraries),
    )
    printed = (folder / "stderr").read_text("utf-8", errors="replace")
    findings = findings_in(printed, (folder / _WRAPPER).read_text("utf-8"))
    if findings or code == 0:
        return findings
    if code is None:
        raise ToolFailure(f"the sanitizers were not done after {_SECONDS:.0f} seconds")
    last = (printed.strip().splitlines() or ["it said nothing"])[-1]
    raise ToolFailure(f"the process ended with code {code} and no report: {last}")


# --- in the fork ----------------------------------------------------------------------------------


def _store(candidate: Candidate, folder: Path) -> None:
    """Compile and call the candidate; store its first compiled call before it runs."""
    with compiling(candidate), _storing(folder):
        run_compiled(candidate, compiled(candidate))


def _storing(folder: Path) -> contextlib.AbstractContextManager[None]:
    from torch._inductor.codecache import PyCodeCache

    def load(original: Any, cls: Any, key: str, path: str, *args: Any, **more: Any) -> Any:
        module = original(cls, key, path, *args, **more)
        call: Any = getattr(module, "call", None)
        constants = more.get("attrs") or {}

        def stored(arguments: list[Any]) -> Any:
            if not (folder / _CALL).exists():
                shutil.copy(path, folder / _WRAPPER)
                what = {
                    "arguments": [_plain(value) for value in arguments],
                    "constants": {name: _plain(value) for name, value in constants.items()},
                }
                torch.save(what, folder / _CALL)
            return call(arguments)

        if call is not None:
            module.call = stored
        return module

    return replaced(PyCodeCache, "load_by_key_path", load)


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


# --- the child ------------------------------------------------------------------------------------


def _libraries() -> list[str]:
    """Return the libraries to preload; C++ exceptions need the standard library as well."""
    found = []
    for name in ("libasan.so", "libstdc++.so.6"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = [_compiler(), f"-print-file-name={name}"]
            answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
            if os.path.isabs(path := answer.stdout.strip()):
                found.append(os.path.realpath(path))
    return found if len(found) == 2 else []


def _compiler() -> str:
    return os.environ.get("CXX") or "g++"


def _environment(folder: Path, libraries: list[str]) -> dict[str, str]:
    compiler = folder / "g++"
    header = folder / _ARM_VECTORS
    header.write_text(_checked_vectors())
    flags = f"{_FLAGS} -include {header}"
    compiler.write_text(f'#!/bin/sh\nexec {_compiler()} "$@" {flags}\n')
    compiler.chmod(0o755)
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "CXX": str(compiler),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Otherwise torch probes every vector ISA with a compile.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }


def _checked_vectors() -> str:
    """Return a header that has the sanitizer check every vector load and store."""
    lines = ["#ifdef __aarch64__", "#include <arm_neon.h>"]
    for kind in ("load", "store"):
        lines.append(f'extern "C" void __asan_{kind}N(unsigned long, unsigned long);')
    for name in _ARM_TYPES.split():
        load, store = f"vld1q_{name}", f"vst1q_{name}"
        lines += [
            f"#define {load}(p) (__asan_loadN((unsigned long)(p), 16), {load}(p))",
            f"#define {store}(p, v) (__asan_storeN((unsigned long)(p), 16), {store}(p, v))",
        ]
    return "\n".join([*lines, "#endif", ""])


# --- what they say --------------------------------------------------------------------------------

_ADDRESS = re.compile(r"ERROR: AddressSanitizer: ([\w-]+)")
_ACCESS = re.compile(r"^((?:READ|WRITE) of size \d+)", re.M)
_PLACE = re.compile(r"is located (\d+ bytes .*? \d+-byte region)")
_FRAME = re.compile(r"^\s*#\d+ \S+ in (.+?) (/\S+\.cpp):(\d+)", re.M)
_UNDEFINED = re.compile(r"^(/\S+\.cpp):(\d+):\d+: runtime error: (.*)$", re.M)


def findings_in(printed: str, wrapper: str) -> tuple[SanitizerFinding, ...]:
    """Parse the sanitizers' output for generated sources, out-of-bounds access first."""
    found = []
    address = _ADDRESS.search(printed)
    frame = _FRAME.search(printed, address.end()) if address else None
    if address and frame:
        access, place = _ACCESS.search(printed), _PLACE.search(printed)
        kernel, source = _line(wrapper, Path(frame[2]), int(frame[3]))
        said = (access[1] if access else "", place[1] if place else "")
        found.append(
            SanitizerFinding(_error(address[1], printed, said), *said, kernel or frame[1], source)
        )
    for path, number, text in _UNDEFINED.findall(printed):
        kernel, source = _line(wrapper, Path(path), int(number))
        found.append(SanitizerFinding(text, kernel=kernel, source=source))
    return tuple(dict.fromkeys(found))


def _error(name: str, printed: str, said: tuple[str, str]) -> str:
    """Name the error; a wide access that crosses the end has no name in AddressSanitizer."""
    is_wide = name == "unknown-crash" and all(said) and "freed by thread" not in printed
    return "heap-buffer-overflow" if is_wide else name


def _line(wrapper: str, path: Path, number: int) -> tuple[str, str]:
    """Return the kernel that a line of generated source belongs to, and the line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return "", ""
    source = lines[number - 1].strip() if number <= len(lines) else ""
    functions = [re.search(r'extern "C"\s+void\s+(\w+)\(', line) for line in lines[:number]]
    names = [match[1] for match in functions if match]
    if names and names[-1] != "kernel":
        return names[-1], source
    # Python wrappers name every C++ kernel `kernel`, so it is identified by its source.
    body = "\n".join(lines[:number])
    start = body.find('extern "C"')
    place = wrapper.find(body[start:]) if start >= 0 else -1
    names = re.findall(r"^(\w+) = async_compile\.cpp\w*\(", wrapper[: max(place, 0)], re.M)
    return (names[-1] if names else ""), source
