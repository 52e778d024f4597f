"""Output of AOTInductor's intermediate value printer, and calls of a generated wrapper."""

from __future__ import annotations

import math
import re
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

_ANNOUNCED = re.compile(r"\[ (before|after)_launch: (\S+) \]")
_VALUE = re.compile(
    r"^\[  (before|after)_launch - (\S+) - (\S+)  \]:$(.*?)^Requires grad:", re.M | re.S
)
_NUMBER = re.compile(r"^(?:Mean|Min|Max) value: (\S+)$", re.M)
_SIZE = re.compile(r"^Size: (.*)$", re.M)
_CALL = re.compile(r'aoti_torch_print_tensor_handle\(\w+, "before_launch - (\S+) - (\S+)"\)')
_RETURNED = re.compile(r"&(\w+)_handle\b")
_REUSE = re.compile(r"\bauto (\w+) = std::move\((\w+)\);")
# As much as two printed numbers may differ that a person takes for the same.
_ALIKE = 2e-3


@dataclass(frozen=True)
class PrintedValue:
    """A tensor as it was printed: its size, and its mean, smallest and largest value."""

    size: str
    numbers: tuple[str, ...]

    def is_like(self, other: PrintedValue) -> bool:
        """Whether a person who reads both would take them for the same."""
        both = zip(self.numbers, other.numbers, strict=False)
        return self.size == other.size and all(_is_alike(a, b) for a, b in both)


def _is_alike(one: str, other: str) -> bool:
    try:
        a, b = float(one), float(other)
    except ValueError:
        return one == other
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=_ALIKE, abs_tol=_ALIKE)


@dataclass(frozen=True)
class Call:
    """One call that the wrapper makes: the kernel, and the tensors that it gets."""

    number: int
    kernel: str
    tensors: tuple[str, ...]
    # Tensors that an operator returns, which the printer does not show.
    returned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """Tensors shown by one call, before and after its launch."""

    kernel: str
    before: dict[str, PrintedValue]
    after: dict[str, PrintedValue]


def last_announced(output: str) -> int | None:
    """The number of the call that was launched last, at level 3; None if every one came back."""
    announced = _ANNOUNCED.findall(output)
    launched = sum(when == "before" for when, _ in announced)
    return launched - 1 if announced and announced[-1][0] == "before" else None


def shown_calls(output: str) -> list[Shown]:
    """Output of level 2, call by call."""
    found: list[Shown] = []
    was_after = True
    for when, kernel, tensor, text in _VALUE.findall(output):
        if not found or found[-1].kernel != kernel or (was_after and when == "before"):
            found.append(Shown(kernel, {}, {}))
        was_after = when == "after"
        values = found[-1].after if was_after else found[-1].before
        size = _SIZE.search(text)
        values[tensor] = PrintedValue(size[1] if size else "", tuple(_NUMBER.findall(text)))
    return found


def calls_of(wrapper: str) -> list[Call]:
    """The calls of a wrapper that was built with the printer at level 2."""
    found: list[Call] = []
    is_open = False
    for line in wrapper.splitlines():
        printed = _CALL.search(line)
        if printed and is_open and found[-1].kernel == printed[1]:
            found[-1] = replace(found[-1], tensors=(*found[-1].tensors, printed[2]))
        elif printed:
            found.append(Call(len(found), printed[1], (printed[2],)))
        elif is_open:
            found[-1] = replace(found[-1], returned=tuple(_RETURNED.findall(line)))
        if line.strip():
            is_open = printed is not None
    return found


def reused_names(wrapper: str) -> dict[str, str]:
    """Buffers that take over the memory and the value of another, with its name."""
    return dict(_REUSE.findall(wrapper))


def wrapper_text(package: Path) -> str:
    """The C++ wrapper in a package."""
    with zipfile.ZipFile(package) as archive:
        names = [name for name in archive.namelist() if name.endswith(".wrapper.cpp")]
        return archive.read(names[0]).decode() if names else ""
