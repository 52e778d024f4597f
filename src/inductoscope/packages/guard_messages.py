"""Translates what the checks inside a package print with AOTI_RUNTIME_CHECK_INPUTS=1."""

from __future__ import annotations

import re
from collections.abc import Sequence

from inductoscope.packages.guards import BrokenGuard, InputGuard

# c10::ScalarType and c10::DeviceType: numbers that torch never gives to another.
DTYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    8: "complex32",
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bfloat16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
DEVICES = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 14: "meta", 19: "mtia"}

_INPUT = r"input_handles\[(?P<input>\d+)\]: "
_PAIR = r"expected: (?P<expected>-?\d+){}, but got: (?P<found>-?\d+)"
_LIMIT = r"expected (?:it )?to be (?P<expected>[<>]= \d+), but got: (?P<found>-?\d+)"
_PATTERNS = tuple(
    (kind, re.compile(_INPUT + pattern))
    for kind, pattern in (
        ("dtype", r"unmatched dtype, " + _PAIR.format(r"\([^)]*\)")),
        ("device", r"unmatched device type, " + _PAIR.format(r"\([^)]*\)")),
        ("size", r"unmatched dim value at (?P<at>\d+), " + _PAIR.format("")),
        ("size", r"dim value is too (?:small|large) at (?P<at>\d+), " + _LIMIT),
        ("stride", r"unmatched stride value at (?P<at>\d+), " + _PAIR.format("")),
    )
)
_SHAPE = re.compile(
    r"expected size (?P<found>-?\d+)==(?P<expected>-?\d+), "
    r"stride (?P<stride>-?\d+)==(?P<wanted>-?\d+) at dim=(?P<at>\d+)"
)
_RANK = re.compile(r"expected ndim (?P<expected>\d+) but got (?P<found>\d+)")
_OPERATOR = re.compile(r"Error in op: (?P<operator>\S+)")


def translate(text: str, inputs: Sequence[InputGuard] = ()) -> tuple[BrokenGuard, ...]:
    """The demands that the text says are broken, in our words; none if it says nothing of them.

    `inputs` gives the names of the inputs, where they are known.
    """
    found = []
    for kind, pattern in _PATTERNS:
        found += [_of_input(kind, match, inputs) for match in pattern.finditer(text)]
    return tuple(dict.fromkeys((*found, *_of_tensor(text))))


def _of_input(kind: str, match: re.Match[str], inputs: Sequence[InputGuard]) -> BrokenGuard:
    index = int(match["input"])
    guard = inputs[index] if index < len(inputs) else InputGuard(index, "")
    expected, found = match["expected"], match["found"]
    at = int(match["at"]) if "at" in match.groupdict() else None
    if kind in ("dtype", "device"):
        names = DTYPES if kind == "dtype" else DEVICES
        # The expected device is printed twice in a row, as in '00(cpu)'.
        wanted = expected[: len(expected) // 2] if kind == "device" else expected
        expected, found = (names.get(int(n or 0), f"number {n}") for n in (wanted, found))
        said = f"has dtype {found}" if kind == "dtype" else f"is on {found}"
    else:
        said = f"{'dimension' if kind == 'size' else 'stride'} {at} is {found}"
    plain = expected.replace(">= ", "at least ").replace("<= ", "at most ")
    text = f"{guard.label}: {said}; the package accepts {plain}"
    return BrokenGuard(index, guard.name, kind, at, plain, found, text)


def _of_tensor(text: str) -> list[BrokenGuard]:
    """What the wrapper asserts of inputs and of what operators return."""
    operator = _OPERATOR.search(text)
    if operator is None:
        return []
    name = operator["operator"]
    found = []
    for match in _RANK.finditer(text):
        there, wanted = match["found"], match["expected"]
        said = _assertion(name, f"has {there} dimensions", wanted)
        found.append(BrokenGuard(-1, name, "dimensions", None, wanted, there, said))
    for match in _SHAPE.finditer(text):
        at = int(match["at"])
        kind = "size" if match["found"] != match["expected"] else "stride"
        pair = ("found", "expected") if kind == "size" else ("stride", "wanted")
        there, wanted = (match[group] for group in pair)
        what = "dimension" if kind == "size" else "stride"
        said = _assertion(name, f"{what} {at} is {there}", wanted)
        found.append(BrokenGuard(-1, name, kind, at, wanted, there, said))
    return found


def _assertion(name: str, said: str, wanted: str) -> str:
    if name == "input":
        return f"an input: {said}; the package accepts {wanted}"
    return f"what {name} returned: {said}; its fake (meta) function promised {wanted}"
