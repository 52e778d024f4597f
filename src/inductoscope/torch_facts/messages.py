"""Messages that torch and a program print: NaN asserts, GPU errors, native stacks, last lines.

With `nan_asserts`, a Python wrapper raises a bare AssertionError from a line that names one of its
variables; a C++ wrapper names the variable in the message.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

_SAID = re.compile(r"At least one (?:NaN|INF) in (\w+)", re.IGNORECASE)
_ASSERTED = re.compile(r"assert not (\w+)\.is(?:nan|inf)\(\)\.any\(\)\.item\(\)")


def refused_variable(kind: str, message: str, last_frame: str) -> str:
    """Return the wrapper's variable that holds NaN; "" if the exception is another one.

    `kind` is the exception's type, `last_frame` the line that raised it, as Python prints it.
    """
    if kind == "AssertionError":
        found = _ASSERTED.search(last_frame)
    else:
        found = _SAID.search(message) if kind == "RuntimeError" else None
    return found[1] if found else ""


# --- What a GPU that is not there cannot answer, as torch words it --------------------------------
#
# An exception with such a text says nothing about the program: on a real GPU it would not be
# raised.

# Class names of the stand-ins for the device's objects; Python writes them into exceptions.
PROPERTIES_NAME = "PretendedProperties"
DRIVER_NAME = "PretendedDriver"

_STAND_INS = f"{PROPERTIES_NAME}|{DRIVER_NAME}"
_LIMITS = tuple(
    re.compile(pattern)
    for pattern in (
        r"module 'torch\._C' has no attribute '(?P<what>_(?:cuda|Cuda|CUDA)\w*)'",
        rf"'(?:{_STAND_INS})' object has no attribute '(?P<what>\w+)'",
        r"Tried to instantiate dummy base class (?P<what>\w+)",
        r"Could not run '(?P<what>[\w:.]+)' with arguments from the 'CUDA' backend",
        r"(?P<what>Torch not compiled with CUDA enabled)",
        r"(?P<what>Found no NVIDIA driver on your system)",
        r"(?P<what>Cannot initialize CUDA without ATen_cuda library)",
        r"(?P<what>PyTorch is not linked with support for cuda devices)",
    )
)


# Raised where a program asks for the value of a tensor that was never computed.
_NO_VALUE = ("DataDependentOutputException", "DynamicOutputShapeException")


def wants_a_value(type_name: str, message: str) -> bool:
    """Check whether an exception says that a tensor has a shape but no value."""
    return type_name in _NO_VALUE or "FakeTensor" in message


def asked_in_vain(text: str) -> str:
    """Return what torch asked a pretended GPU for and did not get; empty if nothing."""
    for pattern in _LIMITS:
        found = pattern.search(text)
        if found is not None:
            return found["what"]
    return ""


# --- Reads the native stack that torch prints when a signal ends the process ----------------------

_FRAME = re.compile(r"frame #\d+: (.+) \+ (?:0x)?[0-9a-f]+ \(0x[0-9a-f]+ in ([^)]+)\)")
_KERNEL = re.compile(r"\b((?:cpp|triton|cuda|cutlass)_\w+)")
_OPERATOR = "aoti_torch_proxy_executor_call_function"
# Frames above the function that received the signal.
_OF_THE_SIGNAL = ("FatalSignalHandler", "sigreturn", "restore_rt")
# System libraries: the caller is of interest, not the library.
_SYSTEM = ("libc.so", "libpthread", "libm.so", "libstdc++", "libgcc_s", "ld-linux", "linux-vdso")


@dataclass(frozen=True)
class CrashPlace:
    """The place in a process where a signal ended it."""

    function: str  # of the innermost frame; empty if its library has no names
    library: str
    kernel: str  # the package's kernel on the stack
    is_in_operator: bool  # below a custom operator that the package called

    @property
    def text(self) -> str:
        """The place as a phrase for use inside a sentence."""
        if self.kernel:
            return f"in the package's kernel {self.kernel}"
        place = f"in {self.function} of {self.library}" if self.function else f"in {self.library}"
        return f"{place}, below a custom operator" if self.is_in_operator else place


def crash_place(printed: str, kernels: Sequence[str]) -> CrashPlace | None:
    """Find the place of a crash in a printed native stack; None if no stack was printed."""
    frames = _FRAME.findall(printed)
    restored = (name.startswith(("__kernel_rt", "__restore")) for name, _ in frames)
    start = next((n for n, is_it in enumerate(restored, start=1) if is_it), 0)
    below = [f for f in frames[start:] if not any(word in f[0] for word in _OF_THE_SIGNAL)]
    if not below:
        return None
    own = [match[1] for name, _ in below if (match := _KERNEL.search(name))]
    asking = [frame for frame in below if not _name(frame[1]).startswith(_SYSTEM)]
    name, library = (asking or below)[0]
    return CrashPlace(
        function="" if name == "<unknown function>" else name.partition("(")[0],
        library=_name(library),
        kernel=next((kernel for kernel in own if kernel in kernels), ""),
        is_in_operator=any(frame.startswith(_OPERATOR) for frame, _ in below),
    )


def _name(library: str) -> str:
    return library.rpartition("/")[2]


# --- What a program printed last: its own words, not Python's warnings ----------------------------

# Python's format; the source line that warns follows, if there is one.
_WARNING = re.compile(r"(?P<file>\S.*?):(?P<line>\d+): \w*Warning: ")
# The format of torch's C++ code and of its logs.
_TORCH_WARNING = re.compile(r"\[?W\d{4} \d\d:\d\d:\d\d|\[W \S+:\d+\] ")

# The most lines that a warning may have.
_LONGEST = 20


def last_lines(output: str, most: int) -> list[str]:
    """Return up to `most` of the last lines that are neither empty nor part of a warning."""
    lines = [line for line in output.splitlines() if line.strip()]
    kept = []
    number = 0
    while number < len(lines):
        length = _warning_length(lines, number)
        if not length:
            kept.append(lines[number])
        number += length or 1
    return kept[-most:]


def _warning_length(lines: list[str], number: int) -> int:
    """Return how many lines the warning that starts here spans; 0 if none starts here."""
    if _TORCH_WARNING.match(lines[number]):
        return 1
    warning = _WARNING.match(lines[number])
    if warning is None:
        return 0
    # A program may name a pipe; reading it would block.
    is_file = os.path.isfile(warning["file"])
    source = linecache.getline(warning["file"], int(warning["line"])).strip() if is_file else ""
    beneath = lines[number + 1 : number + _LONGEST]
    if source and f"  {source}" in beneath:
        return beneath.index(f"  {source}") + 2
    return 2 if beneath and re.match(r"  \S", beneath[0]) else 1


# --- memory that ran out, of a GPU or of the machine ----------------------------------------------

_OUT_OF_MEMORY = re.compile(
    r"out of memory\. Tried to allocate (?P<tried>[\d.]+ \w+)\. GPU (?P<gpu>\d+) has a total "
    r"capacity of (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free\."
    r"(?:.*?this process has (?P<own>[\d.]+ \w+) memory in use)?"
    r"(?:[^\n]*? (?P<allowed>[\d.]+ \w+) allowed;)?",
    re.DOTALL,
)
_MAIN_MEMORY = re.compile(
    r"can't allocate memory: you tried to allocate (?P<tried>\d+) bytes|\bMemoryError"
    r"|std::bad_alloc|Cannot allocate memory|Killed signal terminated program"
)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True)
class OutOfMemory:
    """Memory that could not be allocated, and who holds how much of the whole, in bytes."""

    # Of which memory, for use inside a sentence.
    place: str
    # The amount asked for; 0 if it is not known.
    tried: int
    total: int
    free: int
    # All that the program holds; 0 if it is not known.
    own: int
    # What processes of this tool hold.
    of_tool: int = 0
    # Whether other processes may use the same memory, and whether it is a GPU's.
    is_shared: bool = True
    is_gpu: bool = False

    @property
    def of_others(self) -> int:
        """The memory of other processes; 0 if it is not known."""
        used = self.total - self.free - self.own - self.of_tool
        return max(0, used) if self.own and self.is_shared else 0

    @property
    def is_caused_by_others(self) -> bool:
        """Whether the allocation would have fitted, had other processes held nothing."""
        # Figures are rounded, and the driver holds some memory, too.
        is_much = self.of_others > max(1 << 30, self.total // 20)
        # A process that was killed cannot say what it asked for: it may have been half of the way.
        return is_much and self.free < (self.tried or self.own) <= self.free + self.of_others


def out_of_memory(text: str) -> OutOfMemory | None:
    """Read the last message about a GPU that has run out of memory."""
    every = list(_OUT_OF_MEMORY.finditer(text))
    if not every:
        return None
    found = every[-1]
    tried, total, free, own = (_bytes(found[name]) for name in ("tried", "total", "free", "own"))
    place, allowed = f"GPU {found['gpu']}", _bytes(found["allowed"])
    if allowed and own + tried > allowed:
        place = f"the memory fraction that the program allows itself on {place}"
        return OutOfMemory(place, tried, allowed, max(0, allowed - own), own, 0, False, is_gpu=True)
    return OutOfMemory(place, tried, total, free, own, is_gpu=True)


def asked_of_main_memory(text: str) -> int | None:
    """Return the bytes that could not be allocated, 0 if unknown; None if nothing says so."""
    every = list(_MAIN_MEMORY.finditer(text))
    return max((int(found["tried"] or 0) for found in every), default=None)


def says_lack_of_memory(text: str) -> bool:
    """Check whether an error says that memory ran out, of whatever device or library."""
    return any(words in text for words in _LACKS) or asked_of_main_memory(text) is not None


_LACKS = ("out of memory", "ALLOC_FAILED", "can't allocate memory")


def _bytes(size: str | None) -> int:
    number, _, unit = (size or "0 bytes").partition(" ")
    return int(float(number) * _UNITS.get(unit, 1))


# --- values that are not close --------------------------------------------------------------------

# What torch.testing and numpy.testing say of them.
COMPARISON_FAILED = re.compile(
    r"(?:[Gg]reatest absolute difference|Absolute difference|Max absolute difference[^:\n]*):"
    r" (?P<off>nan|inf|\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
)


# --- errors of kernels and of native code ---------------------------------------------------------

# Prefix of an error from a C++ kernel under torch.compile; errors in packages have none.
_PLACE_IN_KERNEL = re.compile(r"^\w+, \S+\.cpp:\d+, ")


def plain_message(message: str) -> str:
    """Strip an error of what varies between runs: generated file, native stack."""
    return _PLACE_IN_KERNEL.sub("", message.partition("\nException raised from ")[0])


_DEVICE_ERROR = re.compile(r"CUDA (?:driver )?error: ([^\n]+)")
# Errors after which a process cannot use the GPU any more.
_LOSES_DEVICE = (
    "illegal memory access", "illegal address", "illegal instruction", "misaligned address",
    "device-side assert", "unspecified launch failure", "invalid program counter",
    "hardware stack error",
)  # fmt: skip


def device_error(message: str) -> str:
    """Return the GPU error in a message after which a process cannot use the GPU; "" if none."""
    found = _DEVICE_ERROR.search(message)
    said = found[1].strip() if found else ""
    return said if any(words in said for words in _LOSES_DEVICE) else ""


_EXECUTED = re.compile(r"While executing %(?P<node>\w+) : .*?target=(?P<operation>[\w.]+)")


def executed_operation(message: str) -> str:
    """Return the operation that an interpreter of FX was executing when it failed; "" if none."""
    found = _EXECUTED.search(message)
    return found["operation"] if found else ""


def executed_node(message: str) -> str:
    """Return the node that an interpreter of FX was executing when it failed; "" if none."""
    found = _EXECUTED.search(message)
    return found["node"] if found else ""
