"""Reads the native stack that torch prints when a signal ends the process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FRAME = re.compile(r"frame #\d+: (.+) \+ (?:0x)?[0-9a-f]+ \(0x[0-9a-f]+ in ([^)]+)\)")
_KERNEL = re.compile(r"\b((?:cpp|triton|cuda|cutlass)_\w+)")
_OPERATOR = "aoti_torch_proxy_executor_call_function"
# What stands above the function in which the signal came.
_OF_THE_SIGNAL = ("FatalSignalHandler", "sigreturn", "restore_rt")
# Libraries that do what others ask them to: whoever asked is of interest.
_SYSTEM = ("libc.so", "libpthread", "libm.so", "libstdc++", "libgcc_s", "ld-linux", "linux-vdso")


@dataclass(frozen=True)
class CrashPlace:
    """Where a process was when a signal ended it."""

    function: str  # of the innermost frame; empty if its library has no names
    library: str
    kernel: str  # the package's kernel on the stack
    is_in_operator: bool  # below a custom operator that the package called

    @property
    def text(self) -> str:
        """As part of a sentence."""
        if self.kernel:
            return f"in the package's kernel {self.kernel}"
        place = f"in {self.function} of {self.library}" if self.function else f"in {self.library}"
        return f"{place}, below a custom operator" if self.is_in_operator else place


def crash_place(printed: str, kernels: Sequence[str]) -> CrashPlace | None:
    """Where it was; None if no stack was printed."""
    frames = _FRAME.findall(printed)
    start = next(
        (n for n, (name, _) in enumerate(frames) if name.startswith(("__kernel_rt", "__restore"))),
        None,
    )
    below = [
        frame
        for frame in frames[0 if start is None else start + 1 :]
        if not any(word in frame[0] for word in _OF_THE_SIGNAL)
    ]
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
